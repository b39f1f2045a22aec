"""The benchmark on this machine without a scheduler: the one command, a sweep, jube-autorun, the way without JUBE."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from support.jube import SMALL, Jube
from support.jube_versions import NEWEST, both_jubes
from support.ours import seal_run, write_our_run

from nlp_bench.cli.main import main

pytestmark = [pytest.mark.jube, pytest.mark.torchrun]


def run(command: list[str], jube: Jube, bound_s: float = 240) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=jube.folder, env=jube.environment, capture_output=True, text=True, timeout=bound_s, check=False
    )


@pytest.mark.usefixtures("newer_jube")
def test_one_command_whose_run_ends_when_it_is_enough(jube: Jube) -> None:
    """With the JUBE on PATH it is stopped below, and rehearses in test_rehearse.py."""
    jube.set(iterations="3000", until="90%", **SMALL)
    nlp_bench = jube.checkout / "benchmark/env/nlp-bench"
    nlp_bench.chmod(0o644)  # as an unpacked zip archive, or a file system without modes, leaves it
    jube.environment["TMPDIR"] = str(jube.folder / "gone")  # of a job that has ended
    done = run(["bash", str(jube.checkout / "benchmark/run.sh"), "local"], jube)
    nlp_bench.chmod(0o755)
    assert done.returncode == 0, done.stdout + done.stderr
    table = jube.checkout / "benchmark/jube/nlp_benchmark_run/000000/result/result.dat"
    assert done.stdout.splitlines()[-1] == f"open       {table}"
    assert "hand this in" in done.stdout
    header, row = (line for line in table.read_text().splitlines() if "|" in line and "---" not in line)
    cells = dict(zip((c.strip() for c in header.split("|")), (c.strip() for c in row.split("|")), strict=True))
    assert cells["Outcome"] == "VALID"
    assert float(cells["time_to_report_in_seconds"]) == pytest.approx(20_000_000 / float(cells["Tokens/sec"]), rel=1e-3)
    assert 50 <= int(cells["Iterations"]) < 3000
    assert re.search(r"iteration \d+/3000, \d+ tokens/s", done.stderr), done.stderr
    written = {path.name for path in (jube.checkout / "reports/latest").iterdir()}
    assert {"report.csv", "report.md", "report.html", "report.json", "throughput.png", "throughput.svg"} <= written


def test_sweep_gives_one_row_per_point(jube: Jube) -> None:
    jube.set(micro_batch_size="1,2", iterations="4", gas="1", nonce="0042e3", **SMALL)
    jube.run("local")
    assert jube.status() == "FINISHED", jube.log()
    rows = jube.table()
    assert sorted(row["Batch_Size"] for row in rows) == ["1", "2"]
    assert {row["Outcome"] for row in rows} == {"VALID"}
    assert "micro_batch_size" in jube("jube", "info", str(jube.runs), "--id", "last", "--step", "train")
    nlp_bench, evidence = str(jube.checkout / "benchmark/env/nlp-bench"), str(jube.folder / "evidence.tar.gz")
    jube(nlp_bench, "bundle", str(jube.runs), "--output", evidence)
    jube(nlp_bench, "verify", evidence, "--nonce", "0042e3")
    logs = [path.read_text() for path in jube.runs.rglob("*_train/work/job.out")]
    assert [log.count("; nonce 0042e3\n") for log in logs] == [1, 1]
    # A person who wants one anew: the table kept the number of the training before.
    shutil.rmtree(next(jube.runs.glob("*/*_train")))
    jube("jube", "continue", str(jube.runs), "--id", "last", "--hide-animation")
    results = [json.loads(path.read_text())["run"] for path in jube.runs.glob("*/*_train/work/result.json")]
    anew = sorted(f"{result['tokens_per_second']['reference']:.2f}" for result in results)
    assert sorted(row["Tokens/sec"] for row in jube.table()) == anew


@both_jubes
def test_a_point_that_check_refuses_is_a_row(jube: Jube, capsys: pytest.CaptureFixture[str]) -> None:
    jube.set(tp_size="3")
    jube.run("local")
    assert jube.status() == "ERROR", jube.log()
    top = jube.runs / "000000"
    why = "JUBE's step failed, and what follows it was not run: parallel: nodes*gpus_per_node = 1 is not a multiple of tp*pp = 3"
    assert main(["report", str(top)]) == 2  # nothing else to report
    assert why in capsys.readouterr().err
    assert main(["watch", "--once", str(top)]) == 1
    assert f"000000_check: {why}" in capsys.readouterr().err
    seal_run(write_our_run(top / "000007_train/work"))  # another point, which ran
    (top / "000007_train/error").touch()  # it has a row that says how it ended
    assert main(["report", "--format", "json", str(top)]) == 1
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [(row["outcome"], why in " ".join(row["reasons"])) for row in rows] == [("VALID", False), ("REFUSED", True)]
    assert main(["bundle", str(top), "--output", str(jube.folder / "evidence.tar.gz")]) == 0
    assert why in " ".join(capsys.readouterr())


@pytest.mark.usefixtures("jube_version")
@pytest.mark.parametrize(
    ("command", "jube_version"), [("jube run", "on PATH"), ("jube-autorun", NEWEST)], indirect=["jube_version"]
)
def test_the_commands_of_the_readme(jube: Jube, tmp_path: Path, command: str) -> None:
    """From the root of a checkout in a path with a space, as they stand there, with other tags."""
    text = (jube.checkout / "README.md").read_text(encoding="utf-8")
    three = re.search(r"^(jube run .*\n)(jube continue .*\n)(jube result .*\n)", text, re.MULTILINE)
    one = re.search(r"`(jube-autorun [^`]+)`", text)
    commands = three.groups() if three and command == "jube run" else one.groups() if one else ()
    jube.folder = tmp_path / "a path with a space"
    jube.folder.mkdir()
    jube.set(iterations="4", **SMALL)
    for words in commands:
        printed = jube("env", "-C", str(jube.checkout), "bash", "-c", re.sub(r"--tag \w+", "--tag tiny local", words))
    assert "VALID" in printed
    assert "time_to_report_in_seconds" in printed


def test_the_jube_autorun_on_path_knows_the_words_of_the_readme(checkout: Path) -> None:
    (words,) = re.findall(r"`jube-autorun ([^`]+)`", (checkout / "README.md").read_text(encoding="utf-8"))
    known = subprocess.run(["jube-autorun", "-h"], capture_output=True, text=True, check=False).stdout
    options = re.findall(r"(?<!\S)--?[\w-]+", words)
    assert options
    assert [option for option in options if not re.search(rf"(?<![\w-]){option}(?![\w-])", known)] == []


def test_by_hand_without_jube(jube: Jube) -> None:
    nlp_bench = str(jube.checkout / "benchmark/env/nlp-bench")
    first = run([nlp_bench, "submit", "--launcher", "local", "--iterations", "4"], jube)
    assert first.stdout.strip() == "VALID", first.stderr
    mock = ["--data-path", "mock", "--nhidden", "64", "--sequence-length", "64"]
    second = run([nlp_bench, "submit", "--launcher", "local", "--iterations", "4", *mock], jube)
    assert second.returncode == 0
    folders = sorted((jube.checkout / "reports/runs").iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert run([nlp_bench, "measure", str(folder)], jube).returncode == 0
        result = json.loads((folder / "result.json").read_text())
        assert result["run"]["tokens_per_second"]["reference"] > 0
        assert {path.stat().st_mode for path in folder.glob("ranks/*")} == {(folder / "ranks").stat().st_mode}
    assert "CPU" in (folders[0] / "job.out").read_text()
    report = run([nlp_bench, "report", str(jube.checkout / "reports/runs"), "--format", "json"], jube)
    assert [entry["outcome"] for entry in json.loads(report.stdout)["runs"]] == ["VALID", "VALID"]


def test_time_limit_of_a_local_run(jube: Jube) -> None:
    nlp_bench = str(jube.checkout / "benchmark/env/nlp-bench")
    folder = jube.folder / "late"
    done = run(
        [
            nlp_bench,
            "submit",
            "--launcher",
            "local",
            "--iterations",
            "4000",
            "--timelimit",
            "00:00:03",
            "--run-dir",
            str(folder),
        ],
        jube,
    )
    assert done.stdout.startswith("TIMEOUT"), done.stdout + done.stderr
    assert run([nlp_bench, "measure", str(folder)], jube).returncode == 0
    assert "tokens_per_second" not in (folder / "metrics.txt").read_text()


def test_a_loss_that_is_not_finite_has_no_number(jube: Jube) -> None:
    text = (jube.checkout / "benchmark/models/tiny.toml").read_text(encoding="utf-8")
    model = jube.folder / "diverging.toml"
    model.write_text(text.replace("\nlr = 1e-3", "\nlr = 1e30").replace("min_lr = 1e-4", "min_lr = 1e29"))
    nlp_bench, folder = str(jube.checkout / "benchmark/env/nlp-bench"), jube.folder / "diverged"
    words = ["--nhidden", "64", "--sequence-length", "64", "--run-dir", str(folder)]
    done = run([nlp_bench, "submit", "--launcher", "local", "--model", str(model), *words], jube)
    assert done.stdout.startswith("INVALID: the loss is not finite at iteration"), done.stdout + done.stderr
    assert run([nlp_bench, "measure", str(folder)], jube).returncode == 0
    assert "tokens_per_second" not in (folder / "metrics.txt").read_text()


def test_stopping_the_one_command_leaves_nothing_behind(jube: Jube) -> None:
    jube.set(iterations="4000")
    runs = jube.checkout / "benchmark/jube/nlp_benchmark_run"
    command = ["bash", str(jube.checkout / "benchmark/run.sh"), "local"]
    terminal, its_end = os.openpty()
    process = subprocess.Popen(command, env=jube.environment, stdout=its_end, stderr=its_end, start_new_session=True)
    jube.wait_for("log line", lambda: any("iteration " in p.read_text() for p in runs.rglob("job.out")), 120)
    for end in (its_end, terminal):  # as of an ssh that is lost
        os.close(end)
    process.send_signal(signal.SIGHUP)
    process.wait(timeout=60)
    assert process.returncode == 130
    outcome = next(runs.rglob("outcome.json"))
    assert json.loads(outcome.read_text())["outcome"] == "CANCELLED"
    jube.wait_for("end of all processes", lambda: not processes_with(str(jube.checkout)), 20)


def processes_with(text: str) -> list[str]:
    """Return the command lines of this machine's processes that contain `text`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_text(errors="replace").replace("\0", " "))
    return [line for line in found if text in line]


def test_a_gpu_run_never_falls_back_to_the_cpu(jube: Jube) -> None:
    text = (jube.checkout / "benchmark/systems/local.toml").read_text(encoding="utf-8")
    system = jube.folder / "gpus.toml"
    text = text.replace('accelerator = "auto"', 'accelerator = "cuda"').replace(
        'gpus_per_node = "auto"', "gpus_per_node = 1"
    )
    system.write_text(text)
    nlp_bench = str(jube.checkout / "benchmark/env/nlp-bench")
    done = run([nlp_bench, "submit", "--system", str(system), "--run-dir", str(jube.folder / "no gpu")], jube)
    assert done.stdout.startswith("FAILED")
    assert "accelerator: the run asks for cuda" in done.stdout


@pytest.mark.usefixtures("jube_version")
@pytest.mark.parametrize(
    ("tags", "message", "jube_version"),
    [
        (["1755"], "tag: '1755' is unknown; did you mean 175?", NEWEST),
        (["13", "175"], "two tags for one model", "on PATH"),
        (["175", "local"], "96 nodes, but the local launcher has this machine only", "on PATH"),
        (["tiny", "slurm"], "no Slurm answers here", "on PATH"),
    ],
    indirect=["jube_version"],
)
def test_bad_tags_are_refused_before_anything_else(jube: Jube, tags: list[str], message: str) -> None:
    jube.environment["SLURM_CONF"] = "nowhere/slurm.conf"
    jube.run(*tags)
    assert jube.status() == "ERROR"
    said = next(jube.runs.rglob("*_check/work/stderr")).read_text()
    assert message in said
    assert {path.name.partition("_")[2] for path in jube.runs.glob("*/0*_*")} == {"check"}


@both_jubes
@pytest.mark.parametrize(
    ("file", "right", "wrong", "message"),
    [
        (
            *("benchmark/jube/nlp_benchmark.yaml", '--queue "$queue"', '--queue "$queu"'),
            "--queue: the value is empty: a misspelt $name in JUBE's file",
        ),
        (
            *("jube/parameters.yaml", 'name: timelimit, _: "default"', "name: timelimit, _: 1:00:00"),
            "--timelimit: '3600' is not a time limit",
        ),
    ],
)
def test_what_jube_reads_otherwise_than_meant_is_refused(
    jube: Jube, file: str, right: str, wrong: str, message: str
) -> None:
    """JUBE itself puts an empty word for a misspelt name, silently, and seconds for a time without quotes."""
    jube.set()
    path = jube.checkout / file
    text = path.read_text(encoding="utf-8")
    assert right in text
    path.write_text(text.replace(right, wrong), encoding="utf-8")
    jube.run("tiny", "local")
    assert jube.status() == "ERROR"
    said = next(jube.runs.rglob("*_check/work/stderr")).read_text()
    assert message in said
    assert not list(jube.runs.rglob("run.json"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["submit", "--model", "17"], "'17' is not a file of benchmark/models"),
        (["submit", "--system", "nowhere"], "'nowhere' is not a file of benchmark/systems"),
        (
            ["submit", "--tp", "3", "--launcher", "local", "--gpus-per-node", "4"],
            "nodes*gpus_per_node = 4 is not a multiple of tp*pp = 3",
        ),
        (["submit", "--data-path", "nowhere/text", "--launcher", "local"], "text.bin"),
        (["submit", "--launcher", "local", "--run-dir", "/proc/nowhere"], "cannot create /proc/nowhere"),
        (["submit", "--nodez", "3"], "--nodez"),
        (["submitt"], "did you mean submit?"),
    ],
)
def test_bad_words_are_refused(jube: Jube, words: list[str], message: str) -> None:
    done = run([str(jube.checkout / "benchmark/env/nlp-bench"), *words], jube, bound_s=20)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["a`touch pwned`", "$(touch pwned)", 'a"b', "a,b", "back\\slash", "a\nb"])
def test_a_checkout_that_jube_would_take_for_a_command(checkout: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(checkout)
    script = str(tmp_path / name / "benchmark/run.sh")
    done = subprocess.run(["bash", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "move the checkout" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("broken", [False, True])
def test_no_jube(checkout: Path, tmp_path: Path, *, broken: bool) -> None:
    """Without JUBE (or with one that does not start), root and its archive, the one command says what to do."""
    script = f'source "{checkout}/benchmark/env/jube.bash"; id() {{ echo 1000; }}; nlp_bench_find_jube "{checkout}"'
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname", "cat"):
        (tools / name).symlink_to(str(shutil.which(name)))
    if broken:
        (tools / "jube").write_text("#!/bin/bash\necho \"No module named 'distutils'\" >&2\nexit 1\n")
        (tools / "jube").chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": str(tools), "NLP_BENCH_VENV": str(tmp_path), "NLP_BENCH_JUBE_ARCHIVE": "nowhere.tar.gz"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "sudo apt-get install jube" in done.stderr
    assert ("needs Python 3.11 or older" in done.stderr) is broken
    assert "the source archive of the tag REL-2.7.1) and set\n             NLP_BENCH_JUBE_ARCHIVE" in done.stderr
