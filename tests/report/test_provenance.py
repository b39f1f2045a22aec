"""Each number with the lines, options and derivations that it comes from."""

import gzip
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nlp_bench.inputs.read import lean, with_quotes
from nlp_bench.logs.reader import read_log
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.provenance import Provenance, provenance_of
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides, sizes_of
from nlp_bench.report.explain import explain
from nlp_bench.report.report import Report

Entry = Callable[..., RunResult]
SEQUENCE = {"sequence_length": 2048}


def entry_of(path: Path, **given: int) -> RunResult:
    overrides = Overrides(**given)
    (entry,) = measure_log(str(path), overrides)
    log = read_log(str(path))
    attempt = max(log.attempts, key=lambda a: len(a.records), default=None)
    sizes = sizes_of(attempt, overrides) if attempt else None
    return replace(entry, provenance=provenance_of(log, attempt, sizes, entry.throughput, overrides))


def provenance(entry: RunResult) -> Provenance:
    assert entry.provenance is not None
    return entry.provenance


def explained(path: Path, entry: RunResult) -> str:
    return explain(Report(entries=[with_quotes(str(path), entry)], tokens=20_000_000))


def test_records_are_told_by_line_and_byte(log: Path) -> None:
    log.write_text("noise\n" * 3 + log.read_text())
    found = provenance(entry_of(log, **SEQUENCE)).to_json()
    first = {"iteration": 10, "line": 4, "offset": 18}
    lines = log.read_bytes().splitlines(keepends=True)
    assert found["first_record"] == first
    assert found["window_first_record"] == {"iteration": 20, "line": 5, "offset": 18 + len(lines[3])}
    assert found["last_record"] == found["window_last_record"]
    assert log.read_bytes()[found["last_record"]["offset"] :] == lines[-1]


def test_each_quantity_says_where_it_is_from(log: Path) -> None:
    log.write_text("  world_size ...................................... 384\n" + log.read_text())
    quantities = provenance(entry_of(log, **SEQUENCE)).to_json()["quantities"]
    assert quantities["num_gpus"] == {"value": 384, "from": "log line 1"}
    assert quantities["sequence_length"] == {"value": 2048, "from": "command line --sequence-length"}
    assert quantities["global_batch_size"] == {"value": 96, "from": "log lines 2 to 6"}
    assert quantities["seconds_per_iteration"] == {"value": None, "from": "log lines 2 to 6"}
    assert quantities["tokens_per_iteration"]["value"] == 196608
    assert quantities["tokens_per_iteration"]["from"].startswith("derived: global batch size x sequence length")
    given = provenance(entry_of(log, **SEQUENCE, global_batch_size=96, num_gpus=8)).to_json()["quantities"]
    assert given["num_gpus"] == {"value": 8, "from": "command line --num-gpus"}
    assert given["global_batch_size"] == {"value": 96, "from": "command line --global-batch-size"}


def test_what_was_derived_says_how(log: Path) -> None:
    log.write_text(re.sub(r"global batch size: +96 \| ", "", log.read_text()))
    quantities = provenance(entry_of(log, **SEQUENCE)).to_json()["quantities"]
    assert quantities["global_batch_size"] == {"value": 96, "from": "derived: differences of consumed samples"}


def test_what_run_json_says_is_not_told_of_the_command_line(log: Path) -> None:
    found = provenance(entry_of(log, **SEQUENCE, is_of_run=True)).to_json()["quantities"]
    assert found["sequence_length"]["from"] == "run.json"
    assert "--" not in found["tokens_per_iteration"]["from"]
    assert "(global batch size of the line, run.json)" in found["tokens_per_iteration"]["from"]
    assert found["global_batch_size"]["from"] == "log lines 1 to 5"


def test_what_is_not_known_is_null(log: Path) -> None:
    entry = entry_of(log)
    found = provenance(entry).to_json()
    assert entry.throughput is None
    assert found["quantities"]["sequence_length"] == {"value": None, "from": None}
    assert (found["arithmetic"], found["window_first_record"]) == (None, None)
    log.write_text("nothing\n")
    empty = provenance(entry_of(log)).to_json()
    assert (empty["first_record"], empty["quantities"], empty["left_out"]) == (None, {}, [])


def test_the_arithmetic_gives_the_printed_rates(log: Path) -> None:
    entry = entry_of(log, **SEQUENCE)
    sums = provenance(entry).arithmetic
    assert sums is not None
    assert sums.tokens_per_iteration is not None
    assert sums.mean_s is not None
    assert sums.tokens_per_iteration / sums.mean_s == pytest.approx(entry.reference)
    assert sums.window_tokens / sums.window_seconds == pytest.approx(entry.steady)
    assert (sums.num_times, sums.window_iterations) == (5, 40)


def test_what_was_left_out_is_counted_with_its_reason(log: Path) -> None:
    lines = log.read_text().splitlines(keepends=True)
    cut, impossible = lines[2][:90] + "\n", lines[3].replace("5.3291", "0.0000")
    echo = lines[1].replace("[default3]", "[default7]")
    again = [lines[0].replace("7.2310", "7.3310"), lines[1].replace("5.3551", "5.4551")]
    log.write_text("".join([lines[0], lines[1], echo, cut, impossible, lines[4], *again]))
    found = [
        (left["what"], left["count"], left["lines"])
        for left in provenance(entry_of(log, **SEQUENCE)).to_json()["left_out"]
    ]
    assert ("cut or spliced record(s)", 1, None) in found
    assert ("echo(es) of records", 1, None) in found
    assert ("time(s) or rate(s)", 1, None) in found
    assert ("record(s) of another start of the program", 2, [7, 8]) in found
    assert ("record(s) of iterations 1 to 10", 1, [1, 1]) in found


def test_the_explanation_can_be_followed_with_a_pocket_calculator(log: Path) -> None:
    out = explained(log, entry_of(log, **SEQUENCE))
    assert "96 samples x 2048 tokens / 5.77182 s, the mean of all 5 logged times" in out
    assert "7864320 tokens / 216.281 s, iterations 11 to 50, 4 record(s), lines 2 to 5" in out
    assert f"{96 * 2048 / 5.77182:.2f}" == "34063.43"
    assert f"{7864320 / 216.281:.2f} tokens/s" in out
    assert "left out  1 record(s) of iterations 1 to 10 (line 1): warm-up, not in the steady value" in out
    assert "line 1    [default3]: iteration 10/ 3125000 | consumed samples: 960 | elapsed time" in out
    assert "line 2    [default3]: iteration 20/ 3125000" in out
    assert "from      sequence_length = 2048: command line --sequence-length" in out


def test_rates_alone_are_explained_by_their_mean(log: Path) -> None:
    rates = (400, 4000, 4040, 3960)
    log.write_text(
        "".join(
            f"[titan] 2026-01-01 10:00:00,000 - root - INFO - step: {step:2d}  loss: 9.0  grad_norm:  1.0  "
            f"memory: 40.00GiB(50.00%)  tps: {rate:,}  tflops: 20.00  mfu: 2.00%\n"
            for step, rate in enumerate(rates, start=1)
        )
    )
    out = explained(log, entry_of(log, num_gpus=8))
    assert "reference none: the log has rates and no times" in out
    assert (
        "steady    31997.87 tokens/s = the harmonic mean of the logged rates over 3 iteration(s), each taken to have as many tokens"
        in out
    )
    assert "from      num_gpus = 8: command line --num-gpus" in out


def test_a_compressed_log_is_not_quoted(log: Path) -> None:
    packed = log.with_suffix(".gz")
    packed.write_bytes(gzip.compress(log.read_bytes()))
    out = explained(packed, entry_of(packed, **SEQUENCE))
    assert "lines 2 to 5" in out
    assert "[default3]" not in out


def test_a_quoted_line_stays_one_short_line(log: Path) -> None:
    log.write_bytes(b"\x1b[31m" + b"x" * 3000 + b"\xff: " + log.read_bytes())
    out = explained(log, entry_of(log, **SEQUENCE))
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) < 700


def test_an_entry_without_samples_is_explained_alike(log: Path) -> None:
    entry = entry_of(log, **SEQUENCE)
    assert explained(log, lean(entry)) == explained(log, entry)
    assert lean(entry).to_json(1) == entry.to_json(1)
    assert len(lean(entry).records) == len(entry.records) == 5, "all of these are among the first ones"


def test_a_refused_log_says_what_was_found(log: Path) -> None:
    out = explained(log, entry_of(log))
    assert "no number" in out
    assert "sequence_length: not known" in out
    assert "records   5, lines 1 to 5" in out


def test_of_a_hundred_starts_only_the_sum_is_told(log: Path) -> None:
    (line,) = [text for text in log.read_text().splitlines() if re.search(r"iteration +10/", text)]
    log.write_text("".join(re.sub(r"/ *\d+", f"/ {1000 + number}", line, count=1) + "\n" for number in range(100)))
    (entry, *others) = measure_log(str(log), Overrides(sequence_length=2048))
    assert len(others) == 99
    (left,) = (left for left in provenance(entry).left_out if "start" in left.what)
    assert (left.count, left.lines) == (99, None)
