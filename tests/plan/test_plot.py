"""The plot of a plan: what is on it, and that both kinds of file are what they say."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from PIL import Image

from nlp_bench.cli.plan import write_plot
from nlp_bench.errors import UsageError
from nlp_bench.plan.plot import GRID, MAX_FILL, plan_chart
from nlp_bench.plan.ranking import Answer


def test_best_and_published_are_marked_where_they_are(answered: Answer) -> None:
    chart = plan_chart(answered)
    marks = {series.name.split(":")[0]: series for series in chart.series if series.errors}
    for name, row in (("best that fits", answered.rows[0]), ("published", answered.published)):
        assert (marks[name].xs, marks[name].ys) == ([row.memory_gib], [row.report_s])
        assert marks[name].errors == [(row.low_s, row.high_s)]
    assert marks["published"].shape != marks["best that fits"].shape


def test_dots_are_thinned_but_keep_the_extremes(answered: Answer) -> None:
    chart, figures = plan_chart(answered), answered.search.figures
    dots = [series for series in chart.series if not series.errors]
    shown = sum(len(series.xs) for series in dots)
    assert 0 < shown <= min(len(figures.iteration_s), GRID * GRID)
    factor = answered.problem.tokens / answered.problem.tokens_per_iteration
    shortest = min(min(series.ys) for series in dots)
    room = figures.memory_bytes / 2**30 <= MAX_FILL * answered.rows[0].capacity_gib
    least = float(figures.iteration_s[room].min()) * factor
    assert shortest == pytest.approx(least, rel=4 / GRID)
    assert len({series.colour for series in dots}) == len(dots)


def test_the_limit_stands_inside_the_tight_band(answered: Answer) -> None:
    chart = plan_chart(answered)
    (band,), (rule,) = chart.bands, chart.rules
    assert rule.value == answered.rows[0].capacity_gib == 40
    assert band.low < rule.value <= band.high


@pytest.mark.slow
def test_both_kinds_are_whole_and_small(answered: Answer, tmp_path: Path) -> None:
    path = tmp_path / "plan.svg"
    write_plot(plan_chart(answered), path)
    assert ET.parse(path).getroot().tag.endswith("svg")  # noqa: S314  # our own file
    assert path.stat().st_size < 300_000
    assert not re.search(r"https?://(?!www\.w3\.org/)", path.read_text())
    write_plot(plan_chart(answered), path.with_suffix(".png"))
    with Image.open(path.with_suffix(".png")) as image:
        assert image.width > 800


@pytest.mark.parametrize("name", ["plan.pdf", "plan"])
def test_other_endings_are_refused(answered: Answer, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"ends neither in \.svg nor in \.png"):
        write_plot(plan_chart(answered), tmp_path / name)
    assert not list(tmp_path.iterdir())
