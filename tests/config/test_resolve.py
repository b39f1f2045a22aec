"""From a request to a run: the arithmetic, the refusals, the record."""

import ast
import contextlib
import dataclasses
import itertools
import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.command import Capture, Cli
from support.following import offline, program
from support.timed import Timer

from nlp_bench.cli.parser import parser_of
from nlp_bench.config import catalog
from nlp_bench.config.machine import detect_system
from nlp_bench.config.options import spellings
from nlp_bench.config.origin import origin
from nlp_bench.config.request import Request, from_options
from nlp_bench.config.resolve import apply_tags, for_another_job, read_tags, resolve
from nlp_bench.config.run import read_run
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.launch.scheduler import slurm


def test_record_comes_back_equal(tmp_path: Path) -> None:
    changes = {"tensor": 4, "gradient_accumulation_steps": 8, "iterations": 5, "sbatch_args": ("--reservation=a",)}
    run = offline("175", "juwels-booster", **changes)
    assert read_run(run.write(tmp_path)) == run


def test_newer_record_is_refused(tmp_path: Path) -> None:
    path = offline("tiny", "local").write(tmp_path)
    path.write_text(path.read_text().replace("nlp-bench/run/1", "nlp-bench/run/2"))
    with pytest.raises(NlpBenchError, match=r"nlp-bench/run/2 is newer"):
        read_run(path)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"tensor": 5}, "parallel: nodes*gpus_per_node = 384 is not a multiple of tp*pp = 40 (remainder 24)"),
        ({"global_batch_size": 96, "gradient_accumulation_steps": 8}, "global_batch_size = 96 is not dp*micro_batch_size*gas = 6*1*8 = 48"),
        ({"gpus_per_node": 8}, "parallel.gpus_per_node: 8, but juwels-booster has 4 GPUs per node"),
        ({"iterations": 15}, "iterations = 15 is not a multiple of log_interval = 10"),
    ],
)  # fmt: skip
def test_indivisible_layouts_show_the_arithmetic(choices: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        offline("175", "juwels-booster", **choices)


@pytest.mark.slow
def test_every_accepted_layout_keeps_its_arithmetic(each_case: Timer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exhaustive over small sizes: what is accepted multiplies out exactly, nothing is truncated."""
    monkeypatch.setattr("nlp_bench.config.resolve.origin", cache(origin))  # which asks git and reads all sources
    accepted = 0
    for tp, pp in itertools.product(range(1, 17), repeat=2):
        with contextlib.suppress(UsageError), each_case():
            run = offline("175", "juwels-booster", tensor=tp, pipeline=pp)
            parallel, batch = run.parallel, run.batch
            assert parallel.tensor * parallel.pipeline * parallel.data == parallel.num_gpus
            assert batch.micro_batch_size * batch.gradient_accumulation_steps * parallel.data == batch.global_batch_size
            accepted += 1
    assert accepted > 20


@pytest.mark.parametrize(
    ("model", "changed", "named"),
    [
        ("175", {"num_layers": 48}, ("model.num_layers: 48 instead of 96",)),
        ("175", {"recompute": "full"}, ("model.recompute: full instead of selective",)),
        ("175", {"iterations": 20}, ()),
        ("gpt_5b", {"recompute": "full"}, ()),  # no rules are about it, and the planner chooses
    ],
)
def test_frozen_parameters_that_change_are_named(model: str, changed: dict[str, Any], named: tuple[str, ...]) -> None:
    assert offline(model, "juwels-booster", **changed).deviations == named


def test_a_model_file_of_ones_own_is_named(tmp_path: Path) -> None:
    text = (catalog.root() / "benchmark/models/tiny.toml").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(text)
    (tmp_path / "tiny.toml").write_text(text.replace("\nlr = 1e-3", "\nlr = 1e-2"))
    for name, said in (("mine", "model: mine is a file of your own"), ("tiny", "model.lr: 0.01 instead of 0.001")):
        assert offline(f"{tmp_path}/{name}.toml", "local").deviations == (said,)


def test_two_systems_that_match_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("nlp_benchmark_run")
    shutil.copytree(catalog.root() / "benchmark", tmp_path / "benchmark", ignore=ignored)
    copy = tmp_path / "benchmark/systems/copy.toml"
    copy.write_text((tmp_path / "benchmark/systems/slurm-sandbox.toml").read_text())
    monkeypatch.setenv("NLP_BENCH_ROOT", str(tmp_path))
    with pytest.raises(UsageError, match=r"copy and slurm-sandbox .* both match this machine"):
        detect_system("nlpbench-sandbox")


def test_a_slow_slurm_is_not_no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path, "scontrol", "sleep 5")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(UsageError, match=r"`scontrol show config` did not answer within 0\.2 s"):
        slurm.listing("scontrol", "show", "config", timeout_s=0.2)


def test_slurm_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nlp_bench.config.machine.cluster", lambda _: None)
    with pytest.raises(UsageError, match="no Slurm answers here"):
        resolve(Request(model="tiny", launcher="slurm"))


def configuration(folder: Path, *tags: str) -> Path:
    words = "".join(f"<tag>{tag}</tag>" for tag in tags)
    (folder / "configuration.xml").write_text(f'<jube version="2.5"><selection>{words}</selection><benchmark/></jube>')
    return folder


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            '<parameter name="seq_length">2048</parameter>',
            "seq_length is used by nothing; did you mean sequence_length?",
        ),
        ('<parameter name="num_layers">4</parameter>', "num_layers is used by nothing; did you mean nlayers?"),
        ('<parameter name="tp_sizes">4</parameter>', "tp_sizes is used by nothing; did you mean tp_size?"),
        ('<parameter name="zzz">4</parameter>', "parameter zzz is used by nothing; take it out"),
        ('<parameter name="point">0,1</parameter><parameter name="NCCL_ALGO" export="true">Ring</parameter>', ""),
        ('<parameter name="mine">1</parameter><parameter name="tp_size" mode="python">2 * $mine</parameter>', ""),
        ('<parameter name="shown">1</parameter>', ""),
    ],
)
def test_a_parameter_of_jube_that_nothing_uses(tmp_path: Path, cli: Cli, lines: str, said: str) -> None:
    """By an option's other name a sweep had equal points, and JUBE and check said nothing."""
    (tmp_path / "configuration.xml").write_text(
        f'<jube><selection/><benchmark><parameterset name="modelParameter">{lines}</parameterset>'
        '<parameterset name="site"><parameter name="other">1</parameter></parameterset><step><do>check "$tp_size" $sequence_length'
        "</do></step><result><table><column>shown</column></table></result></benchmark></jube>"
    )
    words = ("--offline", "--system", "local", "--mock-data", "--jube-run", tmp_path)
    assert said in cli("check", *words, code=UsageError.exit_code if said else 0).err


def test_parameters_of_another_checkout_are_refused(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that JUBE_INCLUDE_PATH names JUBE took the sizes, and said nothing; equal ones do no harm."""
    own = (Path(__file__).parents[2] / "jube/parameters.yaml").read_text()
    (tmp_path / "jube").mkdir()
    (folder := tmp_path / "benchmark/jube").mkdir(parents=True)
    monkeypatch.setenv("JUBE_INCLUDE_PATH", f"/nowhere:{folder}")
    words = ("--offline", "--system", "local", "--mock-data", "--jube-run", configuration(tmp_path))
    for text, code in ((own, 0), (own + "# changed\n", UsageError.exit_code)):
        (tmp_path / "jube/parameters.yaml").write_text(text)
        said = cli("check", *words, code=code).err
        assert ("unset JUBE_INCLUDE_PATH, and start anew" in said) is bool(code)


OURS = '      - {name: iterations, _: "default"}'
IS_LIST = r"parameters.yaml line 17: the value is a list of YAML, of which JUBE takes the last one alone"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (OURS, ""),
        (f'      - {{name: iterations, _: "20"}}\n{OURS}', r"parameter iterations stands twice in .*/jube/parameters.yaml \(lines 16 and 17\)"),
        ("      - name: iterations\n        _: [4, 6]", IS_LIST),
        ("      - name: iterations\n        _:\n          - 4\n          - 6", IS_LIST),
        ("      - name: iterations\n        _:   # a sweep\n        - 4", IS_LIST),
        ('      - name: iterations\n        _: "[4,6][$point]"', ""),
        ('      - name: iterations\n        _: "4,6"', ""),
    ],
)  # fmt: skip
def test_a_parameter_of_which_jube_takes_the_last_value_is_refused(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, lines: str, said: str
) -> None:
    """One that stands twice, or is a list of YAML: a line of the user's, or all points of a sweep but one, was dropped in silence."""
    root = Path(__file__).parents[2]
    for name in ("benchmark", "build"):
        (tmp_path / name).symlink_to(root / name)
    (tmp_path / "jube").mkdir()
    monkeypatch.setenv("NLP_BENCH_ROOT", str(tmp_path))
    own = (root / "jube/parameters.yaml").read_text()
    (tmp_path / "jube/parameters.yaml").write_text(own.replace(OURS, lines))
    words = ("--offline", "--system", "local", "--mock-data", "--jube-run", configuration(tmp_path))
    found = cli("check", *words, code=2 if said else 0).err
    assert re.search(said or r"\A(?!.*(?:stands twice|list of YAML))", found)


def test_tags_name_model_system_and_launcher(tmp_path: Path) -> None:
    tags = read_tags(configuration(tmp_path, "13", "juwels-booster", "slurm"))
    request = apply_tags(Request(), tags)
    assert (request.model, request.system, request.launcher) == ("13", "juwels-booster", "slurm")


def test_a_queue_of_a_run_on_this_machine_is_told_as_unused(capsys: Capture) -> None:
    assert resolve(Request(model="tiny", system="local", queue="batch")).launch.queue == ""
    assert "warning: queue batch: not used, for the run starts on this machine" in capsys.readouterr().err


def test_tags_that_jube_left_out_are_missed(tmp_path: Path) -> None:
    run = configuration(tmp_path, "rehearse", "local")
    begin, later = "[2026-01-01 10:00:00,000]:DEBUG: Command: jube run nlp.yaml", "[...]:DEBUG: Command: --tag 175"
    for words in ("--tag rehearse local", "-r --tag rehearse -t rehearse local -e", "-m a --tag-less x"):
        (run / "parse.log").write_text(f"{begin} {words}\n{later}\n")
        assert read_tags(run) == ["rehearse", "local"]
    for words in ("--tag 13 --tag rehearse local", "-t13 -r -e --tag=rehearse local"):
        (run / "parse.log").write_text(f"{begin} {words}\n{later}\n")
        with pytest.raises(UsageError, match=r"the last one only, and left out 13: write --tag 13 rehearse local$"):
            read_tags(run)


def test_a_parameter_wins_over_the_tag(capsys: Capture) -> None:
    assert apply_tags(Request(model="175", system="local"), ["13", "dgx-h100"]).model == "175"
    assert capsys.readouterr().err.splitlines() == [
        "nlp-bench: warning: the tag 13 counts for nothing: the parameter nlp_model_size says 175",
        "nlp-bench: warning: the tag dgx-h100 counts for nothing: the parameter system says local",
    ]
    apply_tags(Request(model="./13.toml"), ["13"])
    assert not capsys.readouterr().err


PARTITION = "PartitionName=booster Default=YES MaxNodes=UNLIMITED MaxTime=1-00:00:00 TotalNodes=4 State=UP"


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({}, "parallel.nodes: 96 nodes, but partition booster has at most 4"),
        ({"queue": "night"}, "launch.queue: Slurm has no partition 'night' (it has: booster)"),
        ({"nodes": 4, "pipeline": 2, "timelimit": "1-00:00:01"}, "but partition booster gives at most 1-00:00:00"),
    ],
)
def test_partition_limits(monkeypatch: pytest.MonkeyPatch, choices: dict[str, object], message: str) -> None:
    monkeypatch.setattr(slurm, "listing", lambda *_: PARTITION)
    with pytest.raises(UsageError, match=re.escape(message)):
        slurm.Slurm().check_limits(offline("175", "juwels-booster", **choices))


def test_a_sandbox_queues_what_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "listing", lambda *_: PARTITION)
    slurm.Slurm().check_limits(offline("175", "slurm-sandbox"))


def test_every_field_of_a_record_is_explained_where_it_stands() -> None:
    """By a docstring, which help and pages show, or by a comment in its line."""
    for path in (catalog.root() / "src/nlp_bench/config").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and any("immutable" in ast.unparse(d) for d in node.decorator_list):
                fields = [(a, b) for a, b in itertools.pairwise([*node.body, None]) if isinstance(a, ast.AnnAssign)]
                bare = [ast.unparse(a) for a, b in fields if not isinstance(b, ast.Expr)
                        and "  # " not in text.splitlines()[a.lineno - 1]]  # fmt: skip
                assert bare == [], f"{path.name}: {node.name}"


def test_switches_are_true_or_false() -> None:
    words = ["--overlap-grad-reduce", "On", "--sequence-parallel=false", "--kernels", "default", "--exclusive"]
    request = from_options(parser_of("check").read(words))
    assert request.exclusive is True
    assert (request.overlap_grad_reduce, request.sequence_parallel, request.kernels) == (True, False, None)
    with pytest.raises(UsageError, match="--overlap-grad-reduce: 'maybe' is neither true nor false"):
        parser_of("check").read(["--overlap-grad-reduce", "maybe"])


@pytest.mark.parametrize(
    "name", [field.name for field in dataclasses.fields(Request) if field.name not in {"sbatch_args", "srun_args"}]
)
def test_an_empty_value_is_refused_by_name(name: str) -> None:
    """It is what JUBE puts for a misspelt $name: taken for "not given", it would train another run than was asked for."""
    option = spellings(Request, name)[0]
    with pytest.raises(UsageError, match=f"^{option}: the value is empty: a misspelt"):
        parser_of("check").read([option, ""])


def test_a_blend_keeps_its_weights(tmp_path: Path) -> None:
    prefixes = [tmp_path / "a file", tmp_path / "b"]
    for prefix in prefixes:
        for end in (".bin", ".idx"):
            Path(f"{prefix}{end}").touch()
    run = offline("tiny", "local", data_path=f"0.7 '{prefixes[0]}' 0.3 {prefixes[1]}")
    assert run.data.words == ("0.7", str(prefixes[0]), "0.3", str(prefixes[1]))
    assert offline("tiny", "local", data_path=str(prefixes[0])).data.words == (str(prefixes[0]),)
    assert read_run(run.write(tmp_path)) == run
    with pytest.raises(UsageError, match=r"data.path: .*c.bin and .*c.idx not found"):
        offline("tiny", "local", data_path=f"{prefixes[0].name} {tmp_path / 'c'}")
    tilde = r"data.path: .*/~/d.bin and .*/~/d.idx not found \(no shell replaces a ~ behind =; "
    with pytest.raises(UsageError, match=tilde):
        offline("tiny", "local", data_path="~/d")


def test_a_recorded_run_takes_other_words_for_its_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "listing", lambda *_, **__: None)
    run = offline("175", "juwels-booster")
    job = Request(timelimit="02:00:00", queue="other", mem="0", sbatch_args=("--exclude=n1",))
    made = for_another_job(run, job)
    assert (made.launch.timelimit, made.launch.queue, made.launch.account) == ("02:00:00", "other", run.launch.account)
    assert made.system.slurm.mem == "0"
    assert made.system.slurm.sbatch_args == (*run.system.slurm.sbatch_args, "--exclude=n1")
    assert made == replace(run, launch=made.launch, system=made.system)
    assert for_another_job(run, Request()) is run


def test_a_recorded_run_takes_no_other_training() -> None:
    with pytest.raises(UsageError, match=r"--run: .*takes no --tp; .*--timelimit .*--gres .*--sbatch-arg"):
        for_another_job(offline("tiny", "local"), Request(tensor=2, timelimit="01:00:00"))


@pytest.mark.parametrize(
    ("nodes", "micro", "total", "works"),
    [
        (1, 32, 16, "none; lower --micro-batch-size"),
        (7, 1, 720, "6, 8, 5, 9, 4 and 25 more"),
        (96, 2, 999_999_998, "1, 691, 723589, 499999999"),
        (96, 2, 999_999_999, "none; lower --micro-batch-size"),
    ],
)
def test_the_nearest_numbers_of_nodes_that_can_share_a_batch_are_named(
    nodes: int, micro: int, total: int, works: str
) -> None:
    sizes = {"nodes": nodes, "gpus_per_node": 4, "tensor": 4, "pipeline": 1, "global_batch_size": total}
    with pytest.raises(UsageError, match=f"nodes work: {works}$"):
        offline("tiny", "juwels-booster", micro_batch_size=micro, **sizes)
