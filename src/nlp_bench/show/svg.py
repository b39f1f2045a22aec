"""Plots as compact SVG, within an HTML page or as files: chart.css colours them for light, dark and paper, their texts are real texts.

All data of a line is one relative path in tenths of a unit: a plot of 100 points takes about 2 kB.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import pairwise

from nlp_bench.escape import end_of, html_text
from nlp_bench.show.chart import (
    COLUMNS,
    EXCLUDED,
    LIMIT,
    MAX_LEGEND,
    NUM_COLOURS,
    Chart,
    HeatMap,
    Rule,
    Scale,
    Series,
    scales,
    strengths,
    text_of,
)
from nlp_bench.show.table import label

MAX_DOTS = 40  # a line of as many points shows each of them
WIDTH, HEIGHT = 400, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 392, 10, 192
_MARKS = {
    "dot": "h0",
    "cross": "m-35-35l70 70m0-70l-70 70",
    "plus": "m-40 0h80m-40-40v80",
    "square": "m-32-32h64v64h-64z",
    "triangle": "m0-40l38 68h-76z",
    "diamond": "m0-42l36 42l-36 42l-36-42z",
    "circle": "m-42 0a42 42 0 1 0 84 0a42 42 0 1 0-84 0",
}
"""Outline of a mark around the point that was moved to, in tenths; a dot is the round end of a line without length."""
_CELL_WIDTH, _CELL_HEIGHT = 80, 30  # wide enough for the longest outcome, also in the letters of a phone
_DIGIT = 8.0  # width of a digit on a phone, where the letters are largest


def figure(plot: Chart | HeatMap, name: str) -> str:
    """Return an HTML figure with its heading, plot, legend and note; `name` is unique within the page."""
    drawn, keys = (drawing(plot), _legend(plot)) if isinstance(plot, Chart) else (_heat_map(plot), "")
    width, height = (WIDTH, HEIGHT) if isinstance(plot, Chart) else _heat_size(plot)
    note = f'<p class="note">{html_text(plot.note)}</p>' if plot.note else ""
    words = (
        f'<title id="{name}t">{html_text(plot.title)}</title><desc id="{name}d">{html_text(plot.description)}</desc>'
    )
    return (
        f'<figure class="{plot.key}"><h4>{html_text(plot.title)}</h4>'
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-labelledby="{name}t {name}d">{words}{drawn}</svg>'
        f"<figcaption>{keys}{note}</figcaption></figure>"
    )


def drawing(chart: Chart) -> str:
    """Return what stands on a plot of WIDTH x HEIGHT, without its heading and legend."""
    if not chart.series:
        return f'<text class="tc" x="{WIDTH // 2}" y="{HEIGHT // 2}">{html_text(chart.title)}</text>'
    x, y = scales(chart)
    parts = [
        *(_band(band.low, band.high, band.colour, x) for band in chart.bands),
        _axes(chart, x, y),
        *(part for series in chart.series for part in _series(series, x, y)),
        *(_rule(rule, x, y) for rule in chart.rules),
    ]
    return "".join(parts)


def _at_x(value: float, scale: Scale) -> float:
    return _LEFT + (_RIGHT - _LEFT) * scale.share(value)


def _at_y(value: float, scale: Scale) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * scale.share(value)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _colour(colour: int) -> str:
    return {EXCLUDED: "cx", LIMIT: "cl"}.get(colour, f"c{colour % NUM_COLOURS}")


def _band(low: float, high: float, colour: int, x: Scale) -> str:
    left = _at_x(low, x)
    width = max(_at_x(high, x) - left, 2.0)  # a window of one interval is seen too
    return (
        f'<rect class="band {_colour(colour)}" x="{_number(left)}" y="{_TOP}" width="{_number(width)}" '
        f'height="{_BOTTOM - _TOP}"/>'
    )


def _axes(chart: Chart, x: Scale, y: Scale) -> str:
    lines = "".join(f"M{_LEFT} {_number(_at_y(tick, y))}H{_RIGHT}" for tick in y.ticks)
    marks = "".join(f"M{_number(_at_x(tick, x))} {_BOTTOM}v4" for tick in x.ticks)
    texts = [
        f'<text x="{_LEFT - 6}" y="{_number(_at_y(tick, y) + 4)}">{html_text(label(tick))}</text>' for tick in y.ticks
    ]
    below = "".join(
        f'<text x="{_number(place)}" y="{_BOTTOM + 17}">{html_text(words)}</text>'
        for place, words in _apart(x, chart.x_names)
    )
    middle = (_TOP + _BOTTOM) // 2
    return (
        f'<path class="grid" d="{lines}"/><path class="axis" d="M{_LEFT} {_BOTTOM}H{_RIGHT}{marks}"/>'
        f'<g class="ty">{"".join(texts)}</g><g class="tx">{below}'
        f'<text x="{(_LEFT + _RIGHT) // 2}" y="{HEIGHT - 8}">{html_text(chart.x_label)}</text>'
        f'<text transform="translate(11 {middle})rotate(-90)">{html_text(chart.y_label)}</text></g>'
    )


def _apart(x: Scale, names: Sequence[str]) -> Iterator[tuple[float, str]]:
    """Yield place and label of the ticks, without those that would touch the label before."""
    free = 0.0
    for tick, words in zip(x.ticks, names or map(label, x.ticks), strict=True):
        place, half = _at_x(tick, x), len(words) * _DIGIT / 2
        if place - half >= free:
            free = place + half + _DIGIT
            yield place, words


def _series(series: Series, x: Scale, y: Scale) -> Iterator[str]:
    points = [(round(10 * _at_x(a, x)), round(10 * _at_y(b, y))) for a, b in zip(series.xs, series.ys, strict=True)]
    if not points:
        return
    colour = _colour(series.colour)
    if series.errors:
        bars = "".join(
            f"M{place} {round(10 * _at_y(pair[0], y))}V{round(10 * _at_y(pair[1], y))}"
            for (place, _), pair in zip(points, series.errors, strict=True)
            if pair
        )
        yield f'<path class="l {colour}" d="{bars}"/>'
    if series.style != "points" and len(points) > 1:
        dash = " d" if series.is_dashed else ""
        yield f'<path class="l{dash} {colour}" d="{_path(points, is_step=series.style == "step")}"/>'
    if series.style == "points" or (series.style == "line" and not series.is_dashed and len(points) <= MAX_DOTS):
        yield _marked(_marks(points, series.shape), series)


def _path(points: Sequence[tuple[int, int]], *, is_step: bool) -> str:
    first, *_ = points
    steps = ((after[0] - before[0], after[1] - before[1]) for before, after in pairwise(points))
    if is_step:
        return f"M{first[0]} {first[1]}" + "".join(f"h{right}v{down}" for right, down in steps)
    return f"M{first[0]} {first[1]}l" + _joined(number for step in steps for number in step)


def _joined(numbers: Iterable[int]) -> str:
    # A minus sign parts two numbers as well as a space.
    return " ".join(map(str, numbers)).replace(" -", "-")


def _marks(points: Sequence[tuple[int, int]], shape: str) -> str:
    return "".join(f"M{across} {down}{_MARKS[shape]}" for across, down in dict.fromkeys(points))


def _marked(path: str, series: Series) -> str:
    kind = "p" if series.shape == "dot" else "m"
    return f'<path class="{kind} {_colour(series.colour)}" d="{path}"/>'


def _rule(rule: Rule, x: Scale, y: Scale) -> str:
    ends = rule.span
    if rule.axis == "x":
        low, high = (_at_y(ends[0], y), _at_y(ends[1], y)) if ends else (_BOTTOM, _TOP)
        line = f"M{_number(_at_x(rule.value, x))} {_number(low)}V{_number(high)}"
    else:
        low, high = (_at_x(ends[0], x), _at_x(ends[1], x)) if ends else (_LEFT, _RIGHT)
        line = f"M{_number(low)} {_number(_at_y(rule.value, y))}H{_number(high)}"
    return f'<path class="r{" d" if rule.is_dashed else ""} {_colour(rule.colour)}" d="{line}"/>'


def legend_keys(chart: Chart) -> list[tuple[str, str]]:
    """Return the named parts of a plot, each as its mark on a field of 24 x 14 and its name as plain text."""
    keys = [(f'<rect class="band {_colour(b.colour)}" width="24" height="14"/>', b.name) for b in chart.bands]
    for series in chart.series:
        is_line = series.style != "points"
        line = f'<path class="l {_colour(series.colour)}" d="M0 70H240"/>' if is_line else ""
        mark = _marked(f"M120 70{_MARKS[series.shape]}", series)
        keys.append((line + (mark if series.style != "step" else ""), series.name))
    for rule in chart.rules:
        line = "M12 0V14" if rule.axis == "x" else "M0 7H24"
        shape = f'<path class="r{" d" if rule.is_dashed else ""} {_colour(rule.colour)}" d="{line}"/>'
        keys.append((shape, rule.name))
    return [(shape, name) for shape, name in keys if name][:MAX_LEGEND]


def _legend(chart: Chart) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 24 14" aria-hidden="true">{shape}</svg>{html_text(name)}</li>'
        for shape, name in legend_keys(chart)
    )
    return f'<ul class="keys">{items}</ul>' if items else ""


def _heat_size(heat: HeatMap) -> tuple[int, int]:
    # Not narrower than the other plots: the page stretches it to the same width, and its letters with it.
    return max(WIDTH, _LEFT + _CELL_WIDTH * len(heat.x_names) + 12), _TOP + _CELL_HEIGHT * len(heat.y_names) + 46


def _heat_map(heat: HeatMap) -> str:
    _, height = _heat_size(heat)
    bottom = _TOP + _CELL_HEIGHT * len(heat.y_names)
    across = "".join(
        f'<text x="{_LEFT + _CELL_WIDTH * index + _CELL_WIDTH // 2}" y="{bottom + 16}">{html_text(name)}</text>'
        for index, name in enumerate(heat.x_names)
    )
    down = "".join(
        f'<text x="{_LEFT - 6}" y="{_TOP + _CELL_HEIGHT * index + 19}">{html_text(name)}</text>'
        for index, name in enumerate(heat.y_names)
    )
    cells = (
        _cell(heat, row, column, strength)
        for row, line in enumerate(strengths(heat))
        for column, strength in enumerate(line)
    )
    return (
        f'{"".join(cells)}<g class="ty">{down}</g><g class="tx">{across}'
        f'<text x="{_LEFT + _CELL_WIDTH * len(heat.x_names) // 2}" y="{height - 8}">{html_text(heat.x_label)}</text>'
        f'<text transform="translate(11 {(_TOP + bottom) // 2})rotate(-90)">{html_text(heat.y_label)}</text></g>'
    )


def _cell(heat: HeatMap, row: int, column: int, strength: float | None) -> str:
    x, y = _LEFT + _CELL_WIDTH * column, _TOP + _CELL_HEIGHT * row
    size = f'x="{x + 1}" y="{y + 1}" width="{_CELL_WIDTH - 2}" height="{_CELL_HEIGHT - 2}"'
    # At most .35: the text on it keeps its contrast in both themes.
    fill = f'class="heat" fill-opacity="{0.05 + 0.3 * strength:.2f}"' if strength is not None else 'class="none"'
    frame = f'<rect class="won" {size}/>' if (row, column) in heat.marked else ""
    text = html_text(text_of(heat, row, column))
    return f'<rect {fill} {size}/>{frame}<text class="tc" x="{x + _CELL_WIDTH // 2}" y="{y + 19}">{text}</text>'


_EDGE, _TITLE, _LINE, _NOTE = 8, 22, 16, 11
"""Around a plot in a file; height of its title, of a row of its legend, of a line of its note."""
_TITLE_LETTERS, _NOTE_LETTERS = 60, 84
_STYLE = (
    "svg text.note{fill:var(--muted);font-size:9px}svg text.key{font-size:10.5px}svg{font-family:system-ui,sans-serif}"
)


def asset(name: str) -> str:
    """Return a style sheet, script or template of this package."""
    return files("nlp_bench.show").joinpath(name).read_text(encoding="utf-8")


def svg_file(*plots: Chart | HeatMap, columns: int = COLUMNS) -> str:
    """Return plots side by side as one SVG document, which brings its style sheet and follows the reader's light or dark."""
    blocks = [_block(plot) for plot in plots]
    width = max(width for _, width, _ in blocks)
    parts, below = [], 0
    for first in range(0, len(blocks), columns):
        row = blocks[first : first + columns]
        parts += [
            f'<g transform="translate({width * index} {below})">{text}</g>' for index, (text, _, _) in enumerate(row)
        ]
        below += max(height for _, _, height in row)
    across = width * min(len(plots), columns)
    words = html_text(" ".join(dict.fromkeys(plot.description for plot in plots)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {below}" width="{2 * across}" height="{2 * below}" '
        f'role="img" aria-labelledby="t d"><title id="t">{html_text(plots[0].title)}</title><desc id="d">{words}</desc>'
        f"<style><![CDATA[{asset('chart.css')}{_STYLE}]]></style>"
        f'<rect width="{across}" height="{below}" fill="var(--card)"/>{"".join(parts)}</svg>\n'
    )


def _block(plot: Chart | HeatMap) -> tuple[str, int, int]:
    """Return a plot with its title, legend and note, and its width and height."""
    if isinstance(plot, Chart):
        width, height, keys, drawn = WIDTH, HEIGHT, legend_keys(plot), drawing(plot)
    else:
        (width, height), keys, drawn = _heat_size(plot), [], _heat_map(plot)
    below = _TITLE + height
    parts = [
        f'<text x="{_EDGE}" y="17" font-weight="600">{html_text(end_of(plot.title, _TITLE_LETTERS))}</text>',
        f'<g transform="translate(0 {_TITLE})">{drawn}</g>',
    ]
    for shape, name in keys:
        parts.append(
            f'<g transform="translate({_EDGE} {below})">{shape}</g>'
            f'<text class="key" x="{_EDGE + 30}" y="{below + 11}">{html_text(name)}</text>'
        )
        below += _LINE
    for line in textwrap.wrap(plot.note, _NOTE_LETTERS):
        below += _NOTE
        parts.append(f'<text class="note" x="{_EDGE}" y="{below}">{html_text(line)}</text>')
    return "".join(parts), width + 2 * _EDGE, below + 2 * _EDGE
