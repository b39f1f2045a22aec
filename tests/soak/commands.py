"""Every subcommand with a small work, for the script that stops them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.ours import write_our_run

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.evidence.make import make_bundle
from nlp_bench.evidence.manifest import Options

TESTS = Path(__file__).resolve().parents[1]
STUB = {"PYTHONPATH": f"{TESTS.parent}/src:{TESTS}/faults/stub", "NLP_BENCH_STUB": "slow 0.3"}
TINY = Request(model="tiny", system="local", launcher="local", data_path="mock", iterations=4, nodes=1, gpus_per_node=1, tensor=1, pipeline=1)  # fmt: skip


def _nothing(_: Path) -> None:
    return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Command:
    words: tuple[str, ...]  # behind nlp-bench; HERE stands for a folder of its own
    prepare: Callable[[Path], object] = _nothing  # what stands in the folder before
    ends: tuple[int, ...] = (0,)  # exit codes without a signal
    stopped_ends: tuple[int, ...] = ()  # further exit codes with one
    again_ends: tuple[int, ...] = (0,)  # exit codes of the second try
    is_repeatable: bool = True  # whether a second try ends by itself
    seconds: float = 0.0  # within which the signal comes; 0: as long as it takes
    variables: Mapping[str, str] = field(default_factory=dict)  # of its environment

    @property
    def name(self) -> str:
        return self.words[0]


def _ended(folder: Path) -> None:
    write_our_run(folder / "run")


def _waiting(folder: Path) -> None:
    """A run of another machine, of which nobody here knows whether it has ended."""
    (folder / "run").mkdir()
    resolve(TINY, ask_scheduler=False).write(folder / "run")
    record = {
        "schema": "nlp-bench/submit/1", "job_id": None, "job_ids": [], "parts_left": 0, "pid": 1, "host": "elsewhere",
        "submitted": "2026-01-01T00:00:00+00:00", "comment": None, "script_pid": None, "place": None, "attempts": [], "given_up": None,
        "run_sha256": None, "unsure": None, "before": [], "selection": None,
    }  # fmt: skip
    (folder / "run/submit.json").write_text(json.dumps(record))


def _asked(folder: Path) -> None:
    (folder / "run").mkdir()
    resolve(TINY, ask_scheduler=False).write(folder / "run")


def _bundled(folder: Path) -> None:
    _ended(folder)
    make_bundle([str(folder / "run")], folder / "e.tar.gz", Options(), with_ranks=False, force=False)


LOCAL = ("--model", "tiny", "--system", "local", "--launcher", "local", "--data-path", "mock", "--iterations", "4", "--nodes", "1", "--gpus-per-node", "1", "--tp", "1", "--pp", "1")  # fmt: skip
COMMANDS = (
    Command(words=("check", "--offline", "--model", "13", "--system", "juwels-booster", "--output", "HERE/o")),
    Command(words=("build", "--system", "local"), variables={"NLP_BENCH_BUILD_DIR": "HERE/build"}),
    Command(words=("data", "--output", "HERE/data", "--documents", "300", "--vocab-size", "300")),
    Command(words=("submit", *LOCAL, "--run-dir", "HERE/run"), variables=STUB, ends=(0, 1), stopped_ends=(1,), again_ends=(0, 1, 2)),
    Command(words=("launch", "HERE/run"), prepare=_asked, variables=STUB, ends=(0, 1), stopped_ends=(1,), again_ends=(0, 1)),
    Command(words=("sync", "--wait", "HERE/run"), prepare=_waiting, is_repeatable=False, seconds=2.0),
    Command(words=("watch", "--every", "0.2", "HERE/run"), prepare=_waiting, is_repeatable=False, seconds=2.0),
    Command(words=("measure", "HERE/run"), prepare=_ended),
    Command(words=("report", "HERE/run", "--output", "HERE/out"), prepare=_ended),
    Command(words=("compare", "HERE/run", "HERE/run"), prepare=_ended, ends=(0, 1), again_ends=(0, 1)),
    Command(words=("history", "add", "HERE/run", "--file", "HERE/h.db"), prepare=_ended),
    Command(words=("bundle", "HERE/run", "--output", "HERE/e.tar.gz", "--force"), prepare=_ended),
    Command(words=("verify", "HERE/e.tar.gz"), prepare=_bundled),
    Command(words=("export", "mlperf", "HERE/run", "--output", "HERE/out"), prepare=_ended),
    Command(words=("plan", "--model", "13", "--system", "juwels-booster", "--nodes", "8", "--output", "HERE/p.txt", "--plot", "HERE/p.svg", "--overwrite")),
    Command(words=("rehearse", "--model", "tiny", "--system", "local", "--output", "HERE")),
    Command(words=("doctor", "--system", "local"), ends=(0, 1), again_ends=(0, 1)),
)  # fmt: skip
