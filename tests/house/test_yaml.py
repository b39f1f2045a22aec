"""The JUBE files keep to the portable subset; the checker finds the classic mistakes."""

from pathlib import Path

import pytest
from support.yaml_names import unknown_names
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
        ('include-path: ["../../jube"]', "unknown key 'include-path'"),  # JUBE 2.7.1 does not find a relative one
    ],
)
def test_checker_finds(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    assert any(problem in found for found in problems(path))


MAIN = FILES[0]


def test_every_name_stands_for_something() -> None:
    assert unknown_names(MAIN) == []


def test_the_parts_are_all_taken_over() -> None:
    """So that the look at the main file is a look at every file."""
    text = MAIN.read_text(encoding="utf-8")
    assert [path.name for path in FILES[1:] if f'init_with: "../../jube/{path.name}"' not in text] == []


@pytest.mark.parametrize(
    ("file", "right", "wrong", "problem"),
    [
        (MAIN.name, '--tp "$tp_size"', '--tp "$tp_sise"', "step check: nothing defines $tp_sise"),
        (MAIN.name, "--chain $chain", "--chain ${chains}", "step train: nothing defines $chains"),
        (MAIN.name, "depend: train\n", "depend: []\n", "step measure: nothing defines $nlp_bench"),
        (MAIN.name, "done_file: $done_file", "done_file: $done_fil", "step train: nothing defines $done_fil"),
        (MAIN.name, "$jube_benchmark_rundir", "$jube_benchmark_rundirs", "step check: nothing defines $jube_benchmark_rundirs"),
        (MAIN.name, "_: first_loss}", "_: fist_loss}", "table result: no pattern or parameter 'fist_loss'"),
        ("parameters.yaml", "range($repeats)", "range($repeat_count)", "parameter repeatParameter.repeat: nothing defines $repeat_count"),
        ("parameters.yaml", "name: queue,", "name: queues,", "step check: nothing defines $queue"),
        ("patterns.yaml", "name: window,", "name: windows,", "table result: no pattern or parameter 'window'"),
    ],
)  # fmt: skip
def test_a_misspelt_name_is_found(tmp_path: Path, file: str, right: str, wrong: str, problem: str) -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert path.name != file or right in text
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text.replace(right, wrong, 1) if path.name == file else text)
    assert problem in unknown_names(tmp_path / MAIN.relative_to(ROOT))
