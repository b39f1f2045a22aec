"""A plot as one SVG file that needs no page: it brings its style sheet, and follows the reader's light or dark."""

import textwrap

from nlp_bench.show.chart import Chart
from nlp_bench.show.escape import html_text
from nlp_bench.show.svg import HEIGHT, WIDTH, drawing, legend_keys

_EDGE, _TITLE, _LINE, _NOTE = 8, 22, 16, 11
"""Room around everything, of the title, of a row of the legend, of a line of the note."""
_LETTERS = 84
"""Of the note, on one line."""
_STYLE = (
    "svg text.note{fill:var(--muted);font-size:9px}svg text.key{font-size:10.5px}svg{font-family:system-ui,sans-serif}"
)


def svg_file(chart: Chart, style: str) -> str:
    """Return `chart` as an SVG document; `style` is the style sheet of the pages, whose classes the drawing uses."""
    keys, note = legend_keys(chart), textwrap.wrap(chart.note, _LETTERS)
    below = _TITLE + HEIGHT
    height = below + _LINE * len(keys) + _NOTE * len(note) + 2 * _EDGE
    width = WIDTH + 2 * _EDGE
    parts = [
        f'<rect width="{width}" height="{height}" fill="var(--card)"/>',
        f'<text x="{_EDGE}" y="17" font-weight="600">{html_text(chart.title)}</text>',
        f'<g transform="translate(0 {_TITLE})">{drawing(chart)}</g>',
        *(_key(shape, name, place, below) for place, (shape, name) in enumerate(keys)),
        *(
            f'<text class="note" x="{_EDGE}" y="{below + _LINE * len(keys) + _NOTE * (line + 1)}">{html_text(words)}</text>'
            for line, words in enumerate(note)
        ),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{2 * width}" height="{2 * height}" '
        f'role="img" aria-labelledby="t d"><title id="t">{html_text(chart.title)}</title>'
        f'<desc id="d">{html_text(chart.description)}</desc><style><![CDATA[{style}{_STYLE}]]></style>{"".join(parts)}</svg>\n'
    )


def _key(shape: str, name: str, place: int, below: int) -> str:
    y = below + place * _LINE
    return (
        f'<g transform="translate({_EDGE} {y})">{shape}</g>'
        f'<text class="key" x="{_EDGE + 30}" y="{y + 11}">{html_text(name)}</text>'
    )
