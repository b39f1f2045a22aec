"""What CONTRIBUTING.md says of additions, as far as it can be seen without making one."""

import re
from dataclasses import fields
from pathlib import Path

from nlp_bench.analysis import scaling, sweep
from nlp_bench.cli.plan import Plan
from nlp_bench.config.model import PRECISIONS as TRAINED
from nlp_bench.config.options import spellings
from nlp_bench.config.request import Request
from nlp_bench.config.scheduler import BUILT_IN, LOCAL, get_scheduler
from nlp_bench.layout.shape import FAMILIES as SHAPES
from nlp_bench.layout.shape import NETWORKS
from nlp_bench.plan.configurations import PRECISIONS, SPELLINGS, Spread
from nlp_bench.plan.problem import AXES, OPTIONS, Fixed, Setting
from nlp_bench.report import formats
from nlp_bench.show.table import FORMS
from nlp_bench.train.settings.families import FAMILIES

ROOT = Path(__file__).resolve().parents[2]


def names(record: type) -> set[str]:
    return {one.name for one in fields(record)}


def test_every_path_of_the_table_exists() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## How to add")[1].split("## Conventions")[0]
    paths = {word for word in re.findall(r"`([\w./]+/[\w./]*|[\w]+\.py)`", table) if "NAME" not in word}
    assert len(paths) > 25
    missing = [word for word in paths if not (ROOT / "src/nlp_bench" / word).exists() and not (ROOT / word).exists()]
    assert missing == []


def test_a_scheduler_is_the_file_of_its_name() -> None:
    assert BUILT_IN[-1] == LOCAL
    assert {name: get_scheduler(name).name for name in BUILT_IN} == {name: name for name in BUILT_IN}


def test_an_axis_of_the_planner_is_an_option_that_can_be_held_fixed() -> None:
    assert names(Fixed) == {*AXES, "gas"} == set(OPTIONS)
    assert set(AXES) <= names(Setting)
    assert set(OPTIONS.values()) <= names(Plan)
    for axis in AXES.values():
        assert axis.array in names(Spread)
        assert "--" + (axis.word or axis.jube).replace("_", "-") in spellings(Request, axis.option)


def test_a_kind_of_network_has_a_shape_and_a_trainer() -> None:
    assert set(NETWORKS.values()) == set(SHAPES) == set(FAMILIES)
    assert all((ROOT / f"src/nlp_bench/train/families/{name}.py").is_file() for name in FAMILIES)


def test_a_number_format_that_is_trained_or_read_is_planned() -> None:
    assert set(SPELLINGS) == set(PRECISIONS)
    assert set(TRAINED) <= set(PRECISIONS)


def test_a_format_of_a_report_is_written_by_each_view_that_has_it() -> None:
    assert set(formats.FORMATS) == set(FORMS)
    assert set(scaling.FORMATS) == set(sweep.FORMATS) == set(FORMS) - {"records-csv", "html"}
