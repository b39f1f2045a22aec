"""The virtual environment: finished, and of the pinned versions."""

import re
import sys
from pathlib import Path

from nlp_bench.config import catalog
from nlp_bench.doctor.finding import Finding, failed, ok, skipped, warning
from nlp_bench.doctor.place import Place
from nlp_bench.launch.folder import environment_folder
from nlp_bench.packages import installed_version

PACKAGES = ("torch", "megatron-core", "numpy")
"""What a training imports; a site's own torch may be another version (software.system_site_packages)."""


def check(place: Place) -> Finding:
    """Fail where setup_venv.sh did not come to its last step; warn of versions that are not the pinned ones."""
    name = place.system.name if place.system else "NAME"
    remedy = place.bash(f"benchmark/env/setup_venv.sh --system {name}")
    if place.system and place.system.container.image:
        return skipped("the ranks run in a container image, which brings its own")
    folder = environment_folder(place.root)
    if not folder.is_dir():
        if not catalog.has_workflow():  # what is installed beside the package serves
            return _versions(place, Path(sys.prefix), remedy)
        return failed(f"no virtual environment at {folder}", remedy=remedy)
    if not (folder / "nlp-bench.key").exists():
        log = folder / "pip.err"
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:] if log.exists() else []
        return failed(f"{folder} was not finished: it has no mark nlp-bench.key", *tail, remedy=remedy)
    if not (folder / "bin" / "python").exists():
        return failed(f"{folder}/bin/python is gone: its Python was removed or its module is not loaded", remedy=remedy)
    return _versions(place, folder, remedy)


def _versions(place: Place, folder: Path, remedy: str) -> Finding:
    found = {package: installed_version(package) for package in PACKAGES}
    facts = [str(folder), *(f"{package} {version or 'absent'}" for package, version in found.items())]
    missing = [package for package, version in found.items() if version is None]
    if missing:
        return failed(f"{', '.join(missing)} cannot be imported by this Python", *facts, remedy=remedy)
    pins = _pins()
    others = [f"{p} {v}, pinned is {pins[p]}" for p, v in found.items() if v and p in pins and _plain(v) != pins[p]]
    if others and not (place.system and place.system.software.system_site_packages):
        return warning("; ".join(others), *facts, remedy=remedy)
    return ok(f"finished: {', '.join(facts[1:])}", facts[0])


def _plain(version: str) -> str:
    return version.partition("+")[0]  # 2.13.0+cpu


def _pins() -> dict[str, str]:
    try:
        text = catalog.part("benchmark/env/constraints.txt").read_text(encoding="utf-8")
    except OSError:
        return {}
    return dict(re.findall(r"^([\w-]+)==([^\s;]+)", text, re.MULTILINE))
