"""HTML pages from templates with escaping on: one file each that loads nothing and runs nothing but our own script."""

import base64
import functools
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from nlp_bench.escape import visible
from nlp_bench.immutable import immutable
from nlp_bench.show.chart import Chart, HeatMap, why_no_plots
from nlp_bench.show.table import Table, is_number, plain

if TYPE_CHECKING:
    from jinja2 import Environment


@immutable
class Section:
    """A piece of a page about one run, or about all of them: packages give words, tables and plots, and never HTML."""

    title: str
    words: Sequence[str] = ()
    table: Table = ()  # below the words; without headings the first cell of each row names the others
    plots: Sequence[Chart | HeatMap] = ()  # below the table
    text: str = ""  # lines to show as they are, last of all


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  # only pages need it
    from markupsafe import Markup  # noqa: PLC0415

    def shown(value: object) -> object:
        """Return a value as tables have it; untrusted text without what cannot be seen."""
        return value if isinstance(value, Markup) else visible(plain(value))

    made = Environment(
        loader=PackageLoader("nlp_bench", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"trusted": Markup, "inline": _inline, "can_draw": lambda: not why_no_plots()}
    made.tests["a_number"] = is_number
    return made


def _inline(plot: Chart | HeatMap) -> str:
    from nlp_bench.show.draw import inline  # noqa: PLC0415  # heavy

    return inline(plot)


def page(template: str, *, title: str, style: str = "", script: str = "", **data: object) -> str:
    """Return a template that extends show/page.html as a document; `style` is added to the style sheet, `script` the name of an asset."""
    sheet, code = _asset("page.css") + style, _asset(script) if script else ""
    return _environment().get_template(template).render(
        title=title,
        style=sheet,
        style_digest=digest(sheet),
        script=code,
        script_digest=digest(code),
        **data,
    )  # fmt: skip


def _asset(name: str) -> str:
    return files("nlp_bench.show").joinpath(name).read_text(encoding="utf-8")


def digest(content: str) -> str:
    """Return a hash source of Content Security Policy Level 3 (W3C) for the text of a style or script element."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
