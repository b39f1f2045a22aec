"""All runs of a machine in one SQLite file: what was measured, when, and whether it has changed."""

from pathlib import Path


def default_file() -> Path:
    """Return reports/history.sqlite3 of the checkout."""
    from nlp_bench.config.catalog import root  # noqa: PLC0415  # --help stays light

    return root() / "reports" / "history.sqlite3"
