"""JUBE's tags: which model, system and launcher they name. JUBE itself ignores a tag it does not know."""

import xml.etree.ElementTree as ET  # its usual name
from dataclasses import replace
from pathlib import Path

from nlp_bench.config import catalog, scheduler
from nlp_bench.config.rehearsal import TAG as REHEARSE
from nlp_bench.config.request import Request
from nlp_bench.errors import UsageError, nearest

UPSTREAM = "megatron_lm"
"""The tag of Megatron-LM's own trainer."""


def read_tags(jube_run: Path) -> list[str]:
    """Return the tags of a JUBE run, from the configuration.xml that JUBE 2.5 to 2.7 write into its folder."""
    path = jube_run / "configuration.xml"
    try:
        document = ET.parse(path)  # noqa: S314  # written by JUBE a moment ago, in the user's own folder
    except (OSError, ET.ParseError) as error:
        raise UsageError(f"--jube-run: {path} cannot be read as JUBE's configuration: {error}") from error
    return [element.text.strip() for element in document.findall("selection/tag") if element.text]


def apply_tags(request: Request, tags: list[str]) -> Request:
    """Fill what `request` leaves open from `tags`. Raises UsageError on an unknown tag and on two of one kind."""
    models, systems = catalog.names("models"), catalog.names("systems")
    known = {*models, *systems, *scheduler.BUILT_IN, UPSTREAM, REHEARSE}
    launchers = tuple(scheduler.BUILT_IN) if known.issuperset(tags) else scheduler.scheduler_names()
    kinds: dict[str, list[str]] = {"model": [], "system": [], "launcher": [], "trainer": []}
    for tag in tags:
        if tag in launchers:  # before the systems: the system `local` and the launcher `local` go together
            kinds["launcher"].append(tag)
        elif tag in models:
            kinds["model"].append(tag)
        elif tag in systems:
            kinds["system"].append(tag)
        elif tag == UPSTREAM:
            kinds["trainer"].append("megatron-lm")
        elif tag != REHEARSE:  # it says what is done with the run, not which one
            raise UsageError(
                f"tag: {tag!r} is unknown{nearest(tag, [*models, *systems, *launchers, UPSTREAM, REHEARSE])}"
            )
    for kind, found in kinds.items():
        if len(set(found)) > 1:
            raise UsageError(f"tag: {' and '.join(found)} are two tags for one {kind}; keep one")
        if found and getattr(request, kind) is None:
            request = replace(request, **{kind: found[0]})  # type: ignore[arg-type]  # all kinds are words
    return request
