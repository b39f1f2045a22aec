"""One build: under a lock, in its own folder, and finished only when its manifest is there."""

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from nlp_bench.build import verify
from nlp_bench.build.environment import MANIFEST, SCHEMA, SITE
from nlp_bench.build.items import apex_extensions, dataset_helper, elementwise_operators, sees_gpu, transformer_engine
from nlp_bench.build.key import Extras, Machine, folder_name
from nlp_bench.files import locked, read_json, write_json


def make_build(parent: Path, machine: Machine, extras: Extras, say: Callable[[str], None]) -> Path:
    """Build what is missing, try every kernel, and return the folder; `say` receives one line per item and kernel.

    A folder without a manifest was left by a build that died: it is wiped and built anew. Raises NlpBenchError when an
    item fails; its folder then has no manifest.
    """
    folder = parent / folder_name(machine, extras)
    with locked(parent / f".{folder.name}.lock", "set NLP_BENCH_BUILD_DIR to another folder"):
        if (folder / MANIFEST).is_file():
            record = read_json(folder / MANIFEST, SCHEMA)
            for name, text in record["items"].items():
                say(f"{name}: {text if text.startswith('skipped') else 'already there'}")
            _show([verify.Trial(**trial) for trial in record.get("verified", [])], say)
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        items: dict[str, Callable[[], str]] = {
            "dataset helper": lambda: dataset_helper(folder),
            "Apex": lambda: apex_extensions(folder, machine, extras.apex),
            "Transformer Engine": lambda: transformer_engine(folder, machine, extras.transformer_engine),
            "element-wise operators": lambda: elementwise_operators(folder, machine),
        }
        done = {}
        for name, make in items.items():
            done[name] = make()
            say(f"{name}: {done[name]}")
        trials = _verified(folder, machine, say)
        _show(trials, say)
        record = {"machine": asdict(machine), **asdict(extras), "items": done, "verified": verify.records(trials)}
        write_json(folder / MANIFEST, {"schema": SCHEMA, **record})
    return folder


def _verified(folder: Path, machine: Machine, say: Callable[[str], None]) -> list[verify.Trial]:
    if "absent" in {machine.torch, machine.megatron_core}:
        return []  # the items above have said so
    if machine.arch != "cpu" and not sees_gpu():
        say("kernels: NOT VERIFIED, no GPU here; build again on a node with one to compare them with plain torch")
        return []
    return verify.verify(folder / SITE, folder / "verify.log")


def _show(trials: list[verify.Trial], say: Callable[[str], None]) -> None:
    if not trials:
        return
    for line in [*verify.table(trials), verify.warning(trials)]:
        if line:
            say(line)
