"""Room and inodes."""

import os
import shlex
from pathlib import Path

from nlp_bench.doctor.finding import Finding, failed, ok, together, warning
from nlp_bench.doctor.folders import written_folders
from nlp_bench.doctor.place import Place

NEEDED_BYTES = 100 * 2**20
"""A run without checkpoints writes a few MB of log and records; below this it may end in the middle."""
WANTED_BYTES = 5 * 2**30
"""A kernel build or an index cache of a large corpus."""
NEEDED_INODES, WANTED_INODES = 1000, 20_000
"""Each rank has a folder of its own; a build or a virtual environment has thousands of files."""


def check(place: Place) -> Finding:
    """Compare what is free with what a run, a build and a cache need; a quota is told by `writable` only when it is reached."""
    by_folder: dict[Path, list[str]] = {}
    for name, folder in written_folders(place).items():
        by_folder.setdefault(folder, []).append(name)
    return together(
        [one for folder, names in by_folder.items() for one in _folder(folder, " and ".join(names))],
        "room and inodes suffice",
    )


def _folder(folder: Path, what: str) -> list[Finding]:
    room = os.statvfs(folder)
    free, inodes = room.f_bavail * room.f_frsize, room.f_favail
    found = [ok("", f"{what}: {folder}: {free / 2**30:.1f} GiB free, {inodes if room.f_files else 'unlimited'} inodes")]
    word = shlex.quote(str(folder))
    where = f"df -h {word}; df -i {word}; remove old runs, or name another folder"
    if free < NEEDED_BYTES:
        found.append(failed(f"{what}: {folder} has {free / 2**20:.0f} MiB left", remedy=where))
    elif free < WANTED_BYTES:
        found.append(warning(f"{what}: {folder} has {free / 2**30:.1f} GiB left", remedy=where))
    if room.f_files and inodes < NEEDED_INODES:  # 0: a file system that makes them as it goes
        found.append(failed(f"{what}: {folder} has {inodes} inodes left", remedy=where))
    elif room.f_files and inodes < WANTED_INODES:
        found.append(warning(f"{what}: {folder} has {inodes} inodes left", remedy=where))
    return found
