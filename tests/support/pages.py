"""The pages of docs/ show what the program prints: their commands are run again, and every figure is compared.

A ```console block holds commands (`$ ...`, run by bash in one folder for the whole page) and what they print, both streams as a terminal
shows them. `...` at the end of a line stands for what is left out there. A block after a comment `<!-- not run: REASON -->` is left alone. A file
that the commands read stands in the page as "`NAME`:" and a ```text or ```toml block. Dates, hashes, commits, users and sizes of files, which
differ from run to run, are not compared; a hash in a command is the one that was printed last. Other text that was printed stands between two comments `<!-- MARK -->`.
NLP_BENCH_WRITE_DOCS=1 writes the page anew instead.
"""

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r"^`(\S+)`:\n\n```(?:text|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"(?<!-->\n)^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
CHANGES = (
    (re.compile(r"\b[0-9a-f]{64}\b|\b[0-9a-f]{40}\b(?:\+changes)?|\b[0-9a-f]{12}\b(?:\+changes)?"), "HASH"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\+00:00|Z)"), "TIME"),
    (re.compile(r"\(\w+, TIME\)"), "(WHO, TIME)"),
    (re.compile(r"SHA256:[\w+/]+"), "KEY"),
    (re.compile(r"\d+ files, \d+ bytes|\d+ hashes"), "FILES"),
    (re.compile(r"^nlp-bench: nlp-bench's checkout has uncommitted changes.*\n", re.MULTILINE), ""),
    # Said on a slow machine alone.
    (
        re.compile(
            r"^nlp-bench: rehears(?:ing .* which may take minutes|ed \d+ of \d+ ranks, .* left)\n", re.MULTILINE
        ),
        "",
    ),
)


def check_page(page: Path, folder: Path, num_commands: int, **environment: str) -> None:
    """Run the commands of `page` in `folder`, which exists, and hold what they print against what the page shows.

    Raises AssertionError for a page that shows something else, or fewer than `num_commands` commands.
    """
    text = page.read_text(encoding="utf-8")
    for name, content in FILE.findall(text):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.removesuffix("\n") if name == "train.log" else content)
    assert sum(len(COMMAND.findall(block)) for block in CONSOLE.findall(text)) >= num_commands
    hashes: list[str] = []
    now = CONSOLE.sub(lambda block: f"```console\n{_block(block[1], folder, environment, hashes)}```", text)
    check_text(page, now)


def check_block(page: Path, mark: str, printed: str) -> None:
    """Hold `printed` against what `page` shows between two comments `mark`."""
    check_part(page, mark, f"```text\n{printed.strip()}\n```\n")


def check_part(page: Path, mark: str, part: str) -> None:
    """Hold `part` against what stands in `page` between two comments `mark`."""
    before, _, after = page.read_text(encoding="utf-8").split(f"<!-- {mark} -->\n")
    check_text(page, f"<!-- {mark} -->\n".join((before, part, after)))


def check_text(page: Path, now: str) -> None:
    """Hold `now` against the file at `page`, which may be a file of another kind."""
    text = page.read_text(encoding="utf-8")
    if _still(text) == _still(now):
        return
    if os.environ.get("NLP_BENCH_WRITE_DOCS"):
        page.write_text(now, encoding="utf-8")
        return
    changed = "\n".join(
        difflib.unified_diff(_still(text).splitlines(), _still(now).splitlines(), "page", "now", lineterm="", n=0)
    )
    raise AssertionError(f"{page.name} is not up to date: NLP_BENCH_WRITE_DOCS=1 and this test write it\n{changed}")


def _still(text: str) -> str:
    """Return `text` without what differs from run to run."""
    for pattern, word in CHANGES:
        text = pattern.sub(word, text)
    return text


def _block(block: str, folder: Path, environment: dict[str, str], hashes: list[str]) -> str:
    return "\n".join(_command(command, shown, folder, environment, hashes) for command, shown in COMMAND.findall(block))


def _command(command: str, shown: str, folder: Path, environment: dict[str, str], hashes: list[str]) -> str:
    """Return the command and what it prints; what the page shows where that is the same but for lines left out."""
    tools = folder / ".tools"
    if not tools.exists():
        tools.mkdir()
        (tools / "nlp-bench").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nlp_bench "$@"\n')
        (tools / "nlp-bench").chmod(0o755)
    command = DIGEST.sub(lambda found: hashes[-1] if hashes else found[0], command)
    variables = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "TZ": "UTC", **environment}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )  # fmt: skip
    assert "Traceback" not in done.stdout, done.stdout
    hashes += DIGEST.findall(done.stdout)
    printed = f"{done.stdout.replace(f'{folder}/', '').rstrip()}\n".removeprefix("\n")
    parts = [_still(part.rstrip("\n")) for part in re.split(r" *\.\.\.\n", shown)]
    if len(parts) > 1 and re.fullmatch(".*?".join(map(re.escape, parts)) + ".*", _still(printed), re.DOTALL):
        return f"$ {command}\n{shown.rstrip()}\n"
    return f"$ {command}\n{printed}"
