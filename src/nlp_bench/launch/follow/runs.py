"""Find the folders of submitted runs below a path."""

from collections.abc import Iterable
from pathlib import Path

from nlp_bench.errors import UsageError
from nlp_bench.walk import walk


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Return every folder with run.json and submit.json at or below `paths`, each real folder once, sorted."""
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            raise UsageError(f"{path} is not a folder; give a run folder or one above run folders")
        for folder, files in walk(path):
            if {"run.json", "submit.json"} <= files:
                found[folder.resolve()] = None
    return sorted(found)
