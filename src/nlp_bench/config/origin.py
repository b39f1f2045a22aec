"""Which nlp-bench this is: version and commit."""

import contextlib

from nlp_bench import __version__
from nlp_bench.config import catalog
from nlp_bench.config.machine import NoAnswerError, ask
from nlp_bench.config.run import Origin


def origin() -> Origin:
    """Return the version and the checkout's commit, marked "+changes" where tracked files differ from it."""
    folder = str(catalog.root())
    with contextlib.suppress(NoAnswerError):
        return _of_checkout(folder)
    return Origin(version=__version__, commit="unknown")


def _of_checkout(folder: str) -> Origin:
    commit = (ask("git", "-C", folder, "rev-parse", "HEAD") or "").strip()
    if not commit:
        return Origin(version=__version__, commit=None)
    status = ask("git", "-C", folder, "status", "--porcelain", "--untracked-files=no")
    mark = "+unknown" if status is None else "+changes" if status.strip() else ""
    return Origin(version=__version__, commit=commit + mark)
