"""The findings as a record for programs: `--format json`, and doctor.json of a test of nodes."""

import socket
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nlp_bench.clock import now
from nlp_bench.config.origin import origin
from nlp_bench.doctor.examine import Examined
from nlp_bench.doctor.place import Place

SCHEMA = "nlp-bench/doctor/1"


def record(place: Place, examined: Sequence[Examined], *, nodes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the object that `doctor --format json` prints; `nodes` is what a test of nodes found, null without one."""
    return {
        "schema": SCHEMA,
        "created": now(),
        "nlp_bench": asdict(origin()),
        "host": socket.gethostname(),
        "system": place.system.name if place.system else None,
        "model": place.model,
        "root": str(Path(place.root)),
        "checks": checks(examined),
        "nodes": nodes,
    }


def checks(examined: Sequence[Examined]) -> list[dict[str, Any]]:
    """Return one object per check."""
    return [
        {
            "name": one.name,
            "status": one.finding.status,
            "summary": one.finding.summary,
            "evidence": list(one.finding.evidence),
            "remedy": one.finding.remedy or None,
            "elapsed_s": round(one.elapsed_s, 3),
        }
        for one in examined
    ]
