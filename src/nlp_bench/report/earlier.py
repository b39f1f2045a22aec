"""A record of this program that is given in place of a log: it is refused with the logs that it was made from.

Its numbers could be shown, but not checked: it holds no lines to derive them from, and whoever edits it would have them printed as measured.
"""

import shlex
from pathlib import Path
from typing import Any

from nlp_bench.files import read_object
from nlp_bench.measure.entry import RunEntry
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.show.escape import one_line

FAMILY = "nlp-bench/"
"""How the schema of each record begins."""
_HEAD = 4096
_MAX_SOURCES = 10


def is_earlier(path: Path) -> bool:
    """Say whether a file is a JSON record of this program, by its name and its first bytes."""
    if path.suffix != ".json":
        return False
    try:
        with path.open("rb") as stream:
            return FAMILY.encode() in stream.read(_HEAD)
    except OSError:
        return False


def refused(path: Path, source: str) -> RunEntry | None:
    """Return the refusal of a record, called `source`, which names what to give in its place; None for a file of somebody else."""
    record = read_object(path)
    schema = str(record.get("schema"))
    if not schema.startswith(FAMILY):
        return None
    sources = _sources(schema.removeprefix(FAMILY).partition("/")[0], record, path)
    more = f" and {len(sources) - _MAX_SOURCES} more" if len(sources) > _MAX_SOURCES else ""
    command = f"nlp-bench report {shlex.join(sources[:_MAX_SOURCES])}{more}"
    reason = f"a record of nlp-bench ({schema}), which holds no log lines to derive its numbers from"
    if sources:
        reason += f"; give what it was made from, with the same options: {command}"
    page = path.with_suffix(".html")
    if page.is_file():
        reason += f"; its table is in {page}"
    return RunEntry(source=source, outcome=Outcome.REFUSED, reasons=(Reason("earlier-record", one_line(reason)),))


def _sources(family: str, record: dict[str, Any], path: Path) -> list[str]:
    """Return the logs and run folders that a record names; a record in a run folder stands for that folder."""
    if (path.parent / "run.json").is_file():
        return [str(path.parent)]
    runs = record.get("runs") if family == "report" else [record.get("run")] if family == "result" else []
    found = (
        [str(run["source"]) for run in runs if isinstance(run, dict) and "source" in run]
        if isinstance(runs, list)
        else []
    )
    return list(dict.fromkeys(found))
