"""The writers of results: reports, trends, exports, plans, histories and bundles."""

import contextlib
import functools
import sqlite3
from collections.abc import Callable
from pathlib import Path

from support.known_machine import calibration
from support.ours import write_our_run

from nlp_bench.evidence.make import make_bundle
from nlp_bench.evidence.manifest import Options
from nlp_bench.evidence.verify import verify
from soak.writer import Check, Work, Writer, command, prepared_once, remember


@functools.cache
def _remember_images() -> None:
    """What is computed between two files takes seconds, and no kill there could harm one."""
    remember("nlp_bench.report.output", "_plots")
    remember("nlp_bench.plan.ranking", "answer")


@functools.cache
def _remember_checkout() -> None:
    """A bundle names the files that are not committed in the checkout, and other tests make some there meanwhile."""
    remember("nlp_bench.evidence.collect", "_git")


def _history_before(folder: Path) -> None:
    write_our_run(folder / "one")
    write_our_run(folder / "two")
    command("history", "add", "HERE/one", "--file", "HERE/h.db")(folder)
    with contextlib.closing(sqlite3.connect(folder / "h.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _history_is_whole(folder: Path) -> str | None:
    with contextlib.closing(sqlite3.connect(folder / "h.db")) as connection:
        if connection.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            return "the history is damaged"
        num = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
    return None if num in {1, 2} else f"{num} runs in the history"


def _bundle(name: str) -> Work:
    options = Options()
    return lambda folder: make_bundle(
        [str(folder / "run")], folder / "out" / name, options, with_ranks=False, force=True
    )


def _bundle_folder(folder: Path) -> None:
    if any((folder / "out/evidence").iterdir()):
        return  # a whole one stands there, which `bundle` would refuse to write over
    make_bundle([str(folder / "run")], folder / "out/evidence", Options(), with_ranks=False, force=True)


def _bundle_before(folder: Path) -> None:
    _remember_checkout()
    _ended_run(folder)
    (folder / "out/evidence").mkdir(parents=True)


def _bundle_verifies(name: str) -> Check:
    def check(folder: Path) -> str | None:
        path = folder / "out" / name
        there = path.is_file() or (path.is_dir() and any(path.iterdir()))
        return "the bundle does not verify" if there and not verify(path).is_verified else None

    return check


_ended_run = prepared_once(lambda folder: write_our_run(folder / "run"))
_history = prepared_once(_history_before)


def _drawn(prepare: Work) -> Work:
    def prepared(folder: Path) -> None:
        _remember_images()
        prepare(folder)

    return prepared


_report: Callable[..., Work] = lambda *words: command("report", "HERE/run", *words, "--output", "HERE/out")  # noqa: E731

WRITERS = (
    Writer(name="report", prepare=_drawn(_ended_run), write=_report(), is_command=True),
    Writer(name="report --sweep", prepare=_drawn(_ended_run), write=_report("--sweep"), is_command=True),
    Writer(name="export", prepare=_ended_run, write=command("export", "mlperf", "HERE/run", "--output", "HERE/out"), is_command=True),
    Writer(name="history", prepare=_history, write=command("history", "add", "HERE/two", "--file", "HERE/h.db"), check=_history_is_whole, is_command=True),
    Writer(name="trend", prepare=_drawn(_history), write=command("history", "trend", "--file", "HERE/h.db", "--output", "HERE/out"), is_command=True),
    Writer(name="bundle archive", prepare=_bundle_before, write=_bundle("e.tar.gz"), check=_bundle_verifies("e.tar.gz")),
    Writer(name="bundle folder", prepare=_bundle_before, write=_bundle_folder, check=_bundle_verifies("evidence")),
    Writer(name="plan", prepare=_drawn(lambda _: None), write=command("plan", "--model", "13", "--system", "juwels-booster", "--nodes", "8", "--output", "HERE/p.txt", "--emit-jube", "HERE/s.yaml", "--plot", "HERE/p.svg", "--overwrite"), is_command=True),
    Writer(name="plan calibrate", prepare=prepared_once(lambda folder: calibration(lambda: 1.0).write(folder / "machine.json")), write=command("plan", "calibrate", "--from", "HERE/machine.json", "--output", "HERE/machine.toml"), is_command=True),
)  # fmt: skip
