"""Which nlp-bench this is: version and commit."""

import contextlib
import hashlib
from pathlib import Path

import nlp_bench
from nlp_bench import __version__
from nlp_bench.config import catalog
from nlp_bench.config.machine import NoAnswerError, ask
from nlp_bench.config.run import Origin


def origin() -> Origin:
    """Return the version and the checkout's commit, marked "+changes" where tracked files differ from it; None for an installed package."""
    checkout = catalog.checkout()
    commit = commit_of(checkout) if checkout else None
    return Origin(version=__version__, commit=commit, code_sha256=code_sha256())


def code_sha256() -> str:
    """Return one SHA-256 over the names and contents of all Python files of this package, as they are on disk now."""
    package, digest = Path(nlp_bench.__file__).parent, hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if path.parent.name == "shipped":  # setup.py, which only an installed package has inside
            continue
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def commit_of(checkout: Path) -> str | None:
    """Return the commit of a git checkout, marked; None outside of one, "unknown" where git does not answer."""
    with contextlib.suppress(NoAnswerError):
        commit = (ask("git", "-C", str(checkout), "rev-parse", "HEAD") or "").strip()
        if not commit:
            return None
        status = ask("git", "-C", str(checkout), "status", "--porcelain", "--untracked-files=no")
        return commit + ("+unknown" if status is None else "+changes" if status.strip() else "")
    return "unknown"
