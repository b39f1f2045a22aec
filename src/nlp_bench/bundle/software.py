"""Which nlp-bench made a bundle: version, commit, and the patch of what is not committed."""

import subprocess
from pathlib import Path
from typing import Any

from nlp_bench import __version__
from nlp_bench.config import catalog
from nlp_bench.config.origin import git

PATCH, UNTRACKED = "software/uncommitted.patch", "software/untracked.txt"
DATA = "data"
MAX_PATCH_BYTES = 16 << 20


def write_software(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Write the patch into `folder` where there is one; return the record of the manifest and what to remark."""
    record: dict[str, Any] = {"version": __version__, "commit": None, "patch": None, "untracked": None}
    root, record["commit"] = checkout()
    if root is None or record["commit"] is None:
        return record, ["nlp-bench was not run from a git checkout: no commit is known"]
    remarks = []
    patch = _git(root, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--binary", "HEAD", "--", ".")
    if patch is None or len(patch) > MAX_PATCH_BYTES:
        remarks.append("the patch of nlp-bench's uncommitted changes could not be made or is above 16 MiB: left out")
    elif patch:
        _write(folder / PATCH, patch)
        record["patch"] = PATCH
        remarks.append(f"nlp-bench's checkout has uncommitted changes: {PATCH}")
    untracked = _git(root, "ls-files", "--others", "--exclude-standard")
    if untracked:
        _write(folder / UNTRACKED, untracked)
        record["untracked"] = UNTRACKED
    return record, remarks


def checkout() -> tuple[Path | None, str | None]:
    """Return the folder that nlp-bench runs from and its commit; None each where there is none."""
    root = catalog.checkout()
    commit = _git(root, "rev-parse", "HEAD") if root else None
    return root, None if commit is None else commit.decode(errors="replace").strip()


def _git(root: Path, *words: str) -> bytes | None:
    """Return what git prints, None where it does not answer; its index is not touched."""
    command = [*git(root), "--no-optional-locks", *words]
    try:
        return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def tables() -> dict[str, Path]:
    """Return the tables that numbers and words depend on, by their place in a bundle."""
    rules = {f"{DATA}/rules/{name}.toml": catalog.find("rules", name) for name in catalog.names("rules")}
    return {f"{DATA}/accelerators.toml": catalog.table("accelerators.toml"), **rules}
