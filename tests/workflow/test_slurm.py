"""The benchmark through the real JUBE on a real Slurm: a good run, a cancelled one, a failing rank, large ones."""

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.jube import SMALL, Jube

from nlp_bench.evidence.archive import EXTRACT_FILTER

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slurm, pytest.mark.jube, pytest.mark.torchrun]

CONTRACT = [
    "system", "version", "queue", "JobID", "Job_Time", "Model_Size (Billion Param)", "Nodes", "Batch_Size",
    "Pipeline_Parallel", "Tensor_Parallel", "Iterations", "Avg_TFLOPs/GPU", "Tokens/sec", "time_to_report_in_seconds",
]  # fmt: skip
NUMBERS = [
    "Tokens/sec",
    "time_to_report_in_seconds",
    "Avg_TFLOPs/GPU",
    "Steady_Tokens/sec",
    "Steady_time_in_seconds",
    "CI95_low",
    "CI95_high",
]


def old_patterns(log: str) -> float:
    """The reference tokens/s by the old benchmark's own patterns and formula, batch and sequence from the table."""
    elapsed = [float(x) for x in re.findall(r"elapsed time per iteration \(s\):\s+([0-9.]+)", log)]
    return 1.0 / (sum(elapsed) / len(elapsed))


@pytest.mark.usefixtures("newer_jube")
def test_two_nodes_with_two_ranks_each(slurm_jube: Jube) -> None:
    """The row, the files of the run, and a bundle of it."""
    slurm_jube.set(iterations="8", **SMALL)
    slurm_jube.run("tiny", "slurm")
    slurm_jube.continue_until_finished(bound_s=200)
    (row,) = slurm_jube.table()
    assert list(row)[: len(CONTRACT)] == CONTRACT
    assert (row["Outcome"], row["Nodes"], row["Tensor_Parallel"], row["Pipeline_Parallel"]) == ("VALID", "2", "2", "2")
    assert (row["system"], row["queue"], row["Iterations"], row["Accelerator"]) == (
        "slurm-sandbox",
        "booster",
        "8",
        "cpu",
    )
    run_dir = slurm_jube.run_dir()
    log = (run_dir / "job.out").read_text()
    assert row["Job_Time"] == "00:10:00"  # the limit
    assert "00:00:00" < row["Job_Elapsed"] < "00:10:00"
    tokens_per_second = old_patterns(log) * int(row["Batch_Size"]) * 64
    assert f"{tokens_per_second:.2f}" == row["Tokens/sec"]
    assert f"{20_000_000 / tokens_per_second:.2f}" == row["time_to_report_in_seconds"]
    assert re.findall(r"Submitted batch job (\d+)", log) == [row["JobID"]]
    assert max(int(n) for n in re.findall(r"iteration\s+(\d+)/\s*\d+", log)) == 8
    assert len(re.findall(r"TFLOPs:\s+[0-9.]+", log)) == 4
    made_with = {
        "run.json",
        "submit.job",
        "submit.json",
        "command.txt",
        "environment.json",
        "job.out",
        "job.err",
        "outcome.json",
        "result.json",
    }
    assert made_with <= {path.name for path in run_dir.iterdir()}
    assert json.loads((run_dir / "result.json").read_text())["schema"] == "nlp-bench/result/1"
    what_its_bundle_holds(slurm_jube, run_dir)


def verified(jube: Jube, bundle: Path) -> "subprocess.CompletedProcess[str]":
    command = [str(jube.checkout / "benchmark/env/nlp-bench"), "verify", str(bundle)]
    return subprocess.run(command, env=jube.environment, capture_output=True, text=True, timeout=60, check=False)


def what_its_bundle_holds(slurm_jube: Jube, run_dir: Path) -> None:
    """Verify a bundle of the run, then one with a digit of its log changed: it is caught with the line."""
    nlp_bench, archive = str(slurm_jube.checkout / "benchmark/env/nlp-bench"), slurm_jube.folder / "evidence.tar.gz"
    slurm_jube(nlp_bench, "bundle", str(run_dir), "--output", str(archive))
    good = verified(slurm_jube, archive)
    assert good.returncode == 0, good.stdout + good.stderr
    assert "VERIFIED" in good.stdout
    assert re.search(r"runs/001 .*: VALID; steady \d+\.\d\d tokens/s", good.stdout)

    shutil.unpack_archive(archive, slurm_jube.folder, **EXTRACT_FILTER)
    log = slurm_jube.folder / "evidence/runs/001/job.out"
    text = log.read_text()
    found = list(re.finditer(r"elapsed time per iteration \(s\): (\d)", text))[3]
    line = text.count("\n", 0, found.start()) + 1
    digit = (int(found[1]) + 1) % 10
    log.write_text(f"{text[: found.start(1)]}{digit}{text[found.end(1) :]}")
    bad = verified(slurm_jube, slurm_jube.folder / "evidence")
    assert bad.returncode == 1
    assert "DIFFERS" in bad.stdout
    assert "chain      is broken:" in bad.stdout
    assert f"runs/001/job.out line {line} was changed; it reads: " in bad.stdout
    assert "runs[0].tokens_per_second.reference: bundle says" in bad.stdout
    assert f"runs/001/job.out: line {line} contradicts itself: the time per iteration is {digit}." in bad.stdout


def test_cancelled_job_is_a_row_without_a_number(slurm_jube: Jube) -> None:
    ones = ("nodes", "gpus_per_node", "tp_size", "pp_size")
    slurm_jube.set(iterations="4000", **SMALL, **dict.fromkeys(ones, "1"))
    slurm_jube.run("tiny", "slurm")
    run_dir = slurm_jube.run_dir()
    log = run_dir / "job.out"
    slurm_jube.wait_for("log line", lambda: log.exists() and "iteration " in log.read_text(errors="replace"), 120)
    job_id = json.loads((run_dir / "submit.json").read_text())["job_id"]
    slurm_jube("scancel", job_id)
    slurm_jube.continue_until_finished(bound_s=60)
    (row,) = slurm_jube.table()
    assert row["Outcome"] == "CANCELLED"
    assert [row[name] for name in NUMBERS] == [""] * len(NUMBERS)


def test_failing_rank_is_a_row_without_a_number(slurm_jube: Jube, tmp_path: Path) -> None:
    """Rank 1 leaves with status 5 as soon as Python starts in it."""
    (tmp_path / "sitecustomize.py").write_text("import os\nif os.environ.get('RANK') == '1':\n    os._exit(5)\n")
    text = (ROOT / "benchmark/systems/slurm-sandbox.toml").read_text()
    system = tmp_path / "faulty.toml"
    system.write_text(text.replace("[environment]", f'[environment]\nPYTHONPATH = "{tmp_path}"'))
    slurm_jube.environment["NLP_BENCH_SYSTEM"] = str(system)
    slurm_jube.run("tiny", "slurm")
    slurm_jube.continue_until_finished(bound_s=90)
    (row,) = slurm_jube.table()
    assert row["Outcome"] == "FAILED"
    assert [row[name] for name in NUMBERS] == [""] * len(NUMBERS)
    outcome = json.loads((slurm_jube.run_dir() / "outcome.json").read_text())
    assert outcome["exit_status"] not in {0, None}
    assert "rank 1" in outcome["evidence"]
    assert "exitcode 5" in outcome["evidence"]


def placed(golden: str, jube: Jube, run_dir: Path) -> str:
    """Return the golden text with this test's own folders instead of its short ones."""
    python = Path(jube.environment["NLP_BENCH_VENV"]).resolve() / "bin/python"
    places = {
        "/nlp-bench/src": jube.checkout / "src",
        "/nlp-bench": jube.checkout,
        **{
            f"/nlp-bench/{data}": jube.checkout / data
            for data in ("build/data/corpus_text_document", "build/data/cache")
        },
        "/runs/1": run_dir,
        "/runs/1/ranks": run_dir / "ranks",
        "/venv/bin/python": python,
    }
    pattern = "|".join(rf"(?<![\w/]){place}(?![\w/])" for place in places)
    return re.sub(pattern, lambda found: shlex.quote(str(places[found.group()])), golden)


def test_large_job_waits_with_the_golden_text(slurm_jube: Jube) -> None:
    """The sandbox has too few nodes, so the job stays pending; cancelled there, it still becomes a row."""
    slurm_jube.run("175")
    run_dir = slurm_jube.run_dir()
    job_id = json.loads((run_dir / "submit.json").read_text())["job_id"]
    submitted = slurm_jube("scontrol", "write", "batch_script", job_id, "-")
    golden = (ROOT / "tests/launch/golden/175_slurm-sandbox.job").read_text()
    made_for = f"export NLP_BENCH_MADE_FOR={hashlib.sha256((run_dir / 'run.json').read_bytes()).hexdigest()}\n"
    assert submitted.count(made_for) == 1
    assert submitted.replace(made_for, "").strip() == placed(golden, slurm_jube, run_dir).strip()
    state = slurm_jube("scontrol", "show", "job", job_id, "--oneliner")
    assert "JobState=PENDING" in state
    assert slurm_jube.status() == "RUNNING"
    slurm_jube("scancel", job_id)
    slurm_jube.continue_until_finished(bound_s=60)  # the process that `submit` left behind notices it by itself
    (row,) = slurm_jube.table()
    assert (row["Outcome"], row["Tokens/sec"], row["Nodes"]) == ("CANCELLED", "", "96")


def test_the_one_command_that_is_interrupted_names_the_job_that_stays(slurm_jube: Jube) -> None:
    """It said to repeat the same command, which would have begun another run with another job."""
    command = ["bash", str(slurm_jube.checkout / "benchmark/run.sh"), "175"]
    process = subprocess.Popen(
        command, env=slurm_jube.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )  # fmt: skip
    assert process.stderr
    said = ""
    while "JUBE: RUNNING" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    run = slurm_jube.checkout / "benchmark/jube/nlp_benchmark_run/000000"
    job_id = json.loads((run / "000003_train/work/submit.json").read_text())["job_id"]
    assert process.returncode == 130
    assert f"job {job_id} of {run} stays in the queue, and run.sh again would begin another run" in said
    assert said.endswith(f"; to end it: scancel {job_id}\n")


def test_inside_an_allocation_that_a_person_holds(slurm_jube: Jube) -> None:
    run_dir = slurm_jube.folder / "held run"
    nlp_bench = str(slurm_jube.checkout / "benchmark/env/nlp-bench")
    other = slurm_jube(
        "sbatch", "--parsable", "--nodes=1", "--nodelist=node1", "--output=/dev/null", "--wrap=sleep 900"
    ).strip()
    while "RUNNING" not in slurm_jube("squeue", f"--jobs={other}", "--format=%T"):
        time.sleep(0.5)
    slurm_jube(
        "salloc", "--nodes=2", "--nodelist=node[1-2]", "--ntasks-per-node=1", "--gres=gpu:2",
        nlp_bench, "submit", "--model", "tiny", "--iterations", "4", "--nhidden", "64", "--sequence-length", "64", "--gpus-per-node", "1",
        "--tp", "2", "--pp", "1", "--run-dir", str(run_dir),
    )  # fmt: skip
    slurm_jube(nlp_bench, "measure", str(run_dir))
    assert json.loads((run_dir / "result.json").read_text())["run"]["outcome"] == "VALID"
    assert f"1 other job(s) ran on its nodes meanwhile ({other})" in slurm_jube(nlp_bench, "report", str(run_dir))
    words = f"not decided: {run_dir} ran on nodes shared with other jobs"
    assert words in slurm_jube(nlp_bench, "report", str(run_dir), "--sweep")
    slurm_jube("scancel", other)


def test_ambient_sbatch_variables_do_not_change_the_job(slurm_jube: Jube) -> None:
    slurm_jube.environment["SBATCH_PARTITION"] = "nowhere"
    run_dir = slurm_jube.folder / "ambient"
    nlp_bench = str(slurm_jube.checkout / "benchmark/env/nlp-bench")
    printed = slurm_jube(nlp_bench, "submit", "--model", "175", "--run-dir", str(run_dir), "--no-follow")
    job_id = re.search(r"Submitted batch job (\d+)", printed)
    assert job_id
    again = slurm_jube(nlp_bench, "submit", "--model", "175", "--run-dir", str(run_dir), "--no-follow")
    assert f"Submitted batch job {job_id.group(1)}" in again
    assert "nothing was submitted again" in again
    (run_dir / "submit.json").unlink()  # as if the first call had died before it could write
    taken_over = slurm_jube(nlp_bench, "submit", "--model", "175", "--run-dir", str(run_dir), "--no-follow")
    assert f"Submitted batch job {job_id.group(1)}\n" in taken_over
    slurm_jube("scancel", job_id.group(1))
    slurm_jube(nlp_bench, "sync", "--wait", "--poll", "0.5", str(run_dir), timeout_s=30)
    assert json.loads((run_dir / "outcome.json").read_text())["outcome"] == "CANCELLED"


def test_a_partition_that_is_too_small_is_refused(slurm_jube: Jube, tmp_path: Path) -> None:
    text = (ROOT / "benchmark/systems/slurm-sandbox.toml").read_text()
    system = tmp_path / "strict.toml"
    system.write_text(text.replace('oversize = "queue"', 'oversize = "refuse"'))
    nlp_bench = str(slurm_jube.checkout / "benchmark/env/nlp-bench")
    done = subprocess.run(
        [nlp_bench, "submit", "--model", "175", "--system", str(system), "--run-dir", str(tmp_path / "run")],
        env=slurm_jube.environment, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "96 nodes, but partition booster has at most 4" in done.stderr
    assert not (tmp_path / "run").exists()
