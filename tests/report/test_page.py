"""The HTML page as text: what is on it, that strangers' words stay words, how large it gets. test_browser.py looks at it."""

import base64
import hashlib
import io
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image
from support.browsing import simulated_log
from support.command import Cli
from support.published import published_log, write_run
from support.repeated import write_runs
from support.series import write_series_run

from nlp_bench.inputs.sources import read_sources
from nlp_bench.measure.curves import IN_WINDOW, Curve, curves_of
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome
from nlp_bench.reason import Reason
from nlp_bench.report.explain import run_lines
from nlp_bench.report.page import page
from nlp_bench.report.plots import CHARTS, drawable, in_files
from nlp_bench.report.report import Report
from nlp_bench.show.chart import Band, Chart, HeatMap, Rule, Series
from nlp_bench.show.draw import image, inline
from nlp_bench.show.page import Section
from nlp_bench.show.page import page as html_page
from nlp_bench.show.table import label, table_of

TOKENS = 20_000_000
SEQUENCE = Overrides(sequence_length=2048, num_gpus=384)
EVIL = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "]]></style></svg><svg onload=alert(1)>",
    "javascript:alert(1)",
    "good\u202elog.exe\u2066",
    "&lt;b&gt; {{7*7}} \x00\x1b[31m",
    "\ud800 lone",
)


class Elements(HTMLParser):
    """Every element with its attributes, and the text outside of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def report_of(*paths: Path, limit_s: float | None = None) -> Report:
    sources = read_sources([str(path) for path in paths], SEQUENCE, with_samples=True)
    return Report(entries=sources.entries, tokens=TOKENS, limit_s=limit_s, passed_over=sources.passed_over)


@pytest.mark.parametrize(
    ("limit_s", "words"),
    [(None, "steady time for 20M tokens"), (900.0, "PASS"), (300.0, "FAIL"), (560.0, "NOT PROVEN")],
)
def test_the_head_says_what_it_means(log: Path, limit_s: float | None, words: str) -> None:
    head = page(report_of(log, limit_s=limit_s)).split("</header>")[0]
    assert words in Elements(head).text
    assert "384 GPUs" in Elements(head).text


def test_what_is_asked_for_is_there(log: Path) -> None:
    found = Elements(page(report_of(log, limit_s=560.0)))
    tags = [tag for tag, _ in found.found]
    assert tags.count("figure") == 3
    assert tags.count("table") >= 4
    for words in ("The number under other windows", "Where each number comes from", "36361.59", "left out: warm-up"):
        assert words in found.text
    images = [attributes for tag, attributes in found.found if tag == "img"]
    assert "steady rate 36,362 tokens per second over iterations 11 to 50" in (images[0]["alt"] or "")
    for drawn in images:
        svg = ET.fromstring(unquote((drawn["src"] or "").removeprefix("data:image/svg+xml,")))  # noqa: S314  # our own
        assert {"lm loss", "seconds per iteration", "tokens per second"} & set(svg.itertext())


@pytest.mark.slow
def test_repeats_are_one_measurement_with_its_verdict(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", 65000, 65200, 65100, seq_length=2048, world_size=384)
    found = Elements(page(report_of(tmp_path / "runs", limit_s=620.0)))
    assert "They are repeats of one configuration: 20,000,000 tokens take 614" in found.text
    assert "limit of 620 s: PASS" in found.text
    assert "repeats of" in found.text
    assert "95 % over runs from" in found.text
    assert "shortest time" not in found.text
    (tmp_path / "runs" / "other.log").write_text(simulated_log(40, seed=2))
    assert "They are repeats" not in page(report_of(tmp_path / "runs"))


@pytest.mark.slow
def test_page_and_terminal_say_of_the_same_runs_that_they_are_alone(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", 65000, 65200, seq_length=2048, world_size=384)
    (tmp_path / "runs" / "other.log").write_text(simulated_log(40, seed=2))
    found = report_of(tmp_path / "runs")
    alone = [
        entry.source for entry in found.entries if any("This is one run" in line for line in run_lines(entry, found))
    ]
    assert alone == [str(tmp_path / "runs" / "other.log")]
    assert page(found).count("This is one run") == 1


@pytest.mark.slow
def test_the_head_says_that_rules_are_broken(tmp_path: Path) -> None:
    write_series_run(tmp_path / "a")
    head = page(report_of(tmp_path)).split("</header>")[0]
    assert "jupiter-nlp: INVALID" in Elements(head).text
    write_series_run(tmp_path / "b", tp=2, seed=1)
    head = page(report_of(tmp_path)).split("</header>")[0]
    assert "2 of them break rules of the benchmark" in head


@pytest.mark.slow
def test_ids_are_unique(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    other.write_text(simulated_log(40, seed=2))
    found = Elements(page(report_of(log, other)))
    ids = [attributes["id"] for _, attributes in found.found if "id" in attributes]
    assert len(ids) == len(set(ids)) > 5
    links = [a["href"] for tag, a in found.found if tag == "a"]
    assert links == ["#r0", "#r1"]
    assert set(links) <= {f"#{name}" for name in ids}


@pytest.mark.slow
def test_standard_output_and_file_are_one(log: Path, tmp_path: Path, cli: Cli) -> None:
    words = ["report", log, "--sequence-length", "2048", "--format"]
    for form in ("html", "csv"):
        said = cli(*words, form, "--output", tmp_path / "out").out
        assert said == (tmp_path / f"out/report.{form}").read_text(encoding="utf-8")
    said = cli(*words, "markdown").out
    assert said in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def evil_entry(log: Path, text: str) -> RunResult:
    (entry,) = measure_log(str(log), SEQUENCE)
    words = dict.fromkeys(("source", "model", "dialect"), text)
    curves = curves_of(entry.records, entry.throughput)
    return replace(entry, **words, reasons=(Reason("any", text),), remarks=(text,), curves=curves)


Shape = list[tuple[str, list[str]]]


def shape_of(drawn: str) -> Shape:
    return [(tag, sorted(attributes)) for tag, attributes in Elements(drawn).found]


def page_of(log: Path, text: str) -> str:
    failed = RunResult(source=text, outcome=Outcome.FAILED, reasons=(Reason("any", text),))
    return page(Report(entries=[evil_entry(log, text), evil_entry(log, text), failed], tokens=TOKENS))


@pytest.fixture(scope="module")
def tame(tmp_path_factory: pytest.TempPathFactory) -> Shape:
    path = tmp_path_factory.mktemp("tame") / "job.log"
    path.write_text(published_log())
    return shape_of(page_of(path, "x"))


@pytest.mark.slow
@pytest.mark.parametrize("text", EVIL)
def test_words_of_strangers_stay_words(log: Path, tame: Shape, text: str) -> None:
    evil = page_of(log, text)
    assert shape_of(evil) == tame
    assert not re.search("[\x00-\x08\x1b\u202a-\u202e\u2066-\u2069\ud800-\udfff]", evil)
    for _, attributes in Elements(evil).found:
        assert not [name for name in attributes if name.startswith("on")]
        assert not re.match(r"(?!#|data:,$)", attributes.get("href") or "#")


@pytest.mark.parametrize("text", EVIL)
def test_plots_of_other_rooms_are_inert_too(text: str) -> None:
    chart = Chart(
        key="k", title=text, description=text, x_label=text, y_label=text, note=text,
        series=[Series(name=text, xs=[1.0, 2.0], ys=[3.0, 4.0], errors=[(2.0, 4.0), None])],
        bands=[Band(name=text, low=1, high=2)], rules=[Rule(name=text, value=3.5, axis="y")],
    )  # fmt: skip
    heat = HeatMap(
        key="h", title=text, description=text, x_label=text, y_label=text, x_names=[text], y_names=[text, "y"],
        values=[[1.0], [None]], texts=[[text], [text]], marked=frozenset({(0, 0)}),
    )  # fmt: skip
    section = Section(title=text, words=[text], table=table_of([text], [[text]]), plots=[chart, heat], text=text)
    texts = {"title": text, "version": text, "commitment": text}
    drawn = html_page("cli/plan/bid.html", **texts, sections=[section], signatures=[text])
    svgs = [unquote(found).partition(",")[2] for found in re.findall(r'src="([^"]+)"', drawn)]
    assert len(svgs) == 2
    for found in (Elements(drawn).found, *(Elements(svg).found for svg in svgs)):
        assert not {tag for tag, _ in found} & {"script", "image", "b", "iframe", "object", "a", "foreignobject"}
        assert not {name for _, attributes in found for name in attributes if name.startswith("on")}
    for svg in svgs:
        ET.fromstring(svg)  # noqa: S314  # our own


def test_only_our_script_and_style_may_run(log: Path) -> None:
    text = page(report_of(log))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    (script,) = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    for name, content in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert not [a for _, a in Elements(text).found if "style" in a]
    sources = [a["src"] for _, a in Elements(text).found if "src" in a]
    assert all((source or "").startswith("data:image/svg+xml,") for source in sources)
    assert not re.search(r"https?:|@import|url\(", re.sub(r'src="[^"]+"', "", text))


def test_a_published_value_has_no_plot() -> None:
    entry = RunResult(source="table", outcome=Outcome.MEASURED, published_tokens_per_second=36055.39)
    text = Elements(page(Report(entries=[entry], tokens=TOKENS, limit_s=560.0))).text
    assert "554.70" in text
    assert "NOT PROVEN" in text


def test_a_cpu_run_is_no_gpu_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "run.json").write_text((folder / "run.json").read_text().replace('"cuda"', '"cpu"'))
    head = Elements(page(report_of(folder)).split("</header>")[0]).text
    assert "384 CPU ranks" in head
    assert "GPU" not in head


@pytest.mark.slow
@pytest.mark.parametrize(("number", "plots"), [(30, 3 * 30 + 3), (31, 3), (101, 3)])
def test_pages_of_many_runs_stay_small(tmp_path: Path, number: int, plots: int) -> None:
    path = tmp_path / "a.log"
    path.write_text(simulated_log(2000, seed=1))
    entry = report_of(path).entries[0]
    entries = [replace(entry, source=f"sweep/{index:06d}_train/work") for index in range(number)]
    text = page(Report(entries=entries, tokens=TOKENS, limit_s=560.0))
    assert len(text.encode()) < 100_000 * plots / 3 + 10_000 * number
    assert text.count("<figure") == plots
    assert ("logged intervals are drawn" in text) == (plots > 3)
    assert ("the plots of each run are left to a report of fewer" in text) == (plots == 3)
    assert ("left to --format json and --explain" in text) == (number > 100)


@pytest.mark.slow
def test_many_more_runs_than_have_details(log: Path) -> None:
    entry = report_of(log).entries[0]
    text = page(Report(entries=[replace(entry, source=str(number)) for number in range(1003)], tokens=TOKENS))
    assert "Details are given of the first 1,000 of 1,003 runs" in text
    assert text.count('<div id="r') == 1000
    assert 'href="#r1000"' not in text


def made_entries(tmp_path: Path, *mean_s: float) -> list[RunResult]:
    folder = tmp_path / ("a_long_name_of_a_folder" * 4)
    folder.mkdir()
    for number, mean in enumerate(mean_s):
        (folder / f"{number:02d}.log").write_text(simulated_log(12, seed=number, mean_s=mean))
    return list(report_of(folder).entries)


@pytest.mark.parametrize(("number", "titles"), [(1, 1), (6, 1), (7, 7), (12, 12), (13, 1)])
def test_files_have_few_runs_together_some_side_by_side_many_as_dots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, titles: int
) -> None:
    # of the last of 13 no curves are kept: it has its dot all the same
    monkeypatch.setattr("nlp_bench.inputs.sources.MAX_DRAWN", 12)
    entries = drawable(made_entries(tmp_path, *(5.0 + index for index in range(number))))
    for make in CHARTS:
        found = in_files(make, entries)
        assert len({chart.title for chart in found}) == titles
        assert all(len(chart.series) <= 12 for chart in found)
        assert (f" of {number} runs" in found[0].title) == (number > 12)


@pytest.mark.slow
def test_runs_whose_paths_end_alike_are_told_apart(tmp_path: Path) -> None:
    named = ["a.out", *(f"lab/{where}/gpt_tp8_pp12_mbs1_gbs192_bf16/rank_000/stdout.log" for where in "AB")]
    runs = [replace(entry, source=name) for entry, name in zip(made_entries(tmp_path, 5, 6, 7), named, strict=True)]
    for make in CHARTS:
        (chart,) = in_files(make, runs)
        assert [one.name for one in chart.series[:3]] == ["a.out", "lab/A/gpt_tp8_pp1...", "lab/B/gpt_tp8_pp1..."]
    for entries, name in ((runs, "runs whole"), (runs[:2], "runs")):
        assert f'<table id="runs" class="{name}">' in page(Report(entries=entries, tokens=TOKENS))


def test_dots_are_sorted_and_one_far_away_does_not_flatten_them(tmp_path: Path) -> None:
    (dots,) = in_files(CHARTS[0], made_entries(tmp_path, 5000.0, *(9.0 - 0.1 * index for index in range(14))))
    (series,) = dots.series
    assert len(series.ys) == 14
    assert list(series.ys) == sorted(series.ys)
    assert max(series.ys) < 2 * min(series.ys)
    assert all(bar and bar[0] <= y <= bar[1] for y, bar in zip(series.ys, series.errors, strict=True))
    assert "not drawn: 1" in dots.note
    assert "00.log" in dots.note


def test_one_loss_of_many_runs_is_a_dot(tmp_path: Path) -> None:
    for number in range(14):
        text = simulated_log(12, seed=number)
        (tmp_path / f"{number}.log").write_text(re.sub(r" lm loss: \S+ \|", "", text) if number else text)
    (dots,) = in_files(CHARTS[1], report_of(tmp_path).entries)
    assert [len(series.ys) for series in dots.series] == [1]


def test_a_few_runs_far_apart_have_logarithmic_axes(tmp_path: Path) -> None:
    assert CHARTS[0](made_entries(tmp_path, 5.0, 5.5)).log_axes == ""  # type: ignore[union-attr]
    (tmp_path / "far").mkdir()
    assert CHARTS[0](made_entries(tmp_path / "far", 5.0, 500.0)).log_axes == "y"  # type: ignore[union-attr]


@pytest.mark.parametrize("number", [1, 13])
def test_no_caption_is_cut(tmp_path: Path, number: int) -> None:
    charts = in_files(CHARTS[0], made_entries(tmp_path, *(5.0 + index for index in range(number))))
    charts = [replace(chart, note=" ".join([chart.note, *["and many words more"] * 20])) for chart in charts]
    drawn = Image.open(io.BytesIO(image(*charts, kind="png"))).convert("L")
    for edge in ((0, 0, 3, drawn.height), (drawn.width - 3, 0, drawn.width, drawn.height)):
        assert drawn.crop(edge).getextrema() == (255, 255)


def test_the_envelope_is_whole() -> None:
    values = np.random.default_rng(1).normal(size=100_000)
    curve = Curve.of(np.arange(100_000.0), values, 200)
    assert len(curve.xs) <= 200
    assert (curve.ys.min(), curve.ys.max(), curve.num_all) == (values.min(), values.max(), 100_000)
    assert np.array_equal(values[curve.xs.astype(int)], curve.ys)
    assert (np.diff(curve.xs) > 0).all()
    assert curve.fewer(50).ys.max() == values.max()
    assert Curve.of(np.arange(3.0), values[:3], 200).num_all == 3


def test_every_interval_is_drawn_once(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(simulated_log(100, seed=3))
    (entry,) = measure_log(str(path), SEQUENCE)
    curves = curves_of(entry.records, entry.throughput)
    assert sum(curve.num_all for curve in curves.rates.values()) == 100
    assert curves.rates[IN_WINDOW].num_all == len(entry.throughput.window.spans)
    assert "warm-up" in curves.rates
    assert curves.step_times.ys[-1] == 1


@pytest.mark.parametrize(
    ("xs", "ys"),
    [([1.0], [1.0]), ([1.0, 2.0], [5.0, 5.0]), ([0.0, 1e-12], [1e15, 1e15 + 1]), ([1.0, 1e9], [1e-9, 1e12])],
)
@pytest.mark.parametrize("log_axes", ["", "xy"])
def test_axes_hold_every_point(xs: list[float], ys: list[float], log_axes: str) -> None:
    xs = [x or 1e-13 for x in xs]
    words = dict.fromkeys(("key", "title", "description", "x_label", "y_label"), "k")
    chart = Chart(**words, series=[Series(xs=xs, ys=ys)], log_axes=log_axes)
    svg = unquote(inline(chart))
    assert "nan" not in svg
    assert 1 <= svg.count("text-anchor: end") <= 12
    width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
    places = [tuple(map(float, pair)) for pair in re.findall(r'x="([-\d.]+)" y="([-\d.]+)" style="fill', svg)]
    assert len(places) == len(xs)
    assert all(0 < x < width and 0 < y < height for x, y in places)


def test_labels_are_short() -> None:
    values = (0.0, 0.05, 5.25, 500.0, 36_000.0, 120_000.0, 1_200_000.0, 3e-7, -2.5)
    assert [label(value) for value in values] == ["0", "0.05", "5.25", "500", "36,000", "120k", "1.2M", "3e-07", "-2.5"]
