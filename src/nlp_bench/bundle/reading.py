"""Reads JSON that nobody vouches for."""

from pathlib import Path
from typing import Any

from nlp_bench.files import parse_json


def read_record(path: Path) -> tuple[Any, str | None]:
    """Return what a JSON file holds, and why it cannot be read where that is so."""
    try:
        return parse_json(path.read_text(encoding="utf-8")), None
    except FileNotFoundError:
        return None, "is missing"
    except (OSError, ValueError) as error:
        return None, f"is not JSON: {type(error).__name__}"
