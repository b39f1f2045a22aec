"""Which nlp-bench this is: version and commit."""

from nlp_bench import __version__
from nlp_bench.config import catalog
from nlp_bench.config.machine import ask
from nlp_bench.config.run import Origin


def origin() -> Origin:
    """Return the version and the checkout's commit, marked "+changes" where tracked files differ from it."""
    folder = str(catalog.root())
    commit = (ask("git", "-C", folder, "rev-parse", "HEAD") or "").strip()
    if not commit:
        return Origin(version=__version__, commit=None)
    changed = (ask("git", "-C", folder, "status", "--porcelain", "--untracked-files=no") or "").strip()
    return Origin(version=__version__, commit=commit + ("+changes" if changed else ""))
