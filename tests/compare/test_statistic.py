"""Whether a difference is one: the A/A false alarms, the power, and what a comparison rests on."""

import math
import random
from dataclasses import replace

import pytest

from nlp_bench.analysis.contrast import Basis, Gate, Method, Scatter, Statistic, Verdict, Word, statistic, worst
from nlp_bench.analysis.repeats import Observation, Pool
from nlp_bench.measure.estimate import Estimate, Ratio, Uncertainty, variance_ratio_tail
from nlp_bench.outcome import Outcome

WITHIN = 0.001


def runs(source: random.Random, number: int, scatter: float, mean: float = 1e-5, within: float = WITHIN) -> Pool:
    found = []
    for _ in range(number):
        seconds = mean * (1 + source.gauss(0, scatter))
        error = Estimate(seconds_per_token=seconds, standard_error=within * seconds, degrees=20)
        found.append(
            Observation(source="a", outcome=Outcome.VALID, seconds_per_token=seconds, estimate=error, num_intervals=20)
        )
    return Pool(runs=tuple(found))


def most_alarms(number: int, rate: float, doubt: float) -> int:
    """Return the count that is exceeded with probability `doubt` at most when each of `number` trials alarms at `rate`."""
    tail, count = 1.0, 0
    while tail > doubt:
        tail -= math.comb(number, count) * rate**count * (1 - rate) ** (number - count)
        count += 1
    return count


@pytest.mark.parametrize(("a", "b"), [(2, 2), (2, 5), (3, 4), (5, 5), (2, 10), (1, 2), (1, 5), (5, 1)])
@pytest.mark.parametrize("within", [0.0001, 0.01])
def test_equal_machines_cry_wolf_in_at_most_one_case_of_twenty(a: int, b: int, within: float) -> None:
    """400 comparisons of equals; more alarms than the bound come once in 10000 times at a true rate of 5 %."""
    source = random.Random(a * 100 + b)  # noqa: S311  # a repeatable test
    scatter = math.hypot(0.01, within)
    pairs = [(runs(source, a, scatter, within=within), runs(source, b, scatter, within=within)) for _ in range(400)]
    for same_machine in (True, False):
        found = [statistic(*pair, same_machine=same_machine).verdict for pair in pairs]
        assert sum(verdict in {Verdict.FASTER, Verdict.SLOWER} for verdict in found) <= most_alarms(400, 0.05, 1e-4)


def test_a_true_difference_is_found() -> None:
    """5 against 5 runs that scatter by 1 % find 5 % nearly always, and say in which direction."""
    source = random.Random(2)  # noqa: S311  # a repeatable test
    found = [statistic(runs(source, 5, 0.01), runs(source, 5, 0.01, mean=1e-5 / 0.95)).verdict for _ in range(100)]
    assert found.count(Verdict.SLOWER) >= 98
    assert Verdict.FASTER not in found


def test_few_runs_of_one_machine_find_what_the_pooled_t_finds() -> None:
    """3 against 3 at 1 % find 2 % in 45 of 100 cases (36 by Welch's t): 160 of 400 is 2 standard deviations below that."""
    source = random.Random(12)  # noqa: S311  # a repeatable test
    pairs = [(runs(source, 3, 0.01), runs(source, 3, 0.01, mean=1e-5 / 0.98)) for _ in range(400)]
    assert sum(statistic(*pair).verdict is Verdict.SLOWER for pair in pairs) >= 160


@pytest.mark.parametrize("known", [None, 0.01])
def test_one_run_each_of_equal_machines(known: float | None) -> None:
    """Nothing is said without the scatter of runs; with it the level is kept: 9 degrees of freedom, drawn anew each time."""
    source = random.Random(13)  # noqa: S311  # a repeatable test
    words = []
    for _ in range(400):
        scatter = Scatter.of(runs(source, 10, known)) if known else None
        words.append(statistic(runs(source, 1, 0.01), runs(source, 1, 0.01), known=scatter).verdict)
    alarms = sum(word in {Verdict.FASTER, Verdict.SLOWER} for word in words)
    assert alarms <= (most_alarms(400, 0.05, 1e-4) if known else 0)
    assert (Verdict.NEEDS_REPEATS in words) is (known is None)


def spread(number: int, scatter: float) -> Pool:
    """Return runs at 1e-5 (1 +- `scatter`), by turns."""
    seconds = [1e-5 * (1 + scatter * (-1) ** index) for index in range(number)]
    (run,) = one_run()
    return Pool(runs=tuple(replace(run, seconds_per_token=s) for s in seconds))


def one_run() -> tuple[Observation, ...]:
    return runs(random.Random(1), 1, 0.0).runs  # noqa: S311  # a repeatable test


@pytest.mark.parametrize(
    ("a", "b", "method"),
    [
        (spread(4, 0.01), spread(4, 0.02), Method.POOLED),
        (spread(4, 0.01), spread(5, 0.02), Method.POOLED),
        (spread(4, 0.01), spread(4, 0.08), Method.WIDER),
        (spread(3, 0.015), spread(10, 0.01), Method.WIDER),
        (spread(3, 0.01), spread(10, 0.01), Method.POOLED),
        (spread(3, 0.001), spread(10, 0.01), Method.WELCH),
    ],
)
def test_the_method_follows_from_numbers_and_scatter(a: Pool, b: Pool, method: Method) -> None:
    assert statistic(a, b).method is statistic(b, a).method is method
    assert statistic(a, b, same_machine=False).method is (Method.WELCH if method is Method.WELCH else Method.WIDER)


def test_the_tail_of_the_ratio_of_two_variances() -> None:
    """The 95 % point of the F distribution with 3 and 10 degrees of freedom is 3.7083."""
    assert variance_ratio_tail(3.7083, 3, 10) == pytest.approx(0.05, rel=1e-4)


def test_the_runs_that_are_missing_decide_in_four_of_five_cases() -> None:
    """By simulation with the number that is named, the true ratio 0.98 and the threshold 1."""
    source = random.Random(14)  # noqa: S311  # a repeatable test
    asked = Statistic(value=0.98, ratio=None, basis=Basis.RUNS, level=0.95, scatter=Scatter(cv=0.01, degrees=8))
    number = asked.runs_each(1.0)
    pairs = [(runs(source, number, 0.01), runs(source, number, 0.01, mean=1e-5 / 0.98)) for _ in range(400)]
    assert 0.73 < sum(statistic(*pair).verdict is Verdict.SLOWER for pair in pairs) / 400 < 0.9
    assert asked.runs_each(0.98) is None


@pytest.mark.parametrize(("a", "b"), [(5, 5), (1, 5), (5, 1), (1, 1)])
def test_the_ratio_of_the_other_order_is_the_inverse(a: int, b: int) -> None:
    source = random.Random(4)  # noqa: S311  # a repeatable test
    one, two = runs(source, a, 0.01), runs(source, b, 0.01)
    there, back = statistic(one, two), statistic(two, one)
    assert there.ratio.ratio == pytest.approx(there.value, rel=1e-9)
    assert there.ratio.low == pytest.approx(1 / back.ratio.high, rel=1e-6)
    assert there.ratio.p_value == pytest.approx(back.ratio.p_value, abs=1e-9)


def test_the_basis_is_named() -> None:
    source = random.Random(5)  # noqa: S311  # a repeatable test
    one, many = runs(source, 1, 0.01), runs(source, 3, 0.01)
    found = [statistic(*pair).basis for pair in ((one, one), (one, many), (many, one), (many, many))]
    assert found == [Basis.ONE_EACH, Basis.ONE_TO_SEVERAL, Basis.ONE_TO_SEVERAL, Basis.RUNS]


def test_one_run_against_several_scatters_like_the_several() -> None:
    """The prediction interval of a further run: t * s * sqrt(1 + 1/n)."""
    source = random.Random(6)  # noqa: S311  # a repeatable test
    many, one = runs(source, 5, 0.01, within=1e-6), runs(source, 1, 0.0, within=1e-6)
    ratio = statistic(many, one).ratio
    assert math.log(ratio.high / ratio.ratio) == pytest.approx(2.776445 * many.spread * math.sqrt(1.2), rel=1e-5)


def test_what_two_runs_have_not_seen_is_in_their_interval_and_not_in_that_of_repeats() -> None:
    source, unseen = random.Random(7), Uncertainty(num_iterations=300, noise=0.001, degrees=20)  # noqa: S311  # a repeatable test
    one, two, many = (runs(source, number, 0.001) for number in (1, 1, 5))

    def wider(run: Observation) -> Observation:
        return replace(run, estimate=replace(run.estimate, uncertainty=unseen))

    wide = [Pool(runs=tuple(map(wider, pool.runs))) for pool in (one, two, many)]
    slower = unseen.sides()[1]
    alone, without = statistic(wide[0], wide[1]).ratio, statistic(one, two).ratio
    assert alone.low < without.low
    assert math.log(alone.ratio / alone.low) == pytest.approx(math.hypot(slower, unseen.sides()[0]))
    assert statistic(wide[0], wide[2]).ratio == statistic(one, many).ratio


def test_without_scatter_nothing_is_said() -> None:
    flat = Pool(runs=tuple(Observation(source="a", outcome=Outcome.VALID, seconds_per_token=1e-5) for _ in range(3)))
    assert statistic(flat, flat).verdict is Verdict.NO_INTERVAL


@pytest.mark.parametrize("number", [1, 3])
def test_one_side_without_an_interval_says_nothing(number: int) -> None:
    # Of runs that do not differ at all it is not known what they scatter by.
    bare = Pool(runs=one_run() * number if number > 1 else (replace(one_run()[0], estimate=None),))
    for pair in ((bare, Pool(runs=one_run())), (Pool(runs=one_run()), bare)):
        found = statistic(*pair)
        assert (found.verdict, found.ratio, found.both_sides) == (Verdict.NO_INTERVAL, None, None)
        assert found.value == pytest.approx(1)
    assert statistic(bare, spread(4, 0.01)).ratio is not None  # what the others scatter by holds for it


def test_other_runs_of_the_machine_join_unless_these_scatter_more() -> None:
    known = Scatter(cv=0.01, degrees=9)
    one, few = Pool(runs=one_run()), spread(3, 0.01)
    own = Scatter.of(few)
    joined = statistic(one, few, known=known)
    assert joined.is_used
    assert joined.scatter == Scatter(cv=math.sqrt((9 * 0.01**2 + 2 * own.cv**2) / 11), degrees=11)
    wild = statistic(one, spread(3, 0.1), known=known)
    assert (wild.is_used, wild.known, wild.scatter) == (False, known, Scatter.of(spread(3, 0.1)))
    alone = statistic(one, one, known=known)
    # one against one: the t of 9 degrees of freedom, the scatter of both
    assert math.log(alone.ratio.high) == pytest.approx(2.262157 * 0.01 * math.sqrt(2), rel=1e-5)
    assert math.log(alone.both_sides.high) == pytest.approx(1.833113 * 0.01 * math.sqrt(2), rel=1e-5)


def test_more_comparisons_make_wider_intervals() -> None:
    source = random.Random(8)  # noqa: S311  # a repeatable test
    one, two = runs(source, 4, 0.01), runs(source, 4, 0.01)
    alone, among = statistic(one, two).ratio, statistic(one, two, 10).ratio
    assert among.low < alone.low < alone.high < among.high
    assert statistic(one, two, 10).level == pytest.approx(0.995)


def shown(low: float, high: float) -> Statistic:
    ratio = Ratio(ratio=math.sqrt(low * high), low=low, high=high, p_value=0.5)
    return Statistic(value=ratio.ratio, ratio=ratio, both_sides=ratio, basis=Basis.RUNS, level=0.95)


@pytest.mark.parametrize(
    ("low", "high", "word", "equivalence", "unexpected"),
    [
        (0.99, 1.01, Word.PASS, Word.EQUIVALENT, False),
        (0.98, 1.04, Word.PASS, Word.NOT_PROVEN, False),
        (0.97, 1.2, Word.PASS, Word.NOT_PROVEN, False),
        (0.96, 1.02, Word.NOT_PROVEN, Word.NOT_PROVEN, False),
        (0.90, 0.97, Word.NOT_PROVEN, Word.NOT_PROVEN, False),
        (0.90, 0.969, Word.FAIL, Word.NOT_EQUIVALENT, False),
        (1.02, 1.2, Word.PASS, Word.NOT_PROVEN, False),
        (1.031, 1.2, Word.PASS, Word.NOT_EQUIVALENT, True),
    ],
)
def test_gate_and_equivalence(low: float, high: float, word: Word, equivalence: Word, unexpected: bool) -> None:
    gate, both, found = Gate(percent=3), Gate(percent=3, equivalence=True), shown(low, high)
    assert (gate.word(found), both.word(found), gate.is_unexpected(found)) == (word, equivalence, unexpected)


@pytest.mark.parametrize("number", [3, 5])
def test_equivalence_and_its_contrary_are_said_wrongly_in_at_most_one_case_of_twenty(number: int) -> None:
    """At a true ratio of 0.98 neither is so: 400 comparisons, the bound as above. At 1 five runs each show it mostly."""
    source, gate = random.Random(15 + number), Gate(percent=2, equivalence=True)  # noqa: S311  # a repeatable test
    pairs = [(runs(source, number, 0.005), runs(source, number, 0.005, mean=1e-5 / 0.98)) for _ in range(400)]
    words = [gate.word(statistic(*pair)) for pair in pairs]
    assert max(words.count(Word.EQUIVALENT), words.count(Word.NOT_EQUIVALENT)) <= most_alarms(400, 0.05, 1e-4)
    equal = [gate.word(statistic(runs(source, 5, 0.005), runs(source, 5, 0.005))) for _ in range(100)]
    assert equal.count(Word.EQUIVALENT) > 90


def test_no_gate_is_decided_by_the_scatter_within_two_runs() -> None:
    found = replace(shown(0.5, 0.6), method=Method.WITHIN)
    assert [Gate(percent=3, equivalence=both).word(found) for both in (False, True)] == [Word.NOT_PROVEN] * 2


def test_the_gate_stops_at_a_failure_and_when_strict_at_a_doubt() -> None:
    assert Gate(percent=3).word(None) is Word.FAIL
    stops = {strict: [Gate(percent=3, strict=strict).stops(word) for word in Word] for strict in (False, True)}
    assert stops == {False: [True, True, False, False, False], True: [True, True, True, False, False]}
    assert worst([Word.PASS, Word.FAIL, Word.NOT_PROVEN]) is Word.FAIL
    assert worst([Word.PASS, Word.NOT_PROVEN]) is Word.NOT_PROVEN
