"""Find the folders of submitted runs below a path; JUBE's links between steps are not followed."""

import os
from collections.abc import Iterable
from pathlib import Path

from nlp_bench.errors import UsageError


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Return every folder with run.json and submit.json at or below `paths`, each real folder once, sorted."""
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"{path} is not a folder; give a run folder or one above run folders")
        for folder, _, files in os.walk(path):
            if {"run.json", "submit.json"} <= set(files):
                found[Path(folder).resolve()] = None
    return sorted(found)


def one_line(folder: Path | str) -> str:
    """Return a folder's name as a list of runs shows it: a line end or a colour in it must not pass for another line."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in str(folder))
