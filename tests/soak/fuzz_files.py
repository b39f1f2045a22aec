"""Mutate data files, records and bundles and give them to the command line: no exception, no hang, no write elsewhere.

    python tests/soak/fuzz_files.py --num 100000 --seed 1

Prints what failed, with the seed that repeats it; exits with 1 if anything did. Slurm's commands are out of reach.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, whatever is installed

from support.odd_files import changed, words_changed
from support.ours import write_our_run

from nlp_bench.cli.main import main as nlp_bench
from nlp_bench.config.catalog import root
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.evidence.make import make_bundle
from nlp_bench.evidence.manifest import MANIFEST, SUMS, Options
from nlp_bench.files import sha256_of
from soak.workers import run_all

BOUND_S = 30.0  # of one command; they take a fraction of a second, and the machine may be busy
NLP_BENCH_SCHEMA_OF_SUBMIT = '{"schema": "nlp-bench/submit/1", "job_id": null, "job_ids": [], "parts_left": 0, "pid": 1, "host": "elsewhere", "submitted": "2026-01-01T00:00:00+00:00", "comment": null, "script_pid": null, "place": null, "attempts": [], "given_up": null, "run_sha256": null, "unsure": null, "before": [], "selection": null}'
CONFIGURATION = "<jube><selection><tag>175</tag><tag>slurm</tag><tag>juwels-booster</tag></selection><benchmark name='x' outpath='y'><a b='c'/></benchmark></jube>"

OPTIONS = (
    ("check", "--offline", "--model", "13", "--system", "juwels-booster", "--nodes", "8", "--tp", "2", "--pp", "2", "--micro-batch-size", "1", "--gas", "2", "--timelimit", "01:00:00"),
    ("report", "HERE/job.out", "--tokens", "20000000", "--sequence-length", "2048", "--global-batch-size", "96", "--num-gpus", "384", "--limit", "600", "--format", "json"),
    ("plan", "--model", "13", "--system", "juwels-booster", "--nodes", "8", "--tp", "2", "--pp", "2", "--top", "3", "--format", "csv"),
    ("compare", "HERE", "HERE", "--format", "json"),
    ("history", "list", "--file", "HERE/h.db", "--last", "3"),
    ("export", "mlperf", "HERE", "--set", "division=closed", "--tokens", "1000"),
    ("watch", "--once", "HERE", "--every", "1", "--max-hours", "1"),
    ("measure", "HERE", "--tokens", "1000"),
)  # fmt: skip
"""Words of which some are changed; no command that would start anything without one of them."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A folder with one file to change, and commands that read it."""

    folder: Path  # what is copied for each trial
    file: str  # the file that is changed
    is_sealed: bool = False  # whether it is part of a bundle, whose hashes a forger would mend
    has_words: bool = False  # whether words of the command are changed instead of the file
    commands: tuple[tuple[str, ...], ...]  # words behind `nlp-bench`; HERE stands for the copy


def targets(folder: Path) -> list[Target]:
    """Make the files of every kind below `folder`."""
    found = [*_data_files(folder), *_run_files(folder), *_bundles(folder)]
    jube = folder / "jube"
    jube.mkdir()
    (jube / "configuration.xml").write_text(CONFIGURATION)
    return [
        *found,
        *(Target(folder=folder / "ended", file="job.out", has_words=True, commands=OPTIONS) for _ in range(4)),
        Target(folder=jube, file="configuration.xml", commands=(("check", "--offline", "--jube-run", "HERE"),)),
    ]


def _data_files(folder: Path) -> list[Target]:
    found = []
    uses = {
        "models": (("check", "--offline", "--system", "juwels-booster", "--model", "HERE/FILE"), ("plan", "--system", "juwels-booster", "--nodes", "4", "--model", "HERE/FILE")),
        "systems": (("check", "--offline", "--model", "13", "--system", "HERE/FILE"), ("submit", "--print", "--model", "tiny", "--system", "HERE/FILE"), ("check", "--print", "environment", "--system", "HERE/FILE")),
        "rules": (("report", "HERE/job.out", "--rules", "HERE/FILE"),),
    }  # fmt: skip
    for kind, commands in uses.items():
        for path in sorted((root() / "benchmark" / kind).glob("*.toml")):
            place = folder / kind / path.stem
            place.mkdir(parents=True)
            shutil.copy(path, place)
            if kind == "rules":
                shutil.copy(write_our_run(folder / "log" / path.stem) / "job.out", place)
            words = tuple(tuple(word.replace("FILE", path.name) for word in command) for command in commands)
            found.append(Target(folder=place, file=path.name, commands=words))
    return found


def _run_files(folder: Path) -> list[Target]:
    ended = write_our_run(folder / "ended")
    (ended / "submit.json").write_text(NLP_BENCH_SCHEMA_OF_SUBMIT)
    asked = folder / "asked"
    asked.mkdir()
    request = Request(model="175", system="juwels-booster", account="project")
    resolve(request, ask_scheduler=False).write(asked)
    (asked / "submit.json").write_text(NLP_BENCH_SCHEMA_OF_SUBMIT)
    shutil.copy(ended / "job.out", asked)
    _quiet(("measure", str(ended)))
    reading = (("measure", "HERE"), ("report", "HERE"), ("report", "HERE", "--format", "json"), ("watch", "--once", "HERE"), ("sync", "HERE"), ("compare", "HERE", "HERE"), ("export", "mlperf", "HERE", "--output", "HERE/out"), ("history", "add", "HERE", "--file", "HERE/h.db"), ("bundle", "HERE", "--output", "HERE.tar", "--force"))  # fmt: skip
    later = (("sync", "HERE"), ("watch", "--once", "HERE"), ("submit", "--print", "--run", "HERE/run.json"), ("check", "--print", "machine", "--run", "HERE/run.json"), ("sync", "--exit-status", "1", "HERE"), ("report", "HERE"))  # fmt: skip
    twice = [
        *(Target(folder=ended, file=name, commands=reading) for name in ("run.json", "outcome.json", "result.json", "submit.json")),
        *(Target(folder=asked, file=name, commands=later) for name in ("run.json", "submit.json")),
    ]  # fmt: skip
    return [target for target in twice for _ in range(4)]  # the records count for more than the many data files


def _bundles(folder: Path) -> list[Target]:
    run = write_our_run(folder / "bundled")
    found = []
    for form in ("", ".tar", ".tar.gz"):
        place = folder / f"bundle{form.replace('.', '_')}"
        place.mkdir()
        name = f"evidence{form}"
        made = make_bundle([str(run)], place / name, Options(), with_ranks=False, force=False)
        command = (("verify", f"HERE/{name}"),)
        files = [p.relative_to(place).as_posix() for p in made.path.rglob("*") if p.is_file()] if not form else [name]
        chosen = [file for file in files if not form and not file.startswith("evidence/lines/")] or files
        found += [Target(folder=place, file=file, commands=command, is_sealed=not form) for file in chosen]
    return found


def _seal(bundle: Path, name: str) -> None:
    """Write the hashes of a changed file anew, as who forges a bundle does; otherwise nothing behind them is ever read."""
    manifest = bundle / MANIFEST
    if name not in {MANIFEST, SUMS}:
        record, content = json.loads(manifest.read_bytes()), (bundle / name).read_bytes()
        for file in record["files"]:
            if file["path"] == name:
                file.update(size=len(content), sha256=hashlib.sha256(content).hexdigest())
        manifest.write_text(json.dumps(record))
    lines = [line.rpartition("  ")[2] for line in (bundle / SUMS).read_text(errors="replace").splitlines()]
    digests = {}
    for path in lines:
        with contextlib.suppress(OSError, ValueError):  # a name of a thousand signs, or with a NUL
            digests[path] = sha256_of(bundle / path)
    if name != SUMS:
        (bundle / SUMS).write_text("".join(f"{digest}  {path}\n" for path, digest in sorted(digests.items())))


def _quiet(words: tuple[str, ...]) -> tuple[int | str | None, str]:
    """Run one command without a word on the terminal; return its exit code and what it said."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            return nlp_bench(list(words)), err.getvalue()
        except SystemExit as ended:  # argparse
            return ended.code, err.getvalue()


class Fence:
    """Notes every file that is opened for writing, made, moved or removed outside a folder (PEP 578's audit events)."""

    EVENTS = frozenset(("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.truncate", "shutil.rmtree", "os.kill", "os.system", "subprocess.Popen", "os.exec"))  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self.inside = (str(folder) + "/", "/dev/null", "/proc/")
        self.is_up = False
        self.crossed: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, words: tuple[Any, ...]) -> None:
        if not self.is_up:
            return
        if event == "open":
            is_writing = isinstance(words[2], int) and words[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if is_writing and isinstance(words[0], str | bytes):
                self._look(event, words[0])
        elif event in self.EVENTS:
            for word in words[:2] if event in {"os.rename", "os.link"} else words[:1]:
                if isinstance(word, str | bytes) or event in {"os.kill", "os.system", "os.exec"}:
                    self._look(event, word)

    def _look(self, event: str, word: Any) -> None:
        path = os.path.abspath(os.fsdecode(word)) if isinstance(word, str | bytes) else str(word)  # noqa: PTH100  # no link is followed
        if not path.startswith(self.inside) and "__pycache__" not in path:
            if event == "subprocess.Popen" and Path(path).name in {
                "git",
                "nvidia-smi",
                "scontrol",
                "squeue",
                "sacct",
            }:
                return
            self.crossed.append(f"{event} {path}")


def check_of(folder: Path) -> Callable[[int], str | None]:
    os.environ.update(
        TMPDIR=str(folder / "tmp"), PATH=str(folder / "nothing"), HOME=str(folder / "home"), OMP_NUM_THREADS="1"
    )
    for name in ("tmp", "home", "base", "trial"):
        (folder / name).mkdir()
    import tempfile

    tempfile.tempdir = None
    kinds = targets(folder / "base")
    fence = Fence(folder)

    def check(seed: int) -> str | None:
        dice = random.Random(seed)  # noqa: S311  # a repeatable test
        target = kinds[seed % len(kinds)]
        here = folder / "trial" / "run"
        shutil.rmtree(folder / "trial")
        (folder / "trial").mkdir()
        shutil.copytree(target.folder, here, symlinks=True)
        if not target.has_words:
            (here / target.file).write_bytes(changed(target.file, (target.folder / target.file).read_bytes(), dice))
        if target.is_sealed and dice.random() < 0.7:
            _seal(here / "evidence", target.file.partition("/")[2])
        command = dice.choice(target.commands)
        command = words_changed(command, dice) if target.has_words else command
        words = tuple(word.replace("HERE", str(here)) for word in command)
        told = f"seed {seed}: {target.file}: nlp-bench {' '.join(command)}"
        os.chdir(here)
        fence.crossed.clear()
        fence.is_up = True
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                code, said = _quiet(words)
        except Exception:  # noqa: BLE001  # the very thing that is looked for
            return f"{told}\n{traceback.format_exc(limit=-6)}"
        finally:
            fence.is_up = False
        if code not in {0, 1, 2}:
            return f"{told}: exit code {code}"
        if code and not said.strip() and command[0] not in {"report", "verify", "compare", "watch", "plan", "doctor"}:
            return f"{told}: exit code {code} without a word"
        return f"{told}: outside: {fence.crossed}" if fence.crossed else None

    return check


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=2000, help="mutations (default 2000)")
    parser.add_argument("--seed", type=int, default=0, help="first seed (default 0)")
    parser.add_argument("--processes", type=int, default=0, help="at the same time (default: all cores)")
    options = parser.parse_args(words)
    start = time.perf_counter()
    failed = run_all(check_of, first=options.seed, num=options.num, processes=options.processes, bound_s=BOUND_S)
    print(f"fuzz_files: {options.num} changed files, {failed} failed, {time.perf_counter() - start:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
