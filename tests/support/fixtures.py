"""Fixtures of dialects: one TOML file for a dialect or for one of its versions, made from the format string.

dialect = "torchtitan"
log = '''…lines…'''
derivable = [12000.0, 13000.0]            # optional: rates that a careful reader may derive from what is left of a torn log
[[case]]
options = { num_gpus = 8 }                # sequence_length, global_batch_size, num_gpus
outcome = "MEASURED"                      # or VALID, REFUSED, INVALID, FAILED, ...
steady = 12345.6                          # tokens per second, 0.1 % tolerance
reference = 12000.0                       # likewise; leave out what is not to be checked, false for "must be null"
num_records = 10
num_gpus = 8
says = ["--num-gpus"]                     # words that the reasons or remarks must hold
"""

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parents[1] / "logs" / "fixtures"


def fixtures() -> list[tuple[str, dict[str, Any]]]:
    return [(path.stem, tomllib.loads(path.read_text(encoding="utf-8"))) for path in sorted(FOLDER.glob("*.toml"))]
