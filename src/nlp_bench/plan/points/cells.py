"""Cells of published tables: numbers, words for number formats, the year of a software version."""

import re
from collections.abc import Mapping

from nlp_bench.errors import UsageError


def year_of(version: str) -> float | None:
    """Return the year, with its fraction, that a software version tells: 2022-02-25, 25.04, MLPerf v3.1; None where it tells none."""
    if found := re.search(r"MLPerf v(\d)\.(\d)", version):  # v3.0 was June 2023, two rounds a year
        return 2020.4 + float(found[1]) + 0.5 * float(found[2])
    if found := re.search(r"(20\d\d)-(\d\d)", version):
        return float(found[1]) + (float(found[2]) - 0.5) / 12
    if found := re.search(r"(?<!\d)(20\d\d)", version):
        return float(found[1]) + 0.5
    if found := re.search(r"(?<![\d.])(2\d)\.(0[1-9]|1[0-2])\b", version):
        return 2000 + float(found[1]) + (float(found[2]) - 0.5) / 12
    return None


def precision_of(words: str) -> str:
    """Return the number format of the products that a table's words mean; raises UsageError for none."""
    told = set(re.findall(r"[a-z0-9]+", words.lower()))
    if found := next((name for name, spellings in _PRECISIONS.items() if told & spellings), None):
        return found
    known = sorted({one for spellings in _PRECISIONS.values() for one in spellings})
    raise UsageError(f"precision {words[:40]!r} is no number format; known are {', '.join(known)}")


_PRECISIONS = {
    "fp4": {"fp4", "nvfp4", "mxfp4"},
    "mxfp8": {"mxfp8"},
    "fp8-rowwise": {"rowwise"},
    "fp8": {"fp8", "float8"},
    "bf16": {"bf16", "bfloat16"},
    "fp16": {"fp16", "float16", "half"},
    "fp32": {"fp32", "float32", "tf32"},
}
"""Number format to the words that name it; of several words in a cell the first format counts."""


def cell(row: Mapping[str, str], name: str, otherwise: float | None = None) -> float:
    """Return a number above 0 of a row; raises UsageError for a blank without a rule, or a word."""
    text = row[name]
    if not text:
        if otherwise is None:
            raise UsageError(f"{name} is blank, and no rule fills it")
        return otherwise
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise UsageError(f"{name} = {text[:40]!r} is not a number above 0")
    if name not in _MEASURES and (value % 1 or value > _MOST):
        raise UsageError(f"{name} = {text[:40]!r} is not a whole number up to {_MOST:.0e}")
    return value


_MEASURES = ("gpu_mem_gb", "internode_gbps_per_node")
"""Columns that count nothing: GB and Gbit/s have fractions."""
_MOST = 1e9


def yes(row: Mapping[str, str], name: str, *, otherwise: bool) -> bool:
    """Return whether a cell says so; a blank is `otherwise`."""
    return otherwise if not row[name] else row[name] not in {"0", "0.0", "no", "false", "False"}


def told_memory(words: str) -> float | None:
    """Return the GiB that a GPU's name tells."""
    found = re.search(r"(\d{2,3}) ?G", words)
    return float(found[1]) if found else None
