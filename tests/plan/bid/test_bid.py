"""The bid sheet: the commitment, the command that runs what is offered, and that no figure passes for a measurement."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from nlp_bench.cli.parser import parser_of
from nlp_bench.cli.plan.bid import FORMATS, form_of, sheet
from nlp_bench.config.request import from_options
from nlp_bench.config.resolve import resolve
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.plan.bid import Files, bid
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.problem import configuration_of, sizes_of
from nlp_bench.plan.ranking import Answer, rows_of


def test_without_a_margin_the_upper_end_is_committed_to(answered: Answer, points: Path) -> None:
    made = bid(answered, files=Files(points=points))
    assert made.commitment_s == answered.rows[0].high_s
    assert "upper end of the 90 % interval" in made.basis


@pytest.mark.parametrize(("margin", "place"), [(0.5, "below"), (900.0, "at or above")])
def test_a_margin_is_added_and_held_against_the_interval(
    answered: Answer, points: Path, margin: float, place: str
) -> None:
    made = bid(answered, files=Files(points=points), margin=margin)
    assert made.commitment_s == pytest.approx(answered.rows[0].report_s * (1 + margin / 100))
    assert f"{margin:g} % margin, {place} the upper end" in made.basis


@pytest.mark.parametrize("margin", [-1.0, float("nan"), 5000.0])
def test_bad_margin(answered: Answer, points: Path, margin: float) -> None:
    with pytest.raises(UsageError, match="--margin"):
        bid(answered, files=Files(points=points), margin=margin)


def test_nothing_is_offered_where_nothing_fits(answered: Answer, points: Path) -> None:
    with pytest.raises(NlpBenchError, match="nothing to offer"):
        bid(replace(answered, rows=()), files=Files(points=points))


def test_the_command_runs_what_is_offered(answered: Answer, points: Path) -> None:
    """The options go through the command line, the resolver and back into the planner: same sizes, same prediction."""
    made = bid(answered, files=Files(points=points))
    words = shlex.split(made.commands["submit"])
    assert words[:2] == ["nlp-bench", "submit"]
    run = resolve(from_options(parser_of("check").read(words[2:])), ask_scheduler=False)
    again = configuration_of(run, read_constants())
    assert sizes_of(again, 0) == made.row.sizes
    (row,) = rows_of(again, answered.problem)
    assert (row.report_s, row.memory_gib) == pytest.approx((made.row.report_s, made.row.memory_gib))


@pytest.mark.parametrize("form", ["table", "markdown", "html"])
def test_the_sheet_says_everything(answered: Answer, points: Path, form: str) -> None:
    text = sheet(bid(answered, files=Files(points=points)), form)
    row = answered.rows[0]
    plain = re.sub(r"\\(.)", r"\1", text)
    for words in (
        f"{row.report_s:.1f} s",
        f"{row.memory_gib:.1f} of 40 GiB",
        "J1",
        "JUPITER suite",
        "Not measured",
        "plan.toml",
    ):
        assert words in plain
    assert "It is a prediction, not a measurement." in re.sub(r"\s+", " ", plain)
    assert "For the buyer" in plain


def test_predicted_stands_at_every_figure_of_the_offer(answered: Answer, points: Path) -> None:
    """Each line with a figure that the planner made says so, in every form for people."""
    row, made = answered.rows[0], bid(answered, files=Files(points=points), margin=3.0)
    figures = (row.report_s, row.low_s, row.high_s, made.commitment_s)
    words = [*(f"{value:.1f} s" for value in figures), f"{row.tokens_per_second:,.0f}", f"{row.memory_gib:.1f} of"]
    lines = [line for line in sheet(made, "markdown").splitlines() if any(word in line for word in words)]
    assert len(lines) >= 4
    for line in lines:
        assert "predicted" in line, line


def test_another_number_format_is_refused(answered: Answer, points: Path) -> None:
    other = replace(answered, problem=replace(answered.problem, precision="fp16"))
    with pytest.raises(UsageError, match="planned in fp16, but a run trains in the model file's number format"):
        bid(other, files=Files(points=points))


def test_the_record_is_json_with_a_schema(answered: Answer, points: Path) -> None:
    record = json.loads(sheet(bid(answered, files=Files(points=points)), "json"))
    assert record["schema"] == "nlp-bench/bid/1"
    assert record["predicted"]["report_time_s"] == answered.rows[0].report_s
    assert record["nearest_measurements"][0]["identity"] == "J1"
    assert record["configuration"]["tp"] == answered.rows[0].sizes.tp


def test_text_of_strangers_is_inert(answered: Answer, points: Path) -> None:
    text = points.read_text().replace("GPT3-175B", "<script>alert(1)</script>|`x`")
    points.write_text(text)
    made = bid(answered, files=Files(points=points))
    assert "<script>" not in sheet(made, "html")
    assert "\\<script\\>" in sheet(made, "markdown")


def test_formats(answered: Answer, points: Path) -> None:
    made = bid(answered, files=Files(points=points))
    with pytest.raises(UsageError, match="'csv' is no format of a bid sheet"):
        sheet(made, "csv")
    assert {form_of(Path(f"bid{ending}")) for ending in (".txt", ".md", ".html", ".json")} == set(FORMATS)
    with pytest.raises(UsageError, match=r"bid\.doc ends in none of"):
        form_of(Path("bid.doc"))
