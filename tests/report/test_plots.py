"""The plots of `report --output` say of what they are, how sure the rate is, which run is which."""

import datetime as dt
import json
import re
from pathlib import Path

import pytest
from support.command import Cli
from support.published import write_run
from support.repeated import write_runs

pytest.importorskip("matplotlib")


def drawn(folder: Path, cli: Cli, *words: object) -> str:
    """Return throughput.svg of these logs."""
    cli("report", *words, "--output", folder / "out")
    return (folder / "out/throughput.svg").read_text(encoding="utf-8")


def texts(svg: str) -> list[str]:
    return re.findall(r">([^<>\n]+)</text>", svg)


def test_a_plot_says_which_model_on_which_gpus_and_when(tmp_path: Path, cli: Cli) -> None:
    run = write_run(tmp_path / "run")
    begin, lines = (
        dt.datetime(2026, 3, 4, 23, 59, 30, tzinfo=dt.timezone.utc),
        (run / "job.out").read_text(encoding="utf-8").splitlines(True),
    )
    stamps = [begin + dt.timedelta(seconds=53.6 * number) for number in range(len(lines))]
    stamped = "".join(f"{stamp:%Y-%m-%d %H:%M:%S} {line}" for stamp, line in zip(stamps, lines, strict=True))
    (run / "job.out").write_text(stamped, encoding="utf-8")
    said = [text for text in texts(drawn(tmp_path, cli, run, "--gpu", "A100-SXM4-40GB")) if text.startswith("175, ")]
    assert said == ["175, 384 x A100-SXM4-40GB, 2026-03-04"]


def test_ranks_of_a_cpu_are_no_gpus(tmp_path: Path, cli: Cli) -> None:
    run = write_run(tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    record["system"]["accelerator"] = "cpu"
    (run / "run.json").write_text(json.dumps(record))
    said = texts(drawn(tmp_path, cli, run))
    assert [text for text in said if "384 CPU ranks" in text]
    assert not [text for text in said if "GPU" in text]


def test_the_interval_is_a_band_within_the_steady_window(tmp_path: Path, cli: Cli) -> None:
    """The plot had the rate alone, and nothing of how sure it is."""
    logs = write_runs(tmp_path / "logs", 65000.0)
    assert {"steady rate", "95 % interval", "steady window"} <= {*texts(drawn(tmp_path, cli, logs))}


def test_runs_differ_in_colour_and_are_named(tmp_path: Path, cli: Cli) -> None:
    write_runs(tmp_path / "logs", *(65000.0 + 1000 * number for number in range(6)))
    svg = drawn(tmp_path, cli, tmp_path / "logs")
    names = [text for text in texts(svg) if text.endswith(".log")]
    colours = set(re.findall(r"stroke: (#[0-9a-f]{6}); stroke-width: 1.2", svg))
    assert len(names) == len(set(names)) == 6
    assert {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"} <= colours  # Okabe and Ito's
