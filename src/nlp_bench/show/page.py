"""Pieces of a page as data: packages give words, rows and plots, and never HTML; the style sheet and the script of all pages."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from nlp_bench.show.chart import Chart, HeatMap
from nlp_bench.show.escape import html_text
from nlp_bench.show.svg import figure


def asset(name: str) -> str:
    """Return page.css or page.js."""
    return files("nlp_bench.show").joinpath(name).read_text(encoding="utf-8")


def digest(content: str) -> str:
    """Return a hash source of Content Security Policy Level 3 (W3C) for the text of a style or script element."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


@dataclass(frozen=True, kw_only=True)
class Section:
    """Something to know about one run, or about all of them."""

    title: str
    """In a few words."""
    words: Sequence[str] = ()
    """Sentences, above the rows."""
    columns: Sequence[str] = ()
    """Headings of `rows`, with units; empty where the first cell of each row names the others."""
    rows: Sequence[Sequence[object]] = ()
    """Cells: numbers, texts, None for what is missing."""
    plots: Sequence[Chart | HeatMap] = ()
    """Below the rows."""
    text: str = ""
    """Lines to show as they are, last of all."""


def render(section: Section, name: str, level: int = 3) -> str:
    """Return a section as HTML; `name` is unique within the page, `level` that of its heading."""
    words = "".join(f"<li>{html_text(sentence)}</li>" for sentence in section.words)
    plots = "".join(figure(plot, f"{name}-{plot.key}") for plot in section.plots)
    parts = (
        f"<h{level}>{html_text(section.title)}</h{level}>",
        f"<ul>{words}</ul>" if words else "",
        _table(section) if section.rows else "",
        f'<div class="plots">{plots}</div>' if plots else "",
        f"<pre>{html_text(section.text)}</pre>" if section.text else "",
    )
    return f"<section>{''.join(parts)}</section>"


def _table(section: Section) -> str:
    numeric = [
        any(is_number(row[i]) for row in section.rows)
        and all(row[i] is None or is_number(row[i]) for row in section.rows)
        for i in range(len(section.rows[0]))
    ]
    kinds = [' class="n"' if flag else "" for flag in numeric]
    headings = "".join(
        f'<th scope="col"{kind}>{html_text(heading)}</th>'
        for heading, kind in zip(section.columns, kinds, strict=False)
    )
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{shown(value)}</td>" for value, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in section.rows
    )
    label = html_text(section.title)
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{label}"><table>{f"<thead><tr>{headings}</tr></thead>" if headings else ""}<tbody>{body}</tbody></table></div>'


def is_number(value: object) -> bool:
    """Say whether a value is to be aligned to the right."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: object) -> str:
    """Return a cell as HTML: two decimals, more for small numbers, nothing for what is missing."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) >= 1 or value == 0 else f"{value:.4g}"
    return html_text(value)
