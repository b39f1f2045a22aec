"""One build: under a lock, in its own folder, and finished only when its manifest is there."""

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from nlp_bench.build.environment import MANIFEST, SCHEMA
from nlp_bench.build.items import apex_extensions, dataset_helper, elementwise_operators
from nlp_bench.build.key import Apex, Machine, folder_name
from nlp_bench.files import locked, read_json, write_json


def make_build(parent: Path, machine: Machine, apex: Apex | None, say: Callable[[str], None]) -> Path:
    """Build what is missing and return the folder; `say` receives one line per item.

    A folder without a manifest was left by a build that died: it is wiped and built anew. Raises NlpBenchError when an
    item fails; its folder then has no manifest.
    """
    folder = parent / folder_name(machine, apex)
    with locked(parent / f".{folder.name}.lock", "set NLP_BENCH_BUILD_DIR to another folder"):
        if (folder / MANIFEST).is_file():
            for name, text in read_json(folder / MANIFEST, SCHEMA)["items"].items():
                say(f"{name}: {text if text.startswith('skipped') else 'already there'}")
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        items: dict[str, Callable[[], str]] = {
            "dataset helper": lambda: dataset_helper(folder),
            "Apex": lambda: apex_extensions(folder, machine, apex),
            "element-wise operators": lambda: elementwise_operators(folder, machine),
        }
        done = {}
        for name, make in items.items():
            done[name] = make()
            say(f"{name}: {done[name]}")
        record = {"schema": SCHEMA, "machine": asdict(machine), "apex": asdict(apex) if apex else None, "items": done}
        write_json(folder / MANIFEST, record)
    return folder
