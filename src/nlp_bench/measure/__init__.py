"""Records to numbers: three throughputs that are never confused, their window, interval, and the verdict on a limit."""

from collections.abc import Mapping
from typing import Any

REPORT_TOKENS = 20_000_000  # tokens of the hypothetical training (NLP benchmark of the JUPITER suite)
Json = dict[str, Any]  # an object of JSON
Fields = Mapping[str, Any]  # the same, to read alone
Texts = tuple[str, ...]
