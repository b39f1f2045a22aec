"""What readers see of a folder."""

import re
from pathlib import Path

State = dict[str, bytes]


def state_of(folder: Path, seal: str = "") -> State:
    """Return what readers see: every file but hidden ones, SQLite's own, pieces of data and lines that are appended; digits aside (times and hashes differ).

    With a `seal`, the name of a file, a folder without it is not read.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        if seal and not (path.parent / seal).exists():
            continue
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not any(part.startswith(".") for part in name.split("/")) and not _is_passing(name):
            found[name] = re.sub(rb"[0-9a-f]{64}|\d+", b"0", path.read_bytes())
    return found


def _is_passing(name: str) -> bool:
    return name.endswith((".db", ".db-wal", ".db-shm", ".lock", ".samples.csv", ".part")) or ".shards/" in name
