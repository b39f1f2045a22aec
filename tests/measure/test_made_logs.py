"""No made log passes silently: PASS only where its true time is within the limit, and every honest one keeps its PASS.

Each forgery is a change to an honest log of a machine whose true time is known; None is a log that times no training at all.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path

import pytest
from support.made_logs import (
    BATCH,
    FORMS,
    HONEST_S,
    LIMIT_S,
    SEQUENCE,
    TOKENS,
    Form,
    Made,
    Row,
    bare,
    jupiter,
    maxtext,
    megatron,
    ours,
    overrides_for,
    run_of,
    stamped,
    torchtitan,
    written,
)  # fmt: skip
from support.samples import Sample, samples

from nlp_bench.measure.contradiction import Code, Weight, doubts
from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.limit import PASS, verdict_of
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides

Forge = Callable[[], Made]
STALLS = tuple(range(20, 200, 12))


def measured(folder: Path, form: Form, made: Made) -> list[RunResult]:
    return measure_log(str(written(folder / "job.out", form, made)), overrides_for(form))


def passes(entries: list[RunResult]) -> bool:
    return any(verdict_of(entry, TOKENS, LIMIT_S).word == PASS for entry in entries)


def every(factor: float, *, step: int = 1, first: int = 1, true_s: float, **follows: bool) -> Made:
    """Print `factor` times the time in every `step`-th line; what is named in `follows` is made to agree."""
    made = run_of(true_s)
    for row in made.rows[first::step]:
        row.restate(factor, **follows)
    return made.clocked() if follows.get("stamp") else made


def edited(change: Callable[[Row], None], *, where: slice = slice(None), true_s: float = HONEST_S) -> Made:
    made = run_of(true_s)
    for row in made.rows[where]:
        change(row)
    return made


def changed(name: str, value: object) -> Callable[[Row], None]:
    return lambda row: setattr(row, name, value)


def without_stalls(factor: float, true_s: float, rows: tuple[int, ...] = STALLS, *, clock: bool = False) -> Made:
    """Drop the lines of the stalls; `clock`: and close the hole in the times of day."""
    made = run_of(true_s, stalls=rows, stall=factor)
    made.rows = [row for row in made.rows if row.iteration not in rows]
    return made.clocked() if clock else made


def negative(true_s: float, value: float) -> Made:
    made = run_of(true_s, stalls=STALLS, stall=1.8)
    for row in made.rows:
        if row.iteration in STALLS:
            row.elapsed_s = value
    return made


def doubled_batch(*, in_lines: bool, consumed: bool = False, arguments: bool = False) -> Made:
    made = run_of(2 * HONEST_S)
    for row in made.rows:
        row.batch *= 2 if in_lines else 1
        row.consumed *= 2 if consumed else 1
        row.rate_s *= 2 if in_lines else 1  # samples/s as they were printed
    if arguments:
        made.arguments["global_batch_size"] = 2 * BATCH
    return made


def doubled_sequence(*names: str) -> Made:
    made = run_of(2 * HONEST_S)
    made.arguments |= dict.fromkeys(names, 2 * SEQUENCE)
    return made


def two_attempts(fast_s: float, slow_s: float, num_fast: int, num_slow: int) -> Made:
    """One file with two starts of one training, the fast one being the longer."""
    fast, slow = run_of(fast_s, num=num_fast), run_of(slow_s, num=num_slow, seed=2)
    return Made([*fast.rows, *slow.rows], arguments=fast.arguments)


def between(seconds: float, *, step: int = 1, words: str = "") -> Made:
    """Let time pass between the lines that none of them logs."""
    made = run_of(HONEST_S)
    for row in made.rows[1::step]:
        row.wall_s += seconds
        row.before = words
    return made.clocked()


def outside_s(share: float, step: int = 1) -> tuple[Made, float]:
    """Return a log of which `share` of the wall clock lies between the lines, and its true time."""
    made = between(HONEST_S / TOKENS * BATCH * SEQUENCE * step * share / (1 - share), step=step)
    return made, HONEST_S / (1 - share)


Forgery = tuple[str, Form, Forge, float | None]


def _changed_times() -> Iterator[Forgery]:
    for factor in (0.5, 0.9, 0.97):
        true_s = HONEST_S / factor
        kinds: tuple[tuple[str, Form, dict[str, bool]], ...] = (
            ("nothing follows", megatron, {}),
            ("the FLOP/s follow, the clock does not", megatron, {"flops": True}),
            ("the clock follows, the FLOP/s do not", megatron, {"stamp": True}),
            ("only a clock", stamped, {}),
            ("nothing follows", jupiter, {}),
            ("the FLOP/s follow, the samples/s do not", jupiter, {"flops": True}),
            ("nothing follows", ours, {}),
            ("the rates follow, the unix time does not", ours, {"rates": True, "flops": True}),
            ("the clock and the FLOP/s follow, samples/s and tokens/s do not", ours, {"flops": True, "stamp": True}),
            ("the clock does not follow", torchtitan, {"flops": True}),
            ("nothing follows", maxtext, {}),
        )
        for words, form, follows in kinds:
            yield f"all times x {factor}, {words}", form, partial(every, factor, true_s=true_s, **follows), true_s
    true_s = HONEST_S / (1 - 0.1 / 3)
    third = partial(every, 0.9, step=3, true_s=true_s)
    for form in (megatron, jupiter, ours, maxtext, torchtitan):
        yield "every third line x 0.9", form, third, true_s
    yield "every third line x 0.9, only a clock", stamped, third, true_s
    yield "every third line x 0.9, with its rates", ours, partial(third, rates=True, flops=True), true_s
    true_s = HONEST_S / (1 - 0.7 / 4)
    fourth = partial(every, 0.3, step=4, true_s=true_s)
    for form in (megatron, bare, jupiter, ours):
        yield "every fourth time x 0.3", form, fourth, true_s
    yield "every fourth time x 0.3, with its rates", jupiter, partial(fourth, rates=True, flops=True), true_s
    yield "one line in ten x 0.5", bare, partial(every, 0.5, step=10, true_s=HONEST_S / 0.95), HONEST_S / 0.95


def _lost_lines_and_sizes() -> Iterator[Forgery]:
    for form in (megatron, stamped, bare, jupiter, ours, torchtitan, maxtext):
        yield "lines of stalls dropped", form, lambda: without_stalls(1.6, 79.7), 79.7
    yield "lines of stalls dropped, the clock moved", megatron, lambda: without_stalls(1.6, 79.7, clock=True), 79.7
    yield "one line of a long stall dropped", bare, lambda: without_stalls(9.0, 79.2, (120,)), 79.2
    for value in (-5.0, 0.0, float("nan")):
        yield f"times of stalls are {value}", bare, partial(negative, 79.7, value), 79.7
    yield "times of stalls are negative", jupiter, lambda: negative(79.7, -5.0), 79.7
    lengths = partial(doubled_sequence, "seq_length", "max_position_embeddings")
    in_lines = partial(doubled_batch, in_lines=True)
    for words, form, forge in (
        ("sequence length doubled", megatron, partial(doubled_sequence, "seq_length")),
        ("sequence length doubled, positions too", megatron, lengths),
        ("sequence length doubled, positions too", ours, lengths),
        ("batch doubled in the lines", megatron, in_lines),
        ("batch doubled in the lines, consumed samples too", megatron, partial(in_lines, consumed=True)),
        ("batch doubled in lines and arguments", megatron, partial(in_lines, arguments=True)),
        ("batch doubled everywhere but in the FLOP/s", megatron, partial(in_lines, consumed=True, arguments=True)),
        ("batch doubled in the lines", jupiter, in_lines),
        ("batch doubled in the lines, consumed samples too", ours, partial(in_lines, consumed=True)),
    ):
        yield words, form, forge, 2 * HONEST_S


def two_ranks(made: Made) -> str:
    """Return a log into which two processes print, the first one times that are too short."""
    fast = deepcopy(made)
    for row in fast.rows:
        row.restate(0.9, rates=True, flops=True)
    lines = zip(
        jupiter(fast).replace("[default3]", "[default0]").splitlines(True), jupiter(made).splitlines(True), strict=True
    )
    return "".join(line for pair in lines for line in pair)


def _no_training_and_other_clocks() -> Iterator[Forgery]:
    for form in (megatron, jupiter, ours):
        yield "learning rate 0", form, lambda: edited(changed("lr", 0.0)), None
    for form in (megatron, bare, torchtitan):
        yield "one loss", form, lambda: edited(changed("loss", 7.123456)), None
    yield "a loss of 0", bare, lambda: edited(changed("loss", 0.0)), None
    yield "no loss is a number", bare, lambda: edited(changed("loss", float("nan"))), None
    yield "half of the updates skipped", bare, lambda: edited(changed("skipped", 1), where=slice(0, None, 2)), None
    yield "199 of 200 updates skipped", bare, lambda: edited(changed("skipped", 1), where=slice(1, None)), None
    yield "all updates skipped", ours, lambda: edited(changed("skipped", 1)), None
    yield "two processes with different times", two_ranks, lambda: run_of(84.0), 84.0
    yield "a fast and a slow start in one file", bare, lambda: two_attempts(HONEST_S, 91.0, 200, 190), 91.0
    yield "a fast and a slow start in one file", jupiter, lambda: two_attempts(HONEST_S, 84.0, 200, 60), 84.0
    for share in (0.3, 0.12, 0.04):
        for form in (megatron, stamped, ours):
            made, true_s = outside_s(share)
            yield f"{share:.0%} of the wall clock between the lines", form, partial(deepcopy, made), true_s
    for form in (stamped, ours):
        made, true_s = outside_s(0.3, 20)
        yield "30% of the wall clock between some lines", form, partial(deepcopy, made), true_s


FORGERIES = [*_changed_times(), *_lost_lines_and_sizes(), *_no_training_and_other_clocks()]


@pytest.mark.parametrize("form", FORMS)
def test_an_honest_log_passes_and_nothing_is_said(tmp_path: Path, form: Form) -> None:
    (entry,) = measured(tmp_path, form, run_of())
    assert entry.contradictions == ()
    assert passes([entry])


@pytest.mark.parametrize(
    ("form", "forge", "true_s"),
    [pytest.param(form, forge, true_s, id=f"{form.__name__}: {name}") for name, form, forge, true_s in FORGERIES],
)
def test_no_made_log_passes_silently(tmp_path: Path, form: Form, forge: Forge, true_s: float | None) -> None:
    entries = measured(tmp_path, form, forge())
    assert true_s is None or true_s > LIMIT_S
    assert not passes(entries)
    assert any(doubts(entry.contradictions) or not entry.has_number for entry in entries)


def slow_parts(where: slice, factor: float, words: str = "") -> Made:
    """Let some iterations take longer, the line before each one saying why."""
    made = run_of(HONEST_S)
    for row in made.rows[where]:
        row.restate(factor, rates=True, flops=True, stamp=True)
        row.before = words
    return made.clocked()


@pytest.mark.parametrize(
    ("forge", "true_s"),
    [
        (lambda: slow_parts(slice(9, None, 10), 3.0, " saving checkpoint at iteration\n"), 1.2 * HONEST_S),
        (lambda: slow_parts(slice(4, None, 5), 2.0, " evaluating\n"), 1.2 * HONEST_S),
        (lambda: slow_parts(slice(0, 94), 1.2), 1.094 * HONEST_S),
    ],
    ids=["slow under the word checkpoint", "slow under the word evaluation", "slow for the first 47 %"],
)
@pytest.mark.parametrize("form", [megatron, bare])
def test_slow_parts_under_a_name_prove_nothing(tmp_path: Path, form: Form, forge: Forge, true_s: float) -> None:
    assert true_s > LIMIT_S
    assert not passes(measured(tmp_path, form, forge()))


EXCERPTS = {
    "hf_trainer__ezpz__llama_100steps_tokens_per_second.log": {Code.MISSING_LINES},
    "megatron_deepspeed__bigscience__tr11_176B_31214_loss_spike_ellipsis.log": {Code.MISSING_LINES},
    "megatron_deepspeed__bigscience__tr8b_104B_6502.log": {Code.MISSING_LINES},
    "megatron_classic__bigscience__gpt2_perf_n16_3iters_all_skipped.log": {
        Code.SKIPPED_UPDATES,
        Code.LEARNING_RATE_ZERO,
    },
}
"""Three with lines left out in the middle, and one of three iterations whose every update was skipped."""


@pytest.mark.slow
@pytest.mark.parametrize("sample", samples(), ids=[sample.path.stem for sample in samples()])
def test_real_logs_raise_no_alarm(sample: Sample) -> None:
    for given in (Overrides(), sample.overrides()):
        for entry in measure_log(str(sample.path), given):
            graves = {found.code for found in doubts(entry.contradictions)}
            assert graves == EXCERPTS.get(sample.path.name, set()) or (not graves and not entry.has_number)
            assert not any(found.weight is Weight.VOID for found in entry.contradictions)


def test_there_are_at_least_60_made_logs() -> None:
    assert len({(form, name) for name, form, _, _ in FORGERIES}) >= 60
