"""What a launcher must export so that ranks find what was built; cheap, for every start of a job."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nlp_bench.build.key import this_machine
from nlp_bench.files import parse_json

SCHEMA = "nlp-bench/build/1"
MANIFEST = "build.json"
CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
SITE = "site-packages"
RECORD = "NLP_BENCH_BUILD_RECORD"
"""The variable that tells ranks where the record of the build is: kernels that failed in it are switched off."""


def build_environment(root: Path) -> dict[str, str]:
    """Return the variables for the newest finished build that fits this machine; empty when there is none.

    `root` is the repository; NLP_BENCH_BUILD_DIR replaces its folder `build`.
    """
    fitting = [
        folder for folder, record in _finished(build_folder(root)) if record["machine"] == asdict(this_machine())
    ]
    if not fitting:
        return {}
    folder = max(fitting, key=lambda path: (path / MANIFEST).stat().st_mtime)
    variables = {name: str(folder / cache) for name, cache in CACHES.items() if (folder / cache).is_dir()}
    if any(not trial["passed"] for trial in _records(folder)):
        variables[RECORD] = str(folder / MANIFEST)
    if (folder / SITE).is_dir():
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder / SITE), os.environ.get("PYTHONPATH")]))
    return variables


def build_warning(environment: dict[str, str]) -> str | None:
    """Return the sentence for a job's log where kernels failed in the build that `build_environment` found, else None."""
    if RECORD not in environment:
        return None
    from nlp_bench.build.verify import Trial, warning  # noqa: PLC0415  # only where there is something to say

    return warning([Trial(**trial) for trial in _records(Path(environment[RECORD]).parent)])


def _records(folder: Path) -> list[dict[str, Any]]:
    verified = parse_json((folder / MANIFEST).read_text(encoding="utf-8")).get("verified", [])
    return verified if isinstance(verified, list) else []


def build_folder(root: Path) -> Path:
    """Return the folder that holds the builds."""
    return Path(os.environ.get("NLP_BENCH_BUILD_DIR") or root / "build").resolve()


def _finished(parent: Path) -> list[tuple[Path, dict[str, Any]]]:
    found = []
    for path in parent.glob(f"kernels-*/{MANIFEST}"):
        try:
            record = parse_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # somebody is removing it, or a newer program wrote it: then it is none of ours
        if isinstance(record, dict) and record.get("schema") == SCHEMA:
            found.append((path.parent, record))
    return found
