"""One spelling for each thing in all subcommands, and Megatron-LM's and Slurm's names beside it."""

import re

import pytest
from support.command import Capture, Cli

from nlp_bench.cli.main import main
from nlp_bench.cli.parser import HINTS, parser_of
from nlp_bench.cli.registry import SUBCOMMANDS
from nlp_bench.config.request import SBATCH, Request, from_options
from nlp_bench.launch.scheduler import slurm_options
from nlp_bench.launch.scheduler.slurm_options import check_words

NAMES = [name for one, entry in SUBCOMMANDS.items() for name in (one, *(f"{one} {verb}" for verb in entry.verbs))]
RUN = ("check", "submit", "rehearse")


@pytest.mark.parametrize("name", NAMES)
def test_every_subcommand_has_short_usage_and_an_example(name: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([*name.split(), "--help"])
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: nlp-bench {name} [OPTION ...]")
    assert len(shown.partition("\n\n")[0].splitlines()) <= 2
    assert f"example:\n  nlp-bench {name.split(maxsplit=1)[0]}" in shown or name == "launch"
    for action in parser_of(name).arguments:
        assert action.help, action.dest


def test_the_overview_is_grouped_by_task_with_what_programs_call_last(cli: Cli) -> None:
    """A flat list of 19 commands had those of the job script between daily ones."""
    text = cli("--help").out
    assert len(text.splitlines()) <= 35
    assert max(map(len, text.splitlines())) <= 80
    tasks = re.findall(r"^(\w.*)\n((?:  .*\n)+)", text, re.MULTILINE)
    assert [task for task, _ in tasks[:-1]] == ["measure", "plan", "run", "judge", "node"]
    words = [line.split()[0] for _, lines in tasks for line in lines.splitlines()]
    assert sorted(words) == sorted(SUBCOMMANDS)
    assert words[-2:] == ["launch", "completion"]


def test_one_thing_has_the_same_names_everywhere() -> None:
    """Two options of one spelling have all spellings in common, in every subcommand."""
    found: dict[str, dict[tuple[str, ...], str]] = {}
    for name in NAMES:
        for action in parser_of(name)._actions:
            for spelling in action.option_strings:
                found.setdefault(spelling, {})[tuple(action.option_strings)] = name
    allowed = {"--limit", "--time"}  # of a job (submit), of the report (report), and both words for the latter (plan)
    assert {one: sets for one, sets in found.items() if len(sets) > 1 and one not in allowed} == {}
    assert set(found["--limit"]) == {("--limit",), ("--time", "--limit")}
    assert set(found["--time"]) == {("--timelimit", "--time"), ("--time", "--limit")}


@pytest.mark.parametrize("name", RUN)
def test_names_of_megatron_lm_and_slurm_mean_the_same(name: str) -> None:
    words = """--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --context-parallel-size 2 --seq-length 4096
    --virtual-pipeline-model-parallel-size 3 --train-iters 1k --num-layers 12 --hidden-size 768 --num-attention-heads 8
    --recompute-granularity full --micro-batch-size 1 --global-batch-size 1Ki --mock-data --partition batch --time 90min
    --qos high --reservation=maintenance --sbatch-arg --wckey=w --gres gpu:4 --mem 0"""
    ours = """--tp 4 --pp 2 --cp 2 --sequence-length 4Ki --vpp 3 --iterations 1_000 --nlayers 12 --nhidden 768 --nheads 8
    --recompute full --micro-batch-size 1 --global-batch-size 1024 --data-path mock --queue batch --timelimit 01:30:00
    --sbatch-arg=--qos=high --sbatch-arg=--reservation=maintenance --sbatch-arg=--wckey=w --gres gpu:4 --mem 0"""
    request = from_options(parser_of(name).read(words.split()))
    assert request == from_options(parser_of(name).read(ours.split()))
    assert request == Request(
        tensor=4, pipeline=2, context=2, sequence_length=4096, num_virtual_stages_per_pipeline_rank=3, iterations=1000,
        num_layers=12, hidden_size=768, num_attention_heads=8, recompute="full", micro_batch_size=1, global_batch_size=1024,
        data_path="mock", queue="batch", timelimit="01:30:00", gres="gpu:4", mem="0",
        sbatch_args=("--qos=high", "--reservation=maintenance", "--wckey=w"),
    )  # fmt: skip


def test_what_is_handed_on_to_sbatch_may_be_handed_on() -> None:
    check_words("sbatch_args", [f"{one}=x" for one in SBATCH], slurm_options.SBATCH)


def test_plan_takes_the_names_of_submit() -> None:
    words = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --seq-length 2Ki --first-layers 3 --limit 10min"
    options = parser_of("plan").read([*words.split(), "--recompute-granularity", "any", "--overlap-grad-reduce"])
    assert (options.tensor, options.pipeline, options.sequence_length, options.time) == (4, 2, 2048, 600.0)
    assert (options.decoder_first_pipeline_num_layers, options.recompute) == (3, "any")
    assert options.overlap_grad_reduce


@pytest.mark.parametrize("spelling", HINTS)
def test_a_name_of_another_meaning_is_said_what_to_write(spelling: str, cli: Cli) -> None:
    for subcommand in ("submit", "plan"):
        if spelling not in parser_of(subcommand).spellings:
            assert HINTS[spelling] in cli(subcommand, spelling, "4", code=2).err
    named = {word.rstrip(";,") for word in HINTS[spelling].split() if word.startswith("--")}
    assert named <= {*parser_of("submit").spellings, *parser_of("plan").spellings}
