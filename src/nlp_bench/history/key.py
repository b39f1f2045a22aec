"""Which run an entry is: by the content of its files, so that a moved or renamed run is the same one."""

import hashlib
from dataclasses import replace
from pathlib import Path

from nlp_bench.measure.entry import RunEntry
from nlp_bench.measure.observation import Observation, digest

OUTCOME = "outcome.json"
_BLOCK_BYTES = 1 << 20


def keyed(entry: RunEntry) -> Observation:
    """Return what `entry` observed, with the key that the history knows its run by."""
    return replace(Observation.of(entry), key=key_of(entry))


def key_of(entry: RunEntry) -> str:
    """Return the SHA-256 of run.json and log; of several runs in one log, each with its first record.

    An entry without a file (standard input) is told by its numbers. A run of ours that left no record is told by its outcome too: the
    run.json of two repeats is the same.
    """
    found = hashlib.sha256()
    for path in files_of(entry):
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                found.update(block)
        found.update(b"\0")
    first = entry.provenance.first_record if entry.provenance else None
    found.update(f"{first.line if first else None}".encode())
    folder = run_folder(entry)
    if folder and not first and (folder / OUTCOME).is_file():
        found.update((folder / OUTCOME).read_bytes())
    if not files_of(entry):
        numbers = (entry.steady, entry.reference, entry.num_records, entry.throughput and entry.throughput.estimate)
        found.update(f"{digest(entry)} {numbers}".encode())
    return found.hexdigest()


def files_of(entry: RunEntry) -> list[Path]:
    """Return run.json and log of a run folder of ours, the log of others; empty where there is no file of that name."""
    folder = run_folder(entry)
    paths = [folder / "run.json", folder / "job.out"] if folder else [Path(entry.source)]
    return [path for path in paths if path.is_file()]


def run_folder(entry: RunEntry) -> Path | None:
    """Return the run folder of ours that `entry` was read from, None for logs of others."""
    path = Path(entry.source)
    folder = path.parent if path.name == "job.out" else path
    return folder if (folder / "run.json").is_file() else None
