"""The answer of a run: which number to hand in, how good it is, what to do next."""

from pathlib import Path

import numpy as np
import pytest
from support.command import Cli
from support.megatron_log import line
from support.published import write_run
from support.samples import samples

WIDE = 110


def made(path: Path, times: list[float], *, total: int | None = None) -> str:
    """Write a log of one line per iteration: batch 8, sequence 1024, so 8192 tokens each."""
    rows = (
        line(index, total or len(times), samples=8 * index, s=time_s, batch=8, loss=7.0 - index / 1e4)
        for index, time_s in enumerate(times, 1)
    )
    path.write_text("".join(rows))
    return str(path)


def scattered(number: int, spread: float, seed: int = 1, mean: float = 1.0) -> list[float]:
    values = mean * np.exp(np.random.default_rng(seed).normal(0, spread, number))
    return [float(value) for value in values]


SIZES = ("--sequence-length", "1024", "--num-gpus", "8")


def test_the_answer_fits_a_terminal_and_names_the_number_to_hand_in(report: Cli, log: Path) -> None:
    found = report(log, "--sequence-length", "2048", "--num-gpus", 384)
    lines = found.out.splitlines()
    assert len(lines) <= 14
    assert max(map(len, lines)) <= WIDE
    by_name = {text.split()[0]: text for text in lines[1:]}
    assert "36 400 tokens/s (34 100 to 36 900)" in by_name["steady"]
    assert "20M tokens in 550 s (542 to 586)" in by_name["steady"]
    assert "34 063 tokens/s" in by_name["reference"]
    assert "20M tokens in 587.14 s" in by_name["reference"]
    assert [name for name, text in by_name.items() if "hand this in" in text] == ["reference"]
    assert by_name["quality"].split()[1] == "SHORT:"
    assert "let the run finish first" in by_name["next"]
    assert found.flat.endswith(f"nlp-bench report {log} --sequence-length 2048 --num-gpus 384 --explain")


def test_a_rule_names_another_number_to_hand_in(report: Cli, tmp_path: Path) -> None:
    rules = tmp_path / "buyer.toml"
    rules.write_text(
        'schema = "nlp-bench/rules/1"\ntitle = "Buyer"\nmodels = ["175"]\n[rules.time]\ncheck = "time-limit"\nlimit_s = 9000\n'
        'decides = "steady-interval"\nwhy = "The buyer pays for the steady speed."\n'
    )
    log = made(tmp_path / "job.log", scattered(60, 0.01))
    lines = report(log, *SIZES, "--rules", rules, code=None).out.splitlines()
    assert [text.split()[0] for text in lines if "hand this in" in text] == ["steady"]


@pytest.mark.parametrize(
    ("times", "word"),
    [
        (scattered(400, 0.005), "GOOD"),
        (scattered(20, 0.05), "FAIR"),
        (scattered(5, 0.02), "SHORT"),
        ([1.0] * 60, "SHORT"),  # rounded to one value
        (scattered(40, 0.25), "NOISY"),
        ([1 + 0.003 * index for index in range(200)], "DRIFTING"),
        ([*scattered(80, 0.002), *scattered(20, 0.002, mean=1.2)], "DRIFTING"),
    ],
)  # fmt: skip
def test_quality_is_one_word_in_every_output(report: Cli, tmp_path: Path, times: list[float], word: str) -> None:
    log = made(tmp_path / "job.log", times)
    assert f"\nquality    {word}: " in report(log, *SIZES).out
    assert report(log, *SIZES, "--format", "json").json["runs"][0]["quality"] == word
    heads, cells = report(log, *SIZES, "--format", "csv").out.splitlines()
    assert dict(zip(heads.split(","), cells.split(","), strict=False))["quality"] == word
    assert f"| {word} |" in report(log, *SIZES, "--format", "markdown").out
    assert f"<dd>{word}<" in report(log, *SIZES, "--format", "html").out


def test_a_run_without_a_number_has_no_quality(report: Cli, log: Path) -> None:
    found = report(log, code=1)
    assert "quality" not in found.out
    assert report(log, "--format", "json", code=1).json["runs"][0]["quality"] is None


def test_the_next_step_is_that_of_the_quality(report: Cli, tmp_path: Path) -> None:
    def step(times: list[float], **asked: int) -> str:
        (said,) = [
            text
            for text in report(made(tmp_path / "job.log", times, **asked), *SIZES).out.splitlines()
            if text.startswith("next ")
        ]
        return said.split(maxsplit=1)[1]

    assert step(scattered(400, 0.005)).startswith("hand in ")
    assert step(scattered(20, 0.05)).startswith("hand in ")
    assert "; run longer: about " in step(scattered(20, 0.05))
    assert step(scattered(5, 0.02)).startswith("run longer: about ")
    assert step(scattered(400, 0.005), total=500) == "let the run finish first: MEASURED is not VALID"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("number", "spread"), [(5, 0.05), (12, 0.2)])  # few lines are bound by the fastest one
def test_the_fast_end_is_no_faster_than_the_fastest_interval(
    report: Cli, tmp_path: Path, seed: int, number: int, spread: float
) -> None:
    times = [round(time_s, 4) for time_s in scattered(number, spread, seed)]
    run = report(made(tmp_path / "job.log", times), *SIZES, "--format", "json").json["runs"][0]
    ci95, steady = run["tokens_per_second"]["ci95"], run["tokens_per_second"]["steady"]
    if ci95 is None:
        assert run["quality"] == ("SHORT" if number < 8 else "NOISY")
    else:
        assert ci95[1] <= 8192 / min(times) * (1 + 1e-9)
        assert ci95[1] - ci95[0] <= steady  # half a width of 50 %


def busy_laptop(path: Path) -> str:
    """Write the log of a machine that does something else most of the time."""
    times = [1.0, 5.0, 1.2, 8.0, 1.1, 1.0, 30.0, 1.3, 1.0, 12.0, 1.1, 1.0]
    return made(path, times)


def test_an_interval_that_says_nothing_is_not_given(report: Cli, tmp_path: Path) -> None:
    log = busy_laptop(tmp_path / "job.log")
    run = report(log, *SIZES, "--format", "json").json["runs"][0]
    assert (run["tokens_per_second"]["ci95"], run["time_to_report_s"]["ci95"]) == (None, None)
    said = report(log, *SIZES).out
    assert "quality    NOISY: no 95 % interval: it would be wider than +-50 %" in said
    assert "next       repeat on a quiet machine\n" in said


def test_a_limit_that_the_fastest_interval_misses_is_missed(report: Cli, tmp_path: Path) -> None:
    log = busy_laptop(tmp_path / "job.log")  # the fastest line would need 2441 s
    assert "limit      FAIL: " in report(log, *SIZES, "--limit", 2400).out
    assert "limit      NOT PROVEN: " in report(log, *SIZES, "--limit", 9000).out


def test_many_runs_are_one_table_that_fits_a_terminal(report: Cli, tmp_path: Path) -> None:
    logs = [made(tmp_path / f"r{seed}.log", scattered(50, 0.01, seed)) for seed in range(4)]
    lines = report(*logs, *SIZES, "--limit", 2600, "--allow-measured").out.splitlines()
    assert max(map(len, lines)) <= WIDE
    said = report(*logs, *SIZES, code=None)
    assert said.out.count("supplied by hand") == 1  # said of four runs once


@pytest.mark.slow
def test_every_sample_fits_a_terminal(report: Cli) -> None:
    for sample in samples():
        given = ((f"--{name.replace('_', '-')}", value) for name, value in sample.overrides().counts.items())
        lines = report(sample.path, *(word for pair in given for word in pair), code=None).out.splitlines()
        assert len(lines) <= 14, sample.path
        assert all(len(text) <= WIDE for text in lines if sample.path.name not in text), sample.path


def test_the_page_begins_with_the_same_answer(report: Cli, log: Path) -> None:
    page = report(log, "--sequence-length", "2048", "--num-gpus", 384, "--format", "html").out
    head = page[page.index("<header>") : page.index("</header>")]
    reference, steady, quality = (head.index(f"<dt>{name}") for name in ("reference", "steady", "quality"))
    assert reference < head.index("hand this in") < steady < quality
    assert "587.14 s" in head[reference:steady]
    assert "542 to 586 s (95 %)" in head[steady:quality]
    assert "SHORT" in head[quality:]
    assert "Time to report" not in page


def test_measure_says_the_same_in_the_log_of_jube(cli: Cli, tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    said = cli("measure", tmp_path / "run").out
    assert "quality: SHORT\n" in said  # of metrics.txt, for the table
    block = said[said.index("\n\n") :].strip()
    assert block.splitlines()[1:3] == cli("report", tmp_path / "run").out.splitlines()[1:3]
