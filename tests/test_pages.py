"""Every figure in docs/ that a command prints is what it prints now. After a change: NLP_BENCH_WRITE_DOCS=1 pytest tests/test_pages.py."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import Cli
from support.ours import seal_run, write_our_run
from support.pages import CONSOLE, ROOT, check_block, check_page
from support.repeated import write_log, write_runs
from support.series import write_sweep
from support.winners_study import CASES

RATES = (65000.0, 65600.0, 64700.0, 65300.0, 65100.0)
NIGHTS = (
    65000, 65300, 64800, 65200, 64900, 65100, 60100, 65000, 65250, 64950, 65050, 63000, 62800, 63100, 62900, 63050,
)  # fmt: skip


def compare(folder: Path) -> None:
    write_runs(folder / "before", *RATES)
    write_runs(folder / "after", *(1.03 * rate for rate in RATES), seed=10, tensor_model_parallel_size=2)
    write_runs(folder / "slower", *(0.93 * rate for rate in RATES), seed=20)
    write_runs(folder / "wider", *RATES, seed=30, hidden_size=5120)
    for number, rate in enumerate(NIGHTS, start=1):
        night = write_log(folder / f"nights/night{number:02d}.log", rate, 100 + number)
        os.utime(night, (1772330400 + number * 86400,) * 2)
    (folder / "benchmark/models").mkdir(parents=True)  # the root of a checkout: here its reports/ go


def nightly(folder: Path) -> None:
    """Write four nights, a crash, and after a day off three that are 7 % slower."""
    for day, rate in {2: 65000, 3: 65300, 4: 64800, 5: 65200, 8: 60450, 9: 60700, 10: 60300}.items():
        write_log(folder / f"reports/runs/2026-03-{day:02}/job.out", rate, 100 + day)
    crash = folder / "reports/runs/2026-03-06/job.out"
    crash.parent.mkdir()
    crash.write_text("torch.cuda.OutOfMemoryError: CUDA out of memory\n")
    for log in sorted(folder.glob("reports/runs/*/job.out")):
        os.utime(log, (1772244000 + int(log.parent.name[-2:]) * 86400,) * 2)
    (folder / "benchmark/models").mkdir(parents=True)  # the root of a checkout: here its reports/ go


def scaling(folder: Path) -> None:
    (folder / "reports").symlink_to(ROOT / "reports")
    write_sweep(folder / "runs")


def first_run(folder: Path) -> None:
    """Make a checkout that is only asked what it would do."""
    for name in ("benchmark", "jube"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*_run*"))


def evidence(folder: Path) -> None:
    """Write the run of docs/evidence.md, and the key of its signer."""
    seal_run(write_our_run(folder / "run"))
    (folder / ".ssh").mkdir()
    key = folder / ".ssh/id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True)
    (folder / "allowed_signers").write_text(f"me@example.org {key.with_suffix('.pub').read_text()}")


def nothing(_: Path) -> None:
    """Everything that the page needs stands in it."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "num_commands", "inputs"),
    [
        ("bids.md", 1, nothing),
        ("compare.md", 8, compare),
        pytest.param(
            "evidence.md", 6, evidence, marks=pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen")
        ),
        ("first-run.md", 5, first_run),
        ("logs.md", 4, nothing),
        ("nightly.md", 6, nightly),
        ("number.md", 1, nothing),
        ("planning.md", 8, nothing),
        pytest.param("rehearse.md", 1, nothing, marks=pytest.mark.torchrun),
        ("rules.md", 2, nothing),
        ("scaling.md", 3, scaling),
    ],
)
def test_the_page_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, num_commands: int, inputs: Callable[[Path], None]
) -> None:
    monkeypatch.delenv("NLP_BENCH_VENV", raising=False)
    folder = tmp_path / "x"
    folder.mkdir()
    inputs(folder)
    # A checkout of their own: where compare.md keeps its history, where first-run.md describes a machine.
    root = folder if inputs in {compare, first_run, nightly} else ROOT
    check_page(ROOT / "docs" / name, folder, num_commands, HOME=str(folder), NLP_BENCH_ROOT=str(root))


def test_the_warning_of_a_run_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setenv("NLP_BENCH_VENV", str(tmp_path))  # one is there
    words = "submit --model 13 --system juwels-booster --tp 1 --pp 1 --print"
    check_block(ROOT / "docs/bids.md", "warning", cli(*words.split()).err)


def test_every_case_of_the_study_is_in_the_table() -> None:
    text = (ROOT / "docs/scaling.md").read_text(encoding="utf-8")
    assert all(f"| {words} | {configurations} |" in text for words, configurations, *_ in CASES)


def test_what_is_not_run_says_why() -> None:
    """A block of commands is run by a test, or stands under a comment with the reason."""
    elsewhere = {"install.md"}  # tests/install: in an environment of its own
    tested = {*elsewhere, "bids.md", "compare.md", "evidence.md", "first-run.md", "logs.md", "nightly.md", "number.md", "planning.md", "rehearse.md", "rules.md", "scaling.md"}  # fmt: skip
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page.name not in tested:
            assert not CONSOLE.findall(page.read_text(encoding="utf-8")), page.name
        for block in re.findall(r"^```\n\$ nlp-bench", page.read_text(encoding="utf-8"), re.MULTILINE):
            raise AssertionError(f"{page.name}: a block of commands is a ```console block: {block}")
