"""What submit says before it submits: a warning where the run does not fit, nothing where it does, and never a refusal."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Cli

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run
from nlp_bench.launch.prediction import warnings_of


def run_of(**choices: object) -> Run:
    given = {"model": "13", "system": "juwels-booster"} | choices
    return resolve(Request(**given), ask_scheduler=False)  # type: ignore[arg-type]


def test_one_that_fits_is_recorded_and_not_talked_about(tmp_path: Path) -> None:
    assert warnings_of(run_of(), tmp_path) == []
    record = json.loads((tmp_path / "forecast.json").read_text())
    assert record["fits"] == "yes"
    assert record["report_s"] > 0


@pytest.mark.parametrize(("timelimit", "iterations"), [("00:30:00", 50), ("01:00:00", 200), ("00:04:00", 50)])
def test_one_that_its_time_limit_would_end_is_warned_of(tmp_path: Path, timelimit: str, iterations: int) -> None:
    (line,) = warnings_of(run_of(timelimit=timelimit, iterations=iterations), tmp_path)
    record = json.loads((tmp_path / "forecast.json").read_text())
    assert record["iterations_s"] == pytest.approx(iterations * record["iteration_s"])
    assert f"{iterations} iterations are predicted to take {record['iterations_s'] / 60:.0f} min" in line
    fewer = re.search(r"--iterations \(at most (\d+)\)", line)
    assert (fewer is None) == (timelimit == "00:04:00")  # shorter than the start
    if fewer:
        assert warnings_of(run_of(timelimit=timelimit, iterations=int(fewer[1])), None) == []
    assert warnings_of(run_of(timelimit=f"1-{timelimit}", iterations=iterations), None) == []


def test_a_chain_has_the_time_of_all_its_jobs() -> None:
    long = run_of(timelimit="12:00:00", iterations=20000)
    assert warnings_of(long, None, jobs=50) == []
    (line,) = warnings_of(long, None, jobs=3)
    assert "the time limit of 12:00:00 of each of the 3 jobs would end the run" in line
    enough = int(re.findall(r"more jobs \(--chain (\d+)\)", line)[0])
    assert warnings_of(long, None, jobs=enough) == []
    assert warnings_of(long, None, jobs=enough - 1)
    assert "--chain" not in "".join(warnings_of(run_of(timelimit="00:04:00"), None, jobs=3))  # shorter than the start


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        ({"peak_bf16_tflops": 624.0}, ["peak_bf16_tflops: 624, but NVIDIA A100 SXM has 312"]),
        ({"memory_gib": 4000.0}, ["memory_gib: 4000, but NVIDIA A100 SXM has 80"]),
        ({"peak_bf16_tflops": 310.0}, []),
    ],
)
def test_a_gpu_that_is_not_its_data_sheet_is_doubted(gpu: dict[str, float], words: list[str]) -> None:
    run = run_of()
    assert run.system.gpu
    system = dataclasses.replace(run.system, gpu=dataclasses.replace(run.system.gpu, **gpu))
    said = warnings_of(dataclasses.replace(run, system=system), None)
    assert len(said) == len(words)
    assert all(word in line for word, line in zip(words, said, strict=True))


def test_one_that_does_not_fit_is_warned_of_with_the_proof(tmp_path: Path) -> None:
    (line,) = warnings_of(run_of(tensor=1, pipeline=1, timelimit="2-00:00:00"), tmp_path)
    assert line.startswith("warning: predicted memory ")
    assert "does not fit the GPU" in line
    assert f"nlp-bench rehearse --run {tmp_path}/run.json" in line
    assert json.loads((tmp_path / "forecast.json").read_text())["fits"] == "no"


@pytest.mark.parametrize(
    ("choices", "fits", "words"),
    [
        ({}, "no", "does not fit"),
        ({}, "tight", "may run out"),
        ({"tensor": 1, "pipeline": 1, "timelimit": "2-00:00:00"}, "yes", None),
    ],
)
def test_a_rehearsal_counts_more(tmp_path: Path, choices: dict[str, object], fits: str, words: str | None) -> None:
    run = run_of(**choices)
    ranks = [{"place": {"pipeline": stage}} for stage in range(run.parallel.pipeline)]
    record = {"schema": "nlp-bench/rehearsal/1", "fits": fits, "run": run.footprint(), "ranks": ranks}
    (tmp_path / "rehearsal.json").write_text(json.dumps(record))
    said = warnings_of(run, tmp_path)
    assert [words in line for line in said] == ([True] if words else [])


def test_another_family_is_told_how_to_know(tmp_path: Path) -> None:
    (line,) = warnings_of(run_of(model="t5_3b"), tmp_path)
    assert line.startswith("no prediction: model.family")
    assert "nlp-bench rehearse" in line
    assert not (tmp_path / "forecast.json").exists()


PARTIAL = "--model gpt_5b --system dgx-a100 --nodes 1 --tp 2 --micro-batch-size 24 --gas 1 --offline --recompute"


@pytest.mark.parametrize(
    ("recompute", "needed_gib", "fits"),
    [
        ("full --recompute-method block --recompute-num-layers 1", 103.3, "no"),
        ("full --recompute-method uniform --recompute-num-layers 4", 40.4, "yes"),
        ("selective --recompute-modules mlp", 69.6, "yes"),
    ],
)
def test_recompute_of_a_part_is_no_recompute_of_all(cli: Cli, recompute: str, needed_gib: float, fits: str) -> None:
    """The first had "33.4 of 80 GiB, fits: yes"; `needed_gib` is what a rehearsal has."""
    out = cli("check", *PARTIAL.split(), *recompute.split()).out
    predicted = re.search(r"predicted memory ([0-9.]+) of 80 GiB per GPU, fits: (\w+)", out)
    assert predicted, out
    assert float(predicted[1]) == pytest.approx(needed_gib, rel=0.03)
    assert predicted[2] == fits


def test_modules_of_another_trainer_are_not_predicted() -> None:
    run = run_of(recompute="selective", recompute_modules=("core_attn", "mlp"))
    run = dataclasses.replace(run, tuning=dataclasses.replace(run.tuning, trainer="megatron-lm"))
    (line,) = warnings_of(run, None)
    assert line.startswith("no prediction: tuning.recompute_modules: mlp is not predicted for Megatron-LM's trainer")


def test_a_cpu_run_says_nothing(tmp_path: Path) -> None:
    assert warnings_of(run_of(model="tiny", system="local", gpus_per_node=1), tmp_path) == []


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("check --model 13 --system juwels-booster --offline", "no prediction: Python's package numpy is not installed here"),
        ("submit --print --model 175 --system juwels-booster --mock-data", "#!/usr/bin/env bash\n#SBATCH"),
    ],
)  # fmt: skip
def test_a_python_without_numpy_is_no_obstacle(words: str, printed: str) -> None:
    """A login node's Python has neither numpy nor this package's environment; `check` and `submit --print` work there."""
    code = "import sys; sys.modules['numpy'] = None; from nlp_bench.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout


def test_check_and_print_tell(cli: Cli) -> None:
    words = ["--model", "13", "--system", "juwels-booster", "--tp", "1", "--pp", "1"]
    assert "plan    predicted steady time" in cli("check", *words, "--offline").out
    said = cli("submit", *words, "--print")
    assert said.out.startswith("#!/usr/bin/env bash")
    assert "warning: predicted memory" in said.err
    assert "submitted all the same" not in said.err
    notice = ["submit", "--model", "13", "--system", "juwels-booster", "--print", "--notice", "100"]
    assert "of two it sends one" in cli(*notice, "--sbatch-arg=--signal=TERM@60", code=2).err
    assert "#SBATCH --signal=B:USR1@100" in cli(*notice).out
