"""The constants' file with fitted values in their places; comments and everything else stay as they are."""

import json
import re
from collections.abc import Mapping

from nlp_bench.errors import NlpBenchError
from nlp_bench.plan.constants import Constants


def with_fit(
    text: str, fitted: Constants, ends: Mapping[str, tuple[float, float]], source: str, interval_source: str
) -> str:
    """Return the text of benchmark/plan.toml with the values, the interval and their sources replaced."""
    for name in fitted.fitted():
        text = _replaced(
            text,
            rf"^({name} = \{{ value = )[^,]+(,.*?source = )\"(?:[^\"\\]|\\.)*\"",
            rf"\g<1>{fitted[name]:.4g}\g<2>{_quoted(source)}",
            name,
        )
    for family, (low, high) in ends.items():
        line = f"{family} = {{ low = {low:.3f}, high = {high:.3f} }}"
        text = _replaced(text, rf"^{family} = \{{ low = .*$", line, f"[interval] {family}")
    return _replaced(text, r"^(\[interval\]\nsource = ).*$", rf"\g<1>{_quoted(interval_source)}", "[interval] source")


def _quoted(words: str) -> str:
    return json.dumps(words).replace("\\", "\\\\")


def _replaced(text: str, pattern: str, line: str, name: str) -> str:
    found, count = re.subn(pattern, line, text, flags=re.MULTILINE)
    if count != 1:
        raise NlpBenchError(
            f"benchmark/plan.toml: {name} stands {count} times on a line of its own, not once; mend the file first"
        )
    return found
