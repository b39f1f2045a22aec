"""docs/compare.md shows what the program prints. After a change: NLP_BENCH_WRITE_DOCS=1 pytest tests/compare/test_docs.py."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from support.repeated import write_log, write_runs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compare.md"
CONSOLE = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ nlp-bench .*$", re.MULTILINE)
RATES = (65000.0, 65600.0, 64700.0, 65300.0, 65100.0)
NIGHTS = (
    65000, 65300, 64800, 65200, 64900, 65100, 60100, 65000, 65250, 64950, 65050, 63000, 62800, 63100, 62900, 63050,
)  # fmt: skip


def inputs(folder: Path) -> None:
    """Write the runs that the page speaks of."""
    write_runs(folder / "before", *RATES)
    write_runs(folder / "after", *(1.03 * rate for rate in RATES), seed=10, tensor_model_parallel_size=2)
    write_runs(folder / "slower", *(0.93 * rate for rate in RATES), seed=20)
    write_runs(folder / "wider", *RATES, seed=30, hidden_size=5120)
    for number, rate in enumerate(NIGHTS, start=1):
        night = write_log(folder / f"nights/night{number:02d}.log", rate, 100 + number)
        os.utime(night, (1772330400 + number * 86400,) * 2)
    (folder / "benchmark/models").mkdir(parents=True)  # the root of a checkout: here its reports/ go


def ran(command: str, folder: Path) -> str:
    words = shlex.split(command)[2:]
    program = "import sys; from nlp_bench.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        env={**os.environ, "NLP_BENCH_ROOT": str(folder), "TZ": "UTC"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stdout
    return f"{command}\n{done.stdout.replace(f'{folder}/', '').rstrip()}\n"


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    inputs(folder)
    text = PAGE.read_text(encoding="utf-8")
    now = CONSOLE.sub(lambda block: "\n".join(ran(command, folder) for command in COMMAND.findall(block[1])), text)
    shutil.rmtree(folder)
    if os.environ.get("NLP_BENCH_WRITE_DOCS"):
        PAGE.write_text(now, encoding="utf-8")
    assert len(COMMAND.findall(text)) == 8
    assert text == now, "docs/compare.md is not up to date: NLP_BENCH_WRITE_DOCS=1 pytest tests/compare/test_docs.py"
