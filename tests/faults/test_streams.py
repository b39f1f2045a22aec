"""Where a command is typed does not change what it says: locales, terminals, streams that are closed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.ours import log_of_ours, write_our_run
from support.processes import NLP_BENCH, text_of, until

from faults import stand_in
from nlp_bench.config.run import Run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
POINTS = ROOT / "reports/reference/published_points/points.csv"
SCRIPT = """
import sys
from pathlib import Path
from nlp_bench.cli.main import main
from nlp_bench.cli.main import settle
settle()  # as main itself does for a real command line
folder, out = Path(sys.argv[1]), sys.argv[2]
a, b = sorted(str(path) for path in folder.iterdir())
commands = [
    ["check", "--model", "175", "--system", "juwels-booster", "--offline"],
    ["measure", a],
    *(["report", str(folder), "--format", form] for form in ("table", "json", "csv", "markdown")),  # html: report.html below
    ["report", str(folder), "--output", f"{out}/report"],
    *(["compare", a, b, "--format", form] for form in ("table", "json", "markdown")),
    ["plan", "predict", f"{out}/points.csv", "--output", f"{out}/predictions.csv"],
]
for words in commands:
    print(words[0], main(words), flush=True)
for path in sorted(Path(out).rglob("*")):
    if path.suffix in {".csv", ".md", ".html", ".json"}:
        print(path.name, flush=True)
        sys.stdout.buffer.write(path.read_bytes())
print(Path(a, "metrics.txt").read_text(encoding="utf-8").encode())
"""
SURROUNDINGS: dict[str, dict[str, str]] = {
    "POSIX without UTF-8, dumb, without colours": {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TERM": "dumb", "NO_COLOR": "1"},
    "German in Latin-1, a narrow terminal": {"LC_ALL": "de_DE.ISO-8859-1", "COLUMNS": "20"},
    "Turkish, another time zone": {"LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kolkata", "PYTHONHASHSEED": "7"},
}  # fmt: skip


@pytest.fixture(scope="module")
def locales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the locales of SURROUNDINGS, made here: machines have the one they need."""
    folder = tmp_path_factory.mktemp("locales")
    for name in ("de_DE.ISO-8859-1", "tr_TR.UTF-8"):
        language, _, signs = name.partition(".")
        made = subprocess.run(
            ["localedef", "-i", language, "-f", signs, str(folder / name)], capture_output=True, check=False, timeout=120
        )  # fmt: skip
        if not (folder / name / "LC_NUMERIC").exists():
            pytest.skip(f"localedef: {made.stderr.decode(errors='replace')}")
    return folder


def kept() -> dict[str, str]:
    """Return this process's variables without those that speak of place, language and terminal."""
    other = ("LC_", "LANG", "SLURM", "JUBE", "NLP_BENCH", "PYTHONUNBUFFERED")
    found = {name: value for name, value in os.environ.items() if not name.startswith(other)}
    return {**found, "PYTHONPATH": str(ROOT / "src"), "NLP_BENCH_ROOT": str(ROOT)}


def said(folder: Path, out: Path, environment: dict[str, str]) -> bytes:
    """Return all that the commands print and write."""
    out.mkdir()
    (out / "points.csv").write_text("".join(POINTS.read_text().splitlines(keepends=True)[:4]))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), str(out)], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        check=False, timeout=240, cwd=folder.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert b"Traceback" not in done.stderr
    return done.stdout.replace(os.fsencode(out), b"OUT")


def test_the_same_bytes_everywhere(tmp_path: Path, locales: Path) -> None:
    folder = tmp_path / "Läufe"
    for name in ("İ a", "é b"):
        write_our_run(folder / name)
    expected = said(folder, tmp_path / "plain", {**kept(), "LC_ALL": "C.UTF-8"})
    assert "Läufe".encode() in expected
    assert expected.count(b'"schema"') >= 3
    for number, (name, variables) in enumerate(SURROUNDINGS.items()):
        here = {**kept(), "LOCPATH": str(locales), **variables}
        assert said(folder, tmp_path / f"out{number}", here).splitlines() == expected.splitlines(), name


def test_the_locales_are_real(locales: Path) -> None:
    """A locale that is not there would be C, and the test above would show nothing."""
    code = "import locale; locale.setlocale(locale.LC_ALL, ''); print(locale.localeconv()['decimal_point'], locale.getpreferredencoding())"
    for name, answer in (("de_DE.ISO-8859-1", ", ISO-8859-1\n"), ("tr_TR.UTF-8", ", UTF-8\n")):
        environment = {**kept(), "LOCPATH": str(locales), "LC_ALL": name}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == answer


def run(words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a line of bash in which $NLP_BENCH is the program."""
    program = {"PYTHON": sys.executable, **kept(), **variables}
    line = f'set -o pipefail; nlp_bench() {{ "$PYTHON" -m nlp_bench "$@"; }}; {words}'
    return subprocess.run(
        ["bash", "-c", line], env=program, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "status", "told", "printed"),
    [
        ("report RUN | head -n 1", 141, "", "VALID"),
        ("report RUN --format html | true", 141, "", None),
        ("--help | true", 141, "", None),
        ("report RUN > /dev/full", 1, "No space left on device", None),
        ("report --help > /dev/full", 1, "No space left on device", None),
        ("history add --help > /dev/full", 1, "No space left on device", None),
        ("--version > /dev/full", 1, "No space left on device", None),
        ("watch --help | true", 141, "", None),
        ("--help >&-", 0, "stdout is closed", None),
        ("report RUN >&-", 0, "stdout is closed", None),
        ("report RUN 2>&-", 0, "", "34 063"),
        ("report RUN <&-", 0, "", "34 063"),
        ("measure RUN <&- >&- 2>&-", 0, "", None),
    ],
)
def test_streams_that_are_closed(tmp_path: Path, words: str, status: int, told: str, printed: str | None) -> None:
    folder = write_our_run(tmp_path / "run")
    done = run("nlp_bench " + words.replace("RUN", str(folder)))
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    assert told in done.stderr
    assert not done.stdout if printed is None else printed in done.stdout
    assert done.returncode in {status, 0 if "head" in words else status}  # head may be slower than what it reads
    if told == "":  # nothing is wrong, and nothing more is said than of streams that are open
        assert "error" not in done.stderr
    assert not words.startswith("measure") or b"34063" in (folder / "metrics.txt").read_bytes()


def test_the_command_itself_settles_its_surroundings(tmp_path: Path) -> None:
    folder = write_our_run(tmp_path / "Läufe")
    plain = run(f"cd '{tmp_path}'; nlp_bench report Läufe --format csv", LC_ALL="C.UTF-8")
    other = run(
        f"cd '{tmp_path}'; nlp_bench report Läufe --format csv", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    assert plain.stdout.splitlines()[1].startswith("Läufe,")
    assert (other.returncode, other.stdout) == (0, plain.stdout), folder


@pytest.mark.parametrize(
    ("name", "value"), [("PYTHONINSPECT", "1"), ("PYTHONOPTIMIZE", "2"), ("PYTHONIOENCODING", "utf-16")]
)
def test_a_wish_for_other_programs_is_not_heeded(name: str, value: str) -> None:
    """A prompt behind the end would be the exit code; without docstrings the help is cut; a log in UTF-16 is read by nobody."""
    asked = run("nlp_bench report --help && nlp_bench report nowhere.log", **{name: value})
    plain = run("nlp_bench report --help && nlp_bench report nowhere.log")
    assert (asked.returncode, asked.stdout, asked.stderr) == (2, plain.stdout, plain.stderr)


def test_a_slow_reader_of_a_stream_that_does_not_block_gets_all(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.log").write_text(log_of_ours())
    words = [sys.executable, "-m", "nlp_bench", "report", str(tmp_path), "--format", "json"]
    expected = subprocess.run(words, env=kept(), capture_output=True, check=True, timeout=60).stdout
    out, into = os.pipe()
    os.set_blocking(into, False)
    with subprocess.Popen(words, env=kept(), stdout=into) as process:
        os.close(into)
        time.sleep(3)  # the pipe is full long before
        with os.fdopen(out, "rb") as stream:
            assert len(stream.read()) == len(expected) > 1 << 16
    assert process.returncode == 0


def test_an_exit_status_that_the_caller_ignores_is_seen(stub_run: Callable[..., Run], tmp_path: Path) -> None:
    """With SIGCHLD ignored, as some daemons leave it, Linux throws exit statuses away and Python takes them for 0."""
    run_dir, words = submitted(stub_run("late 7", launcher="local"), tmp_path)
    environment = {**kept(), "NLP_BENCH_VENV": sys.prefix}
    words = ["env", "--ignore-signal=CHLD", *words]
    done = subprocess.run(words, env=environment, capture_output=True, check=False, timeout=120)
    assert done.stdout == b"FAILED: exit status 7, last iteration 4\n"
    assert json.loads((run_dir / "outcome.json").read_text())["exit_status"] == 7


def test_signals_that_the_caller_has_blocked_are_heard(stub_run: Callable[..., Run], tmp_path: Path) -> None:
    run_dir, words = submitted(stub_run("hang", launcher="local"), tmp_path)
    block = ["env", "--block-signal=TERM", "--block-signal=INT", "--block-signal=HUP"]
    environment = {**kept(), "NLP_BENCH_VENV": sys.prefix}
    with subprocess.Popen(
        [*block, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        until(lambda: "iteration " in text_of(run_dir / "job.out"))
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()
    assert json.loads((run_dir / "outcome.json").read_text())["outcome"] == "CANCELLED"


def submitted(run: Run, folder: Path) -> tuple[Path, list[str]]:
    """Return the folder of a run and the command that submits it."""
    return folder / "run", [*NLP_BENCH, *stand_in.submit(run.write(folder), folder / "run")]
