"""The JUBE files keep to the portable subset; the checker finds the classic mistakes."""

from pathlib import Path

import pytest
from support.yaml_rules import problems

ROOT = Path(__file__).resolve().parents[2]


FILES = [ROOT / "benchmark/jube/nlp_benchmark.yaml", *sorted((ROOT / "jube").glob("*.yaml"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_shipped_files_are_clean(path: Path) -> None:
    assert problems(path) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("parameterset: {name: a, parameter: [{name: t, _: 1:00:00}]}", "unquoted time"),
        ('parameterset: {name: a, parameter: [{name: t, seperator: ";", _: "x"}]}', "unknown key 'seperator'"),
        ("parameterset: {name: a, parameter: [{name: t, _: no}]}", "not in quotes"),
        ('parameterset: {name: a, parameter: [{name: t, _: "--cpu-bind=none,v"}]}', "needs a separator"),
        ('parameterset: {name: a, parameter: [{name: t, tag: "a,b", _: "x"}]}', "comma or ^ in tag"),
        ("step: {name: s, do: 'a && b'}", "more than one plain command"),
        ("step: {name: s, dependz: t, do: a}", "unknown key 'dependz'"),
    ],
)
def test_checker_finds(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    assert any(problem in found for found in problems(path))
