"""One list of checks of what a log says: its times against every other statement of it, and whether what it times is a training.

`nlp-bench report`, `measure` and `verify` all use this list. Tolerances and weights stand in `docs/evidence.md`. A difference
within them may still break a limit (`_slower_statements`): they are for honest logs whose programs take rates and times of day with
another clock, and a limit that only the logged times keep is not proven.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nlp_bench.escape import one_line
from nlp_bench.logs.attempts import MAX_SHARE, MIN_LINES
from nlp_bench.logs.record import NO_LOSS, Attempt, Column, Records
from nlp_bench.measure.contradiction import (
    Claims,
    Code,
    Contradiction,
    Contradictions,
    SlowerStatement,
    Weight,
    named,
    weigh,
)
from nlp_bench.measure.restated import (
    PRINTED_LATE_S,
    WORDS,
    Restated,
    against_counts,
    against_shape,
    against_stamps,
    against_time,
    restated,
    silent,
    slower_by_clock,
)
from nlp_bench.measure.series import Mask, finite, positive, ratio, steps_of
from nlp_bench.measure.sizes import Overrides, sizes_of
from nlp_bench.measure.workload import RUN_JSON, Setting, Workload, heading
from nlp_bench.seal import SealedLog

CHECKED = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
    "context_parallel_size", "data_parallel_size", "micro_batch_size", "global_batch_size", "world_size", "nodes",
    "num_layers", "hidden_size", "num_attention_heads", "seq_length", "recompute_granularity", "precision",
)  # fmt: skip
"""Settings in which a log must not contradict its run.json."""
_ARGUMENTS = {"sequence_length": "seq_length", "global_batch_size": "global_batch_size", "num_gpus": "world_size"}
"""Sizes that the number is computed with, and their names among the arguments."""
_GROUPS = ("tensor_model", "pipeline_model", "data")
_SAME = 0.005
SKIPPED, NEARLY_ALL_SKIPPED, MIN_ITERATIONS = 0.4, 0.9, 20
"""Shares of skipped updates that are doubted, and that are no training; a log of fewer iterations may still be in search of its loss
scale."""
MISSING = 0.005  # share of the lines in the middle that may be missing: one of 200 can hide a stall of several per cent
FAST, NEIGHBOURS, FAST_SHARE = 0.6, 10, 0.01
"""An interval that takes less than such a share of the median of so many before and after it is implausible; share of such intervals
that is doubted."""
MAKES_UP = 0.25  # a neighbour that is slower by such a share of that median makes up for it
ATTEMPTS, MIN_ATTEMPT = 0.05, 8  # share by which typical times of two starts may differ; lines that have a typical time
RANKS = 0.01  # share by which the times of two processes may differ over all: they wait for each other
FEW_LOSSES, MANY_LOSSES = 0.1, 10_000  # share that different losses must be of so many lines
MIN_COPIES, COPIES = 2, 0.01  # lines, and share of them, that may have the loss and the time of another one
MIN_LOSSES, MIN_ROUND_LOSSES = 10, 100
"""Lines with one and the same loss from which that is no chance, and the same of a loss of three digits or fewer."""
OTHER_UNIT = 0.5  # a rate that is less than such a share of what it should be is in another unit, or a contradiction
OTHER_SCALE = (
    100.0  # factor between the fastest and the slowest PART of the lines from which they are not of one measurement
)
ALIKE = 0.8  # share of the gaps between lines that are alike where the program logged at another interval
MIN_PART, PART = 5, 0.1  # lines of a part at least, and share of all lines
START = 4  # one in so many lines of another start is its warm-up


def reconcile(claims: Claims) -> tuple[tuple[Contradiction, ...], tuple[SlowerStatement, ...]]:
    """Return everything in which the statements disagree with the number, the gravest first, and the statements within the tolerances by which it takes longer."""
    order, found = list(Weight), list(restated(claims.records, claims.sizes))
    contradictions = sorted(_checks(claims, found), key=lambda each: -order.index(each.weight))
    return tuple(contradictions), tuple(each for each in _slower_statements(claims, found) if each.slower > 1)


def _checks(claims: Claims, found: list[Restated]) -> Contradictions:
    yield from (Contradiction(Code.WHAT_IS_COUNTED, Weight.DOUBT, text) for text in claims.log.doubts)
    yield from _against_run(claims)
    yield from claims.seals
    yield from against_time(claims, found)
    yield from against_shape(claims, found)
    yield from against_counts(claims)
    yield from against_stamps(claims)
    yield from _stated_twice(claims)
    yield from _counted_at_most(claims)
    yield from _missing(claims)
    yield from _repeated(claims.records)
    yield from silent(claims)
    yield from _unreadable(claims.attempt)
    yield from _fast(claims)
    yield from _other_scale(claims)
    yield from _attempts(claims)
    yield from _ranks(claims.attempt)
    yield from against_training(claims.records, claims.log.dialect, is_ours=claims.is_ours)


# What the program prints of its arguments, against run.json, against its lines, and against itself.


def _against_run(claims: Claims) -> Contradictions:
    """Yield where the log says something else than run.json, or than what was computed with; somebody's log has no run.json."""
    asked, logged = dict(claims.workload.asked), claims.workload.logged
    if asked:
        asked.update({_ARGUMENTS[name]: Setting(value, RUN_JSON) for name, value in claims.overrides.counts.items()})
    for name in CHECKED:
        if name in asked and name in logged and asked[name].value != logged[name].value:
            text = (
                f"{heading(name)} is {one_line(logged[name].value)} in the log ({logged[name].source}) but "
                f"{one_line(asked[name].value)} in {asked[name].source}"
            )
            yield Contradiction(Code.ARGUMENTS_VS_RUN, Weight.VOID, text)


def _counted_at_most(claims: Claims) -> Contradictions:
    """Yield that samples of which the arguments say that they vary are counted as the longest."""
    length = claims.sizes.sequence_length
    for name in ("variable_seq_lengths", "sft"):  # sft_dataset.py fills its samples up
        varying = claims.workload.logged.get(name)
        if varying and varying.value is True and length and not claims.records.has("tokens").any():
            text = f"samples of {length} tokens are counted, the most that one has: {name} is True ({varying.source})"
            yield Contradiction(Code.ARGUMENTS_VS_LINES, Weight.DOUBT, text)


def _stated_twice(claims: Claims) -> Contradictions:
    """Yield a size of which more was counted than another statement gives; a ramp-up or a curriculum only ever counts less."""
    facts, logged = claims.attempt.facts, claims.workload.logged
    for code, name, counted, other, source, weight in _sizes_twice(claims):
        if counted and other and counted / other > 1 + _SAME:
            lines = (facts[source].line_number,) if source in facts else ()
            where = f"line {lines[0]}" if lines else logged[source].source
            text = f"the {name} is {counted:.0f}, and {other:.6g} by the {source.replace('_', ' ')} ({where})"
            yield Contradiction(code, weight or weigh(counted / other), text, lines)


def _sizes_twice(claims: Claims) -> Iterator[tuple[Code, str, float | None, float | None, str, Weight | None]]:
    """Yield a size in words, as it was counted and by another statement, whose name, and its weight where the factor does not tell it."""
    attempt, records, logged = claims.attempt, claims.records, Workload(logged=claims.workload.logged)
    length, batch = claims.sizes.sequence_length, claims.sizes.global_batch_size
    of_lines, of_arguments = Code.ARGUMENTS_VS_LINES, Code.ARGUMENTS_VS_ARGUMENTS
    for name, used in (("global_batch_size", batch), ("sequence_length", length)):
        lines, words = finite(records.column(name)), name.replace("_", " ")
        if len(lines):
            largest = float(lines.max()) if used == lines[-1] else None
            yield of_lines, f"{words} of the lines", largest, attempt.fact(name), name, None
        elif len(claims.log.attempts) == 1:  # the first statement was counted
            argument = _ARGUMENTS[name]
            yield of_arguments, words, attempt.count(name), logged.count(argument), argument, None
    tensor, pipeline, data = (logged.count(f"{name}_parallel_size") or 0 for name in _GROUPS)
    model = tensor * pipeline * (logged.count("context_parallel_size") or 1)
    passes, micro, world = attempt.count("micro_batches"), logged.count("micro_batch_size"), logged.count("world_size")
    replicas = data or (world // model if world and model else 0)
    yield of_lines, "global batch size", batch, (passes or 0) * (micro or 0) * replicas, "micro_batches", None
    samples, total = attempt.count("train_samples"), records[-1].total_iterations
    consumed = records.column("consumed_samples")
    is_ramp = bool(np.any(np.abs(consumed - records.column("iteration") * (batch or 0)) > _SAME * consumed))
    mean = samples / total if samples and total and not is_ramp else None
    yield of_lines, "global batch size", batch, mean, "train_samples", None
    if not records.has("tokens").any():
        yield of_lines, "sequence length", length, attempt.fact("curriculum_length"), "curriculum_length", Weight.DOUBT
    # What Megatron-LM itself refuses together: megatron/training/arguments.py `validate_args`.
    for name in ("max_position_embeddings", "encoder_seq_length"):
        counted = length if length == logged.count("seq_length") else None
        yield of_arguments, "sequence length", counted, logged.count(name), name, None
    # DeepSpeed's engine prints a world of its own: the first statement counts.
    sizes = sorted((attempt.count("num_devices") or 0, model * data))
    yield of_arguments, "number of devices", sizes[1], sizes[0], "data_parallel_size", Weight.DOUBT


# The seals of our trainer's log.


def against_seals(sealed: SealedLog, attempt: Attempt, *, is_alone: bool) -> Contradictions:
    """Yield where the lines are not those that the trainer printed (where `is_alone`: else the folder's chain of evidence says it), and where records could not be read."""
    changed, still_open = sealed.why_changed(), sealed.why_open()
    if is_alone and (changed or still_open):
        yield Contradiction(Code.SEAL_VS_LINES, Weight.VOID if changed else Weight.DOUBT, str(changed or still_open))
    first = int(attempt.records.numbers[0]) if len(attempt.records) else 0
    part = next((part for part in reversed(sealed.parts) if part.first_line < first), None)
    if part and part.num_records > len(attempt.records):
        text = (
            f"{part.num_records - len(attempt.records)} of {part.num_records} lines of iterations that the trainer printed are "
            "torn and could not be read: their times are not in the number"
        )
        yield Contradiction(Code.SEAL_VS_LINES, Weight.DOUBT, text)


# Whether what was timed is a training.


class Impossible(NamedTuple):
    """A value that no training has, and in how many lines it proves that there was none."""

    quantity: str  # of `logs.record.ROW`
    words: str
    holds: Callable[[Column], Mask]
    least: int = 1  # in more lines than this
    share: float = 0.0  # and in more than this share of those that print the quantity
    is_of_engine: bool = False  # whether Megatron-DeepSpeed prints it where its engine keeps the true one


IMPOSSIBLE = (
    Impossible("lm_loss", "below 0", lambda column: (column < 0) & (column != NO_LOSS)),
    # One overflow skips one update: SKIPPED of them are too many.
    Impossible("grad_norm", "no finite number", lambda column: ~np.isfinite(column), share=0.4),
    Impossible("grad_norm", "below 0", lambda column: column < 0),
    # AWS's excerpt of a GPT-3 training has three lines with a norm of 0.
    Impossible("grad_norm", "0", lambda column: column == 0, least=9, share=0.4, is_of_engine=True),
    Impossible("loss_scale", "not above 0", lambda column: ~(column > 0), is_of_engine=True),
    Impossible("learning_rate", "below 0 or no finite number", lambda column: ~(np.isfinite(column) & (column >= 0))),
    Impossible("learning_rate", "0", lambda column: column == 0, share=0.9),
)


def _impossible(records: Records, dialect: str | None, *, is_ours: bool) -> Contradictions:
    for row in IMPOSSIBLE:
        stated = records.has(row.quantity)
        wrong = stated & row.holds(records.column(row.quantity))
        number, many = int(np.count_nonzero(wrong)), int(np.count_nonzero(stated))
        is_of_engine = row.is_of_engine and dialect == "megatron-deepspeed"
        if number > max(row.least, row.share * many) and not is_of_engine:
            of = f"all {number}" if number == many else f"{number} of {many}"
            text = f"the {WORDS[row.quantity]} is {row.words} in {of} lines that print it: no training does that"
            weight = Weight.VOID if is_ours and number == many else Weight.DOUBT
            yield Contradiction(Code.IMPOSSIBLE_VALUES, weight, text, () if number == many else records.numbers[wrong])


def against_training(records: Records, dialect: str | None, *, is_ours: bool) -> Contradictions:
    """Yield why what was timed is no training: updates skipped, impossible values, a loss that does not move."""
    yield from _skipped(records, is_ours=is_ours)
    yield from _impossible(records, dialect, is_ours=is_ours)
    loss = finite(records.column("lm_loss"))
    looked_at = loss[:MANY_LOSSES]
    values = sorted(set(looked_at.tolist()))
    if values == [NO_LOSS]:
        text = (
            f"the loss is {NO_LOSS:g} in all {len(loss)} lines that print it, which torchtitan prints where there is none: "
            "give the log of a rank of the pipeline's last stage"
        )
        yield Contradiction(Code.LOSS_DOES_NOT_MOVE, Weight.DOUBT, text)
        return
    is_round = bool(values) and values[-1] != 0 and all(float(f"{value:.2e}") == value for value in values[:MIN_LOSSES])
    few = 1 if is_round else max(1, FEW_LOSSES * len(looked_at))
    if len(loss) >= (MIN_ROUND_LOSSES if is_round else MIN_LOSSES) and len(values) <= few:
        is_one = bool(np.ptp(loss) == 0)
        text = f"the loss has {len(values)} value(s) in {len(looked_at)} lines: no training does that"
        if is_one:
            text = f"the loss is {loss[-1]:g} in all {len(loss)} lines that print it: no training does that"
        yield Contradiction(Code.LOSS_DOES_NOT_MOVE, Weight.VOID if is_ours and is_one else Weight.DOUBT, text)


def _skipped(records: Records, *, is_ours: bool) -> Contradictions:
    skipped, iterations = records.column("num_skipped"), records.column("iteration")
    if not np.any(skipped > 0):
        return
    # Of the first line nobody says for how many iterations it stands.
    covered = steps_of(iterations, np.nan)
    covered[0] = max(1.0, float(np.nanmedian(covered)) if len(covered) > 1 else iterations[0])
    known = np.isfinite(skipped)
    share = float(np.sum(np.minimum(skipped, covered)[known]) / np.sum(covered[known]))
    if share < SKIPPED:
        return
    is_long = is_ours or float(np.sum(covered[known])) >= MIN_ITERATIONS
    weight = Weight.VOID if share >= NEARLY_ALL_SKIPPED and is_long else Weight.DOUBT
    words = "every iteration" if share == 1 else f"{100 * share:.0f} % of the iterations"
    much = "nothing" if share >= NEARLY_ALL_SKIPPED else "too little"
    text = f"{words} skipped the update of the weights: {much} was trained"
    yield Contradiction(Code.SKIPPED_UPDATES, weight, text, records.numbers[skipped > 0])


# Single lines, and the starts and processes that print them.


def _repeated(records: Records) -> Contradictions:
    """Yield the lines that are copies of another one: of losses with five digits and more two are hardly ever alike."""
    loss, elapsed = records.column("lm_loss"), records.column("elapsed_s")
    known = np.flatnonzero(np.isfinite(loss) & np.isfinite(elapsed))[:MANY_LOSSES]
    known = known[np.array([float(f"{value:.3e}") != value for value in loss[known]], dtype=np.bool_)]
    pairs = list(zip(loss[known].tolist(), elapsed[known].tolist(), strict=True))
    firsts = list({pair: place for place, pair in reversed([*enumerate(pairs)])}.values())
    copies = np.delete(known, firsts)
    if len(copies) > max(MIN_COPIES, COPIES * len(records)):
        lines = records.numbers[copies]
        many = f"{len(copies)} of {len(records)} lines"
        text = f"{many} have the loss and the time of another one to the last digit: {named(lines)}"
        yield Contradiction(Code.REPEATED_LINES, Weight.DOUBT, text, lines)


def _unreadable(attempt: Attempt) -> Contradictions:
    """Yield the lines that cannot be read whole, where they are many or come at equal distances: they may be the slow ones."""
    lines, number = attempt.unreadable, attempt.num_unreadable
    distances = np.diff(np.searchsorted(attempt.records.numbers, lines))
    is_regular = len(lines) >= MIN_LINES and distances[0] > 0 and np.ptp(distances) == 0
    if is_regular or number >= max(MIN_LINES, MAX_SHARE * (len(attempt.records) + number)):
        text = (
            f"{number} training lines cannot be read whole ({named(lines)}){', at equal distances' if is_regular else ''}: they may be "
            "the slow ones"
        )
        yield Contradiction(Code.UNREADABLE_LINES, Weight.DOUBT, text, lines)


def _missing(claims: Claims) -> Contradictions:
    """Yield how many lines between the first and the last have no time, or are not there."""
    spans = claims.spans
    steps, usual = steps_of(spans.records.column("iteration")), spans.num_iterations[1:]
    gaps = np.flatnonzero(steps > usual)
    if len(gaps):
        num_missing = float(np.sum(steps[gaps] / float(np.median(usual)) - 1))
        whole, lines = len(spans) + num_missing, spans.records.numbers[gaps + 1]
        text = (
            f"{num_missing:.0f} of {whole:.0f} lines between the first and the last have no time or are not there "
            f"(before {named(lines)}): whatever stood there is not in the number"
        )
        often = float(np.median(steps[gaps]))
        if len(gaps) >= MIN_PART and np.mean(steps[gaps] == often) > ALIKE:
            text += f", unless the program logged every {often:.0f} iterations there"
        weight = Weight.DOUBT if num_missing / whole >= MISSING else Weight.REMARK
        yield Contradiction(Code.MISSING_LINES, weight, text, lines)


def _fast(claims: Claims) -> Contradictions:
    """Yield the intervals that are far faster than their neighbours, and have none that is slower to make up for it."""
    costs, number = claims.spans.seconds_per_token, len(claims.spans)
    if number < 2 * NEIGHBOURS or costs.min() >= FAST * costs.max():  # of nearly every log
        return
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(costs, NEIGHBOURS, mode="reflect"), 2 * NEIGHBOURS + 1)
    around = np.full(number, np.nan)
    # Medians take time: only where the slowest neighbour leaves a doubt.
    doubted = costs < FAST * windows.max(axis=1)
    around[doubted] = np.median(windows[doubted], axis=1)
    # A line that was printed late makes the next one short: both together are held against twice the usual.
    pairs = np.pad(costs, 1, mode="edge")
    with_neighbour = np.maximum(pairs[:-2], pairs[2:]) + costs
    fast = np.flatnonzero((costs < FAST * around) & (with_neighbour < (1 + FAST + MAKES_UP) * around))
    if len(fast):
        lines = claims.spans.records.numbers[fast]
        text = (
            f"{len(fast)} of {number} intervals take less than {100 * FAST:.0f} % of the time of those around them "
            f"({named(lines)}): no machine trains single iterations so much faster"
        )
        weight = Weight.DOUBT if len(fast) > max(1.0, FAST_SHARE * number) else Weight.REMARK
        yield Contradiction(Code.IMPLAUSIBLY_FAST, weight, text, lines)


def _other_scale(claims: Claims) -> Contradictions:
    """Yield whether the times are so far apart as no machine sets them: seconds for milliseconds, `1.012` for 1 012."""
    costs = claims.spans.seconds_per_token
    order, least = np.argsort(costs), max(MIN_PART, int(PART * len(costs)))
    ends = order[[least - 1, -least]] if least <= len(costs) else order[[0, 0]]
    apart = float(costs[ends[1]] / costs[ends[0]])
    if apart > OTHER_SCALE:
        lines = claims.spans.records.numbers[np.sort(ends)]
        text = (
            f"its times are a factor of {apart:.0f} apart (as in {named(lines)}): no machine does that, so that one part "
            "is in another unit, of another training, or in numbers with points between thousands; give the parts apart"
        )
        yield Contradiction(Code.OTHER_SCALE, Weight.VOID, text, lines)


def _attempts(claims: Claims) -> Contradictions:
    """Yield whether another start of the same training was clearly slower (doubted) or faster (a remark) than the one that counts."""
    own = _costs(claims.attempt, claims.overrides) if claims.others else ()
    for other in claims.others:
        costs = _costs(other, claims.overrides)
        if min(len(own), len(costs)) < MIN_ATTEMPT:
            continue
        slower = float(np.median(costs)) / float(np.median(own))
        if abs(slower - 1) > ATTEMPTS:
            line = int(other.records.numbers[0])
            text = f"another start of this training (from line {line}) takes {slower:.4g} times as long per token as the one that is measured"
            yield Contradiction(Code.ATTEMPTS_DIFFER, Weight.DOUBT if slower > 1 else Weight.REMARK, text, (line,))


def _ranks(attempt: Attempt) -> Contradictions:
    """Yield whether processes that print the same iterations print different times for them; the slowest one's count."""
    copies = max(attempt.copies.values(), key=lambda each: each.between_processes, default=None)
    if copies and copies.between_processes > RANKS:
        fastest, slowest = copies.line_numbers
        text = (
            f"processes print different times for {copies.num_differing} of {copies.num_iterations} iterations: the slowest one's are "
            f"{copies.between_processes + 1:.4g} times the fastest one's in all (most in lines {fastest} and {slowest})"
        )
        yield Contradiction(Code.RANKS_DIFFER, Weight.DOUBT, text, copies.line_numbers)


def _costs(attempt: Attempt, overrides: Overrides, first: int = 0) -> Column:
    """Return seconds per token of the lines of a start from the line `first` on, where they are known."""
    sizes = sizes_of(attempt, overrides)
    return positive(ratio(sizes.elapsed_s, sizes.tokens)[first:])


# Other statements of the log of how long the run takes.


def _slower_statements(claims: Claims, found: list[Restated]) -> Iterator[SlowerStatement]:
    window, has_times = claims.measured.window.spans, claims.sizes.has_times
    if clock := slower_by_clock(claims):
        yield SlowerStatement("the times of day of its lines", clock)
    begun_s, ended_s = (claims.attempt.fact(name) for name in ("begun_s", "ended_s"))
    if begun_s and ended_s and has_times:
        whole_s = ended_s - begun_s - 1 - PRINTED_LATE_S  # both are whole seconds
        slower = whole_s / float(claims.spans.seconds.sum())
        yield SlowerStatement("the program's own dates before the first and behind the last step", slower)
    if claims.silent_s:
        stamps = finite(claims.records.column("stamp_s"))
        whole = 1 + claims.silent_s / max(float(stamps[-1] - stamps[0]), 1.0)
        yield SlowerStatement("the times of day of its lines and of its end", whole)
    for field in found:
        if field.is_absolute and OTHER_UNIT < field.high < 1:
            yield SlowerStatement(f"the {WORDS[field.name]} of its lines", 1 / field.high)
    if has_times:
        alike = float(window.elapsed_s.sum() / (window.num_tokens / window.num_iterations).sum())
        yield SlowerStatement("its lines, if each stood for equally many iterations,", alike * claims.measured.steady)
    own = _mean_after_warm_up([claims.attempt] if claims.others else [], claims.overrides)
    long = [[other] for other in claims.others if len(other.records) >= MIN_ATTEMPT]
    short = [other for other in claims.others if len(other.records) < MIN_ATTEMPT]
    for others in [*long, short]:
        mean = _mean_after_warm_up(others, claims.overrides)
        if own and mean:
            lines = ", ".join(str(int(other.records.numbers[0])) for other in others[:3])
            yield SlowerStatement(
                f"another start of this training in the log (from line {lines})", mean / own, is_start=True
            )


def _mean_after_warm_up(attempts: Sequence[Attempt], overrides: Overrides) -> float | None:
    """Return the mean of seconds per token of several starts, stalls included, None where the lines are too few."""
    costs = [_costs(attempt, overrides, max(1, len(attempt.records) // START)) for attempt in attempts]
    known = np.concatenate([np.empty(0), *costs])
    return float(known.mean()) if len(known) >= MIN_ATTEMPT else None
