"""Which nlp-bench this is: version and commit."""

import contextlib
from pathlib import Path

from nlp_bench import __version__
from nlp_bench.config import catalog
from nlp_bench.config.machine import NoAnswerError, ask
from nlp_bench.config.run import Origin


def origin() -> Origin:
    """Return the version and the checkout's commit, marked "+changes" where tracked files differ from it; None for an installed package."""
    checkout = catalog.checkout()
    return Origin(version=__version__, commit=commit_of(checkout) if checkout else None)


def commit_of(checkout: Path) -> str | None:
    """Return the commit of a git checkout, marked; None outside of one, "unknown" where git does not answer."""
    with contextlib.suppress(NoAnswerError):
        commit = (ask("git", "-C", str(checkout), "rev-parse", "HEAD") or "").strip()
        if not commit:
            return None
        status = ask("git", "-C", str(checkout), "status", "--porcelain", "--untracked-files=no")
        return commit + ("+unknown" if status is None else "+changes" if status.strip() else "")
    return "unknown"
