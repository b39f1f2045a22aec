"""Reads JSON that nobody vouches for."""

import json
from pathlib import Path
from typing import Any


def read_record(path: Path) -> tuple[Any, str | None]:
    """Return what a JSON file holds, and why it cannot be read where that is so."""
    try:
        return json.loads(path.read_text(encoding="utf-8")), None
    except FileNotFoundError:
        return None, "is missing"
    except (OSError, ValueError, RecursionError) as error:
        return None, f"is not JSON: {type(error).__name__}"
