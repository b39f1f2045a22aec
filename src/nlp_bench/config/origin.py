"""Which code runs: this nlp-bench, its commit, and the user's own checkout of Megatron-LM."""

import hashlib
import os
import re
from pathlib import Path

import nlp_bench
from nlp_bench import __version__
from nlp_bench.config import catalog
from nlp_bench.config.run import Origin
from nlp_bench.errors import UsageError
from nlp_bench.files import read_object, real
from nlp_bench.programs import ask

SNAPSHOT_RECORD = "snapshot.json"  # in a copy of the code (`nlp-bench submit --snapshot-code`): states its commit


def origin() -> Origin:
    """Return the version and the checkout's commit, marked "+changes" where tracked files differ from it; None for an installed package."""
    checkout = catalog.checkout()
    if checkout and (kept := read_object(checkout / SNAPSHOT_RECORD)):  # it may lie in another commit's checkout
        commit = kept.get("commit") if isinstance(kept.get("commit"), str) else None
    else:
        commit = commit_of(checkout) if checkout else None
    return Origin(version=__version__, commit=commit, code_sha256=code_sha256())


def code_files(package: Path, pattern: str) -> list[Path]:
    """Return what matches in a package, without hidden folders: a file server's .snapshot, an editor's."""
    found = (path for path in package.rglob(pattern) if "/." not in f"/{path.relative_to(package).as_posix()}")
    return sorted(found)


def code_sha256(package: Path | None = None) -> str:
    """Return one SHA-256 over the names and contents of all Python files of a package, by default of this one, as they are on disk now."""
    package, digest = package or Path(nlp_bench.__file__).parent, hashlib.sha256()
    for path in code_files(package, "*.py"):
        if path.parent.name == "shipped":  # setup.py, which only an installed package has inside
            continue
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def git(checkout: Path) -> tuple[str, ...]:
    """Return git with options for this very folder: not for one above it, nor for the one that GIT_DIR names, as in a hook."""
    return ("git", "-C", str(checkout), f"--git-dir={checkout / '.git'}", f"--work-tree={checkout}")


def commit_of(checkout: Path) -> str | None:
    """Return the commit of a git checkout, marked; None outside of one, "unknown" where git does not answer.

    A site's wrapper of git may print more: lines of other forms than git's do not count.
    """
    head = ask(*git(checkout), "rev-parse", "HEAD")
    commit = commit_in(head.out)
    if head.is_late or (head.is_good and commit is None):
        return "unknown"
    if not head.is_good:
        return None
    status = ask(*git(checkout), "status", "--porcelain", "--untracked-files=no")
    if status.is_late:
        return "unknown"
    mark = "+unknown" if not status.is_good else "+changes" if _CHANGED.search(status.out) else ""
    return f"{commit}{mark}"


_COMMIT = re.compile(r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$", re.MULTILINE)
_CHANGED = re.compile(r"^[ MTADRCU]{2} \S", re.MULTILINE)  # of git status --porcelain


def commit_in(text: str) -> str | None:
    """Return the first line that is the name of a commit, None without one."""
    found = _COMMIT.search(text)
    return found[0] if found else None


SCRIPT = "pretrain_gpt.py"
VARIABLE = "MEGATRON_LM_REPO"


def upstream() -> dict[str, str]:
    """Return folder and commit of the checkout; raises UsageError where MEGATRON_LM_REPO names none."""
    named = os.environ.get(VARIABLE, "")
    path = Path(named)
    if not named or not (path / SCRIPT).is_file():
        what = f"{VARIABLE}={named!r} holds no {SCRIPT}" if named else f"{VARIABLE} is not set"
        remedy = f"git clone https://github.com/NVIDIA/Megatron-LM and export {VARIABLE} to its folder"
        raise UsageError(f"tuning.trainer: megatron-lm, but {what}; {remedy}")
    return {"megatron_lm_repo": str(real(path)), "megatron_lm_commit": commit_of(path) or ""}
