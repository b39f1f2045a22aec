"""`import nlp_bench`: the numbers of the command line, as objects. docs/api.md: NLP_BENCH_WRITE_DOCS=1 pytest tests/test_api.py."""

import ast
import io
import json
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from support.megatron_log import line
from support.pages import check_text
from support.processes import execute
from support.published import published_log, write_run
from support.repeated import write_runs
from support.samples import FOLDER

import nlp_bench
from nlp_bench.config.accelerators import forget

PAGE = Path(__file__).parents[1] / "docs/api.md"
CODE = re.compile(r"(?<=^```python\n)(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.MULTILINE | re.DOTALL)
DUMP = (
    "------------------------ arguments ------------------------\n  seq_length ........ {}\n  world_size ........ 384\n"
)
Call = Callable[..., Any]


@pytest.fixture
def command(cli: Call) -> Call:
    return lambda *words: cli(*words, "--format", "json", code=None).json


def test_importing_is_light_and_the_names_stay_functions() -> None:
    code = """import sys, nlp_bench
heavy = {"numpy", "pandas", "torch", "argparse"} & set(sys.modules)
import nlp_bench.measure.result, nlp_bench.analysis.comparison, nlp_bench.plan.constants
assert dir(nlp_bench) == sorted([*nlp_bench.__all__, "__version__"])
from nlp_bench import measure, compare, plan
from nlp_bench.measure import result
print(heavy, [type(each).__name__ for each in (measure, nlp_bench.compare, plan, result)], hasattr(nlp_bench, "nonsense"))"""
    done = execute(sys.executable, "-c", code)
    assert (done.stdout, done.stderr) == ("set() ['function', 'function', 'function', 'module'] False\n", "")


def test_the_numbers_are_those_of_the_command_line(command: Call, log: Path) -> None:
    found = nlp_bench.measure(nlp_bench.read_log(log, sequence_length=2048, num_gpus=384), limit=560, tokens=40_000_000)
    asked = ["report", log, "--sequence-length", 2048, "--num-gpus", 384, "--limit", 560, "--tokens", 40_000_000]
    assert json.loads(json.dumps(found.to_dict())) == command(*asked)
    assert [each.name for each in found.supplied] == ["sequence_length", "num_gpus"]
    assert "limit 560 s: FAIL, supplied: sequence_length=2048, num_gpus=384>" in repr(found)


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.exists(), reason="no logs of third parties beside the checkout")
def test_of_every_sample_the_numbers_are_those_of_the_command_line(command: Call) -> None:
    logs = nlp_bench.read_logs(FOLDER / "samples")
    runs = command("report", FOLDER / "samples")["runs"]
    assert len(logs) == len(runs) > 90
    for log, run in zip(logs, runs, strict=True):
        found = nlp_bench.measure(log)
        assert json.loads(json.dumps(found.to_dict()["runs"])) == [run]
        rate, time = found.tokens_per_second, found.time_to_report_s
        for shown, said in ((rate, run["tokens_per_second"]), (time, run["time_to_report_s"])):
            assert [shown.reference, shown.steady, shown.ci95 and list(shown.ci95)] == list(said.values())
        sustained = run["sustained"] or dict.fromkeys(("tokens_per_second", "time_to_report_s"))
        assert (rate.sustained, time.sustained) == (sustained["tokens_per_second"], sustained["time_to_report_s"])
        inside = [record for record in log.records if record.in_window]
        assert len(inside) == (run["window"] or {"num_records": 0})["num_records"]
        if inside and inside[0].seconds:  # else the log has rates alone
            num_tokens = sum(record.num_tokens or 0.0 for record in inside)
            assert num_tokens / sum(record.seconds or 0.0 for record in inside) == pytest.approx(rate.steady, rel=1e-12)


def test_what_has_no_number_is_a_result(log: Path) -> None:
    read = nlp_bench.read_log(log)
    found = nlp_bench.measure(read, limit=560)
    assert found.outcome is nlp_bench.Outcome.REFUSED
    assert "sequence length" in found.reasons[0]
    rate = found.tokens_per_second
    assert (rate.reference, rate.steady, rate.ci95, rate.sustained, found.time_to_report_s.steady) == (None,) * 5
    assert (found.window, found.verdict and found.verdict.word) == (None, "NOT PROVEN")
    assert (len(read.records), read.records[0].lm_loss, read.records[0].seconds) == (5, 10.10967, None)
    assert repr(found).startswith(f"<Result {log}: REFUSED, no number, not in the log: sequence length")


def test_several_runs_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "two.log"
    path.write_text(DUMP.format(2048) + published_log() + DUMP.format(4096) + published_log().replace("5.3551", "5.4"))
    with pytest.raises(nlp_bench.NlpBenchError, match="holds 2 runs, read_log gives one; read_logs gives them all"):
        nlp_bench.read_log(path)
    first, second = nlp_bench.read_logs(path)
    assert (first.sequence_length, second.sequence_length) == (2048, 4096)
    assert [{record.attempt for record in log.records} for log in (first, second)] == [{1}, {2}]


def test_logs_that_threads_read_at_once_keep_their_own_numbers(tmp_path: Path) -> None:
    """As in a notebook's pool of threads: one log in five came back with the rate of another, VALID."""
    for number in range(16):
        same = {"batch": 96, "lr": 1e-4, "norm": 3.0, "skipped": 0, "nan": 0}
        times = enumerate((4000 + 250 * number + n % 7 for n in range(300)), start=1)
        text = "".join(line(n, 300, samples=96 * n, ms=ms, loss=11 - n / 100, **same) for n, ms in times)
        (tmp_path / f"{number}.log").write_text(text)
    paths = sorted(tmp_path.iterdir())

    def rate(path: Path) -> float | None:
        return nlp_bench.measure(nlp_bench.read_log(path, sequence_length=2048)).tokens_per_second.steady

    alone = [rate(path) for path in paths]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(rate, paths * 6)) == alone * 6


def test_a_run_folder(command: Call, tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    found = nlp_bench.measure(nlp_bench.read_log(tmp_path / "run"))
    assert found.outcome is nlp_bench.Outcome.VALID
    assert json.loads(json.dumps(found.to_dict())) == command("report", tmp_path / "run")
    with pytest.raises(nlp_bench.NlpBenchError, match="nonsense"):
        nlp_bench.read_log(tmp_path / "run", rules="nonsense")
    ruled = nlp_bench.measure(nlp_bench.read_log(tmp_path / "run", rules="jupiter-nlp")).to_dict()
    assert json.loads(json.dumps(ruled)) == command("report", tmp_path / "run", "--rules", "jupiter-nlp")


def test_compare_says_what_the_command_says(command: Call, tmp_path: Path) -> None:
    write_runs(tmp_path / "before", 65000.0, 65600.0, 64700.0)
    write_runs(tmp_path / "after", 60000.0, 60500.0, 59700.0, seed=10)
    before, after = nlp_bench.read_logs(tmp_path / "before"), nlp_bench.read_logs(tmp_path / "after")
    found = nlp_bench.compare(before, after, gate=3, equivalent=1, strict=True)
    asked = ("compare", tmp_path / "before", tmp_path / "after", "--gate", 3, "--equivalent", 1, "--strict")
    ours, theirs = json.loads(json.dumps(found.to_dict())), command(*asked)
    for side in ("a", "b"):
        assert ours.pop(side)["unreadable"] == theirs.pop(side)["unreadable"]  # the label is the word of the command
    assert ours == theirs
    (ratio,) = found.ratios
    assert (ratio.verdict, found.passes) == ("slower", False)
    assert ratio.value == ours["comparisons"][0]["ratio"]["value"] == pytest.approx(60 / 65, rel=0.01)
    assert "slower; FAIL; NOT EQUIVALENT" in repr(found)
    (one,) = nlp_bench.compare(before[0], after[0]).ratios
    (known,) = nlp_bench.compare(before[0], after[0], scatter=before[1:]).ratios
    assert (one.verdict, known.verdict) == ("not proven", "no difference found")


def test_plan_says_what_the_command_says(command: Call) -> None:
    found = nlp_bench.plan("13", "juwels-booster", 8, tp=2, recompute="any", top=3)
    asked = "plan --model 13 --system juwels-booster --nodes 8 --tp 2 --recompute any --top 3"
    assert json.loads(json.dumps(found.to_dict())) == command(*asked.split())
    best = found.configurations[0]
    assert (best.sizes.tp, best.fits, best.rank, len(found.configurations)) == (2, "yes", 1, 3)
    assert best.low_s < best.report_s < best.high_s


def test_a_table_that_was_edited_in_the_session_is_read_again(here: Path) -> None:
    shipped = (Path(__file__).parents[1] / "benchmark/accelerators.toml").read_text(encoding="utf-8")
    (here / "benchmark").mkdir()
    times = []
    for text in (shipped, shipped.replace("gb_per_s = 1555", "gb_per_s = 155")):
        Path("benchmark/accelerators.toml").write_text(text, encoding="utf-8")
        found = nlp_bench.plan("13", "juwels-booster", 8, tp=2, pp=4, cp=1, micro_batch_size=1, top=1)
        times.append(found.configurations[0].report_s)
    forget()
    assert times[1] > 1.5 * times[0]


def test_a_whole_number_may_be_written_as_python_writes_millions(log: Path) -> None:
    found = nlp_bench.measure(nlp_bench.read_log(log, sequence_length=2048.0), tokens=20e6)
    assert (found.tokens, type(found.tokens)) == (20_000_000, int)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda log: nlp_bench.read_log(log, sequence_length=2.5), "sequence_length: 2.5"),
        (lambda log: nlp_bench.read_log(log, num_gpus=True), "num_gpus: True"),
        (lambda log: nlp_bench.read_log(log, precision="half"), "precision: 'half'"),
        (lambda log: nlp_bench.read_log(log, gpu="abacus"), "'abacus'"),
        (lambda log: nlp_bench.read_log(f"{log}s"), "job.logs does not exist"),
        (lambda _: nlp_bench.read_log("~/job.out"), "does not exist .nothing has replaced its ~: write the folder out"),
        (lambda _: nlp_bench.read_log(3), "path: 3"),
        (lambda _: nlp_bench.read_logs(), "paths: none is given"),
        (nlp_bench.measure, "log: "),
        (lambda log: nlp_bench.measure(nlp_bench.read_log(log), tokens=0), "tokens: 0"),
        (lambda log: nlp_bench.measure(nlp_bench.read_log(log), limit=-1), "limit: -1"),
        (lambda log: nlp_bench.compare(nlp_bench.read_log(log), []), r"b: \[\]"),
        (lambda log: nlp_bench.compare(nlp_bench.read_log(log), nlp_bench.read_log(log), gate=0), "gate: 0"),
        (lambda log: nlp_bench.compare(nlp_bench.read_log(log), nlp_bench.read_log(log), strict=True), "strict: "),
        (lambda _: nlp_bench.plan("13", "juwels-booster", 8, tpp=2), "unknown argument 'tpp'; did you mean tp"),
        (lambda _: nlp_bench.plan("13", "juwels-booster", 8, recompute="some"), "recompute: 'some'"),
        (lambda _: nlp_bench.plan("13", "juwels-booster", 8, tp=7), "no legal configuration"),
        (lambda _: nlp_bench.plan("14", "juwels-booster"), "model: '14'"),
        (lambda log: nlp_bench.compare(*[nlp_bench.read_log(log)] * 2, same_workload="no"), "same_workload: 'no' is neither True"),
        (lambda _: nlp_bench.plan(13, "juwels-booster"), "model: 13 is neither a text nor a path; give it in quotes"),
        (lambda log: nlp_bench.read_log([log]), "path: .* is neither a text nor a path"),
        (lambda log: nlp_bench.read_logs(log.parent.glob("*.none")), "paths: none is given"),
        (lambda log: nlp_bench.read_logs([log, 3]), "path: 3 is neither a text nor a path"),
        (lambda _: nlp_bench.read_log(io.StringIO()), "give the name of the file"),
        (lambda log: nlp_bench.read_log(log, pattern=5), "pattern: 5 is no text"),
        (lambda _: nlp_bench.read_logs(""), "path is empty"),
        (lambda log: nlp_bench.read_log(log, gpu=3), "gpu: 3 is no name"),
        (lambda log: nlp_bench.measure(nlp_bench.read_log(log), limit=True), "limit: True"),
        (lambda log: nlp_bench.to_frame(nlp_bench.read_log(log)), "results: one of them is no Result"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_named(log: Path, wrong: Call, said: str) -> None:
    with pytest.raises(nlp_bench.NlpBenchError, match=said):
        wrong(log)


def test_a_list_of_paths_is_as_good_as_each(tmp_path: Path) -> None:
    """`read_logs([...])` was refused."""
    write_runs(tmp_path, 65000.0, 65600.0, 64700.0)
    paths = sorted(tmp_path.iterdir())
    wanted = [log.source for log in nlp_bench.read_logs(*paths)]
    for given in ([paths], [tmp_path.glob("*")], [paths[:1], *paths[1:]]):
        assert sorted(log.source for log in nlp_bench.read_logs(*given)) == wanted


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda log: nlp_bench.read_log(log).reasons[0], "(give sequence_length=N)"),
        (lambda log: repr(nlp_bench.measure(nlp_bench.read_log(log))), "(give sequence_length=N)"),
        (lambda log: nlp_bench.read_log(log, pattern="no (?P<elapsed_ms>x)").reasons[0], "no line matches pattern"),
        (lambda log: nlp_bench.read_log(log, pattern="step"), r"an example: pattern=r'step (?P<iteration>\d+)"),
        (lambda log: nlp_bench.compare(*[nlp_bench.read_log(log, sequence_length=2048)] * 2), "say so with same_workload=True"),
        (lambda _: nlp_bench.plan("13", "juwels-booster", 10**9), "nodes: 1000000000 nodes"),
    ],
)  # fmt: skip
def test_what_is_said_names_arguments_and_no_options(log: Path, call: Call, said: str) -> None:
    try:
        text = call(log)
    except nlp_bench.NlpBenchError as error:
        text = str(error)
    assert said in text
    assert not re.findall(r"(?<![\w-])--[a-z]", text)


def test_a_command_in_a_message_keeps_its_options(log: Path) -> None:
    log.write_bytes(b"SQLite format 3\0" + bytes(100))
    assert "nlp-bench history list --file FILE" in nlp_bench.read_log(log).reasons[0]


def test_a_notebook_shows_a_table(tmp_path: Path, log: Path) -> None:
    odd = tmp_path / "<b>&.log"
    odd.write_text(log.read_text())
    read = nlp_bench.read_logs([odd, log], sequence_length=2048)
    of_all, of_one = read._repr_html_(), nlp_bench.measure(read[1], tokens=40_000_000)._repr_html_()
    assert of_all.count("<tr><th>") == 2
    assert "&lt;b&gt;&amp;.log MEASURED</th>" in of_all
    assert "<td>36 400 tokens/s (34 100 to 36 900)</td>" in of_all
    assert of_all.count("hand this in: warm-up included") == 2
    assert "40M tokens in 1 100 s" in of_one
    refused = nlp_bench.measure(nlp_bench.read_log(log))._repr_html_()
    assert "REFUSED</th>" in refused
    assert "give --sequence-length" not in refused
    assert "tokens/s" not in refused


def test_a_plot_is_a_figure_of_matplotlib(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    found = nlp_bench.measure(nlp_bench.read_log(log, sequence_length=2048, num_gpus=384))
    for kind in ("throughput", "loss", "step-times"):
        drawn = found.plot(kind)
        assert isinstance(drawn, figures.Figure)
        assert drawn._repr_png_().startswith(b"\x89PNG")
    assert found.plot().axes[0].get_ylabel() == "tokens per second"
    with pytest.raises(nlp_bench.NlpBenchError, match="kind: 'loss2' is not one of throughput, loss, step-times"):
        found.plot("loss2")
    with pytest.raises(nlp_bench.NlpBenchError, match=r"plot: .* has nothing to draw: .*sequence_length=N"):
        nlp_bench.measure(nlp_bench.read_log(log)).plot()
    monkeypatch.setattr("nlp_bench.show.chart.is_missing", lambda module: module == "matplotlib")
    with pytest.raises(nlp_bench.NlpBenchError, match=r"plot: they need matplotlib.*pip install 'nlp-bench\[report\]'"):
        found.plot()


def test_frames(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    read = nlp_bench.read_log(log)
    frame = read.to_frame()
    assert {name: str(frame[name].dtype) for name in ("iteration", "lm_loss", "stamp_s", "num_nan", "in_window", "why_excluded")} == {
        "iteration": "int64", "lm_loss": "float64", "stamp_s": "float64", "num_nan": "Int64", "in_window": "bool", "why_excluded": "string",
    }  # fmt: skip
    short, named = nlp_bench.measure(read), nlp_bench.measure(nlp_bench.read_log(log, sequence_length=2048))
    assert len(short.to_frame()) == 1
    both = nlp_bench.to_frame([short, named])
    kinds = [str(both[name].dtype) for name in ("outcome", "sequence_length", "time_to_report_steady_s")]
    assert kinds == ["string", "Int64", "Float64"]
    assert round(both["time_to_report_steady_s"][1], 2) == 550.03
    empty = short.to_frame()[["mfu", "joules_per_token", "time_to_report_steady_s", "accelerator", "rules"]]
    assert [str(kind) for kind in empty.dtypes] == ["Float64"] * 3 + ["string"] * 2
    with pytest.raises(nlp_bench.NlpBenchError, match="tokens or limits differ"):
        nlp_bench.to_frame([named, nlp_bench.measure(read, tokens=7)])
    assert list(nlp_bench.plan("13", "juwels-booster", 8, tp=2, top=2).to_frame()["rank"]) == [1, 2]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(nlp_bench.NlpBenchError, match=r"pip install 'nlp-bench\[report\]'"):
        read.to_frame()


def shown(code: str, names: dict[str, Any]) -> str:
    """Return what a notebook shows below a cell: what is printed, and the value of the last line."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(tree, PAGE.name, "exec"), names)  # noqa: S102  # our own page
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), PAGE.name, "eval"), names)  # noqa: S307  # likewise
    return printed.getvalue() + (f"{value!r}\n" if value is not None else "")


@pytest.mark.usefixtures("here")
def test_the_page_shows_what_is_printed() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    names: dict[str, Any] = {}

    def cell(block: re.Match[str]) -> str:
        said = shown(block[1], names)
        return f"{block[1]}```\n" + (f"\n```text\n{said}```\n" if said else "")

    check_text(PAGE, CODE.sub(cell, PAGE.read_text(encoding="utf-8")))
