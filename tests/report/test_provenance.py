"""Each number with the lines, options and derivations that it comes from: what is special; the golden corpus has the rest."""

import gzip
import re
from pathlib import Path

from support.command import Cli

from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.sizes import Overrides

SEQUENCE = ("--sequence-length", 2048)


def test_rates_alone_are_explained_by_their_mean(log: Path, report: Cli) -> None:
    rates = (400, 4000, 4040, 3960)
    log.write_text(
        "".join(
            f"[titan] 2026-01-01 10:00:00,000 - root - INFO - step: {step:2d}  loss: 9.0  grad_norm:  1.0  "
            f"memory: 40.00GiB(50.00%)  tps: {rate:,}  tflops: 20.00  mfu: 2.00%\n"
            for step, rate in enumerate(rates, start=1)
        )
    )
    out = report(log, "--num-gpus", 8, "--explain").out
    assert "reference none: the log has rates and no times" in out
    said = "31997.87 tokens/s = the harmonic mean of the logged rates over 3 iteration(s), each taken to have as many tokens"
    assert f"steady    {said}" in out
    assert "from      num_gpus = 8: command line --num-gpus" in out


def test_a_compressed_log_is_not_quoted(log: Path, report: Cli) -> None:
    packed = log.with_suffix(".gz")
    packed.write_bytes(gzip.compress(log.read_bytes()))
    out = report(packed, *SEQUENCE, "--explain").out
    assert "lines 2 to 5" in out
    assert "[default3]" not in out


def test_a_quoted_line_stays_one_short_line(log: Path, report: Cli) -> None:
    log.write_bytes(b"\x1b[31m" + b"x" * 3000 + b"\xff: " + log.read_bytes())
    out = report(log, *SEQUENCE, "--explain").out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) < 700


def test_a_refused_log_says_what_was_found(log: Path, report: Cli) -> None:
    out = report(log, "--explain").out
    assert "no number" in out
    assert "sequence_length: not known" in out
    assert "records   5, lines 1 to 5" in out


def test_of_a_hundred_starts_only_the_sum_is_told(log: Path) -> None:
    (line,) = [text for text in log.read_text().splitlines() if re.search(r"iteration +10/", text)]
    log.write_text("".join(re.sub(r"/ *\d+", f"/ {1000 + number}", line, count=1) + "\n" for number in range(100)))
    (entry, *others) = measure_log(str(log), Overrides(sequence_length=2048))
    assert len(others) == 99
    (left,) = (left for left in entry.provenance.left_out if "start" in left.what)
    assert (left.count, left.lines) == (99, None)
