"""What the lines of one form are worth: every number is weighed against the others before one is believed.

The counter must rise; rate x time must be the tokens of an iteration where all three are known; a time must fit the time
stamps of the lines. What cannot be told (of a device or of the machine, of a step or of an interval) is left out.
"""

import math

import numpy as np

from nlp_bench.logs.unknown.evidence import NEAR, Evidence, Pair, Values, middle, near, spread, whole
from nlp_bench.logs.unknown.keeping import HIGH, LOW, MEDIUM, RATES, Keeping, Verdict
from nlp_bench.logs.unknown.meaning import Meaning
from nlp_bench.logs.unknown.rows import Shape
from nlp_bench.logs.unknown.settings import Settings
from nlp_bench.logs.unknown.shapes import Column

_PER = {"bar": "the bar", "batch": "batches"}
_BAR = Column(0, Meaning("step_time", per="bar"), 1.0, "clock of the bar")
_WORTH = {"elapsed_s", "clock_s", *RATES}
_FEW_COLUMNS = 5


def weigh(shape: Shape, settings: Settings, *, is_training: bool) -> Verdict:
    """Return what the lines of `shape` say; `is_training` tells whether anything in the log is about training."""
    with np.errstate(all="ignore"):  # what is divided by 0 is near to nothing
        evidence = Evidence(shape, settings)
        if not len(shape) or not is_training or not evidence.prepare():
            return Verdict()
        # A sentence may name a step and a rate, too.
        is_poor = not evidence.columns("loss") and len(evidence.names) <= _FEW_COLUMNS
        is_sentence = evidence.is_single and (is_poor or not evidence.is_training)
        return Verdict() if is_sentence else _Scales(evidence).verdict()


class _Scales(Keeping):
    """The columns of one form while they are weighed."""

    def verdict(self) -> Verdict:
        """Return what can be believed."""
        found = self.found
        self._sizes()
        self.seconds = self._times()
        for column, _ in self.evidence.columns("rate"):
            self.doubt(column, "it has no unit, neither in its name nor behind its number")
        self._rates("tokens_rate", "tokens_per_second", self.tokens)
        self._rates("samples_rate", "samples_per_second", self.evidence.batch())
        if self.seconds is not None:
            found.columns["elapsed_s"] = self.seconds
            self._confirm(self.seconds)
        else:
            self._clock()
        self.leave_out_broken()
        self.leave_out_pauses()
        if self.is_contradicted or not self.is_plausible() or not _WORTH & found.columns.keys():
            found.columns.clear()
            found.missing = self.missing()
        else:
            found.sure = MEDIUM if found.sure == LOW else found.sure
            self.rest()
            self.facts()
        return found

    def _sizes(self) -> None:
        evidence, columns = self.evidence, self.found.columns
        # Several processes or devices may each count their own.
        places = {"total"} if evidence.is_parallel else {"total", ""}
        sizes = [(c, v) for c, v in evidence.columns("step_tokens") if c.meaning.place in places and not c.is_rounded]
        batch = next((v for c, v in evidence.columns("global_batch") if not c.is_rounded), None)
        length = next((v for _, v in evidence.columns("sequence")), None)
        sequence = length if length is not None else evidence.settings.sequence
        seen = evidence.seen_per_step("seen_tokens")
        if batch is not None:
            columns["global_batch_size"] = batch
        if length is not None:
            columns["sequence_length"] = length
        if sizes:
            columns["tokens"] = self.tokens = sizes[0][1]
        elif seen:
            columns["consumed_tokens"] = seen[0]
            self.tokens = np.full(len(evidence.steps), seen[1])
        elif (own := self._constant()) is not None:
            columns["tokens"] = self.tokens = own
        elif batch is not None:
            self.tokens = batch * sequence if sequence is not None else None
        elif evidence.settings.tokens:
            self.tokens = np.full(len(evidence.steps), evidence.settings.tokens)

    def _constant(self) -> Values | None:
        """Return tokens that no name says to be counted on, and that are the same on each line: those of an iteration."""
        evidence = self.evidence
        if evidence.is_parallel or len(evidence.steps) < 3:
            return None
        seen = [v for c, v in evidence.columns("seen_tokens") if c.meaning.by == "unit" and not c.is_rounded]
        return next((v for v in seen if spread(v) == 0 and not np.isnan(v).any()), None)

    # --- seconds of an iteration

    def _times(self) -> Values | None:
        """Return the seconds of an iteration, None where no column says them beyond doubt."""
        for column, values in self._candidates():
            why_not = self._why_no_time(column, values)
            if why_not is None:
                is_bar = column.meaning.per == "bar"
                hint = " (of the bar's count: give the samples of one)" if is_bar else ""
                self.note(f"'{column.shown}' as the time of an iteration{hint}")
                return values
            self.doubt(column, why_not)
        return None

    def _candidates(self) -> list[Pair]:
        """Return what may be the seconds of an iteration, the best first."""
        evidence = self.evidence
        stated = [(c, v) for c, v in evidence.columns("step_time") if c.meaning.has_unit]
        stated += [(c, _inverse(v)) for c, v in evidence.columns("steps_rate")]
        if evidence.counter and evidence.counter.meaning.per == "epoch":
            return []
        stated.sort(key=lambda pair: (pair[0].meaning.is_average, pair[0].meaning.place == "device"))
        stated += [(c, v) for c, v in evidence.columns("step_time") if not c.meaning.has_unit]
        return stated + [(c, self._per_step(v)) for c, v in evidence.columns("time") if evidence.is_of_step(v)]

    def _per_step(self, values: Values) -> Values:
        """Return a bare time per iteration: one that fits the time between two lines is of all iterations between them."""
        usual, wall_s = self.evidence.usual_step, self.evidence.wall_s
        is_interval = usual > 1 and near(middle(values) / (usual * wall_s), 1.0, 0.25)
        return values / usual if is_interval else values

    def _why_no_time(self, column: Column, values: Values) -> str | None:
        """Say why a column is not believed to be the seconds of an iteration, None when it is."""
        evidence, meaning, usual = self.evidence, column.meaning, middle(values)
        if self._tells_tokens(values):
            return None
        fits = usual / evidence.wall_s
        is_whole = evidence.batch() is not None and evidence.settings.one("accumulation") != 1
        is_bare = meaning.kind == "time" and (evidence.is_single or evidence.usual_step != 1)
        is_doubtful = is_bare or not meaning.has_unit or meaning.is_average or meaning.place == "device"
        apart = f"{usual:.4g} s per iteration do not fit the time stamps of the lines, {evidence.wall_s:.4g} s apart"
        parts = f"it may be of a part of the step: {_PER.get(meaning.per, 'iterations')} and steps are counted apart"
        bar = "a bar may count parts of the step, and the log states the batch of a whole one"
        reasons = (
            (not usual > 0, "it has no positive value"),
            (meaning.per == "bar" and is_whole, bar),
            (evidence.counts_parts(meaning), parts),
            (fits > 1.3, apart),
            (evidence.is_since_start(values), "it is an average since the start"),
            (is_doubtful and not fits > 0.75, _why_doubtful(meaning)),
            (fits < 0.6 and len(values) > 3, apart),
        )
        return next((why for is_so, why in reasons if is_so), None)

    def _tells_tokens(self, seconds: Values) -> bool:
        """Say whether a rate of the line times `seconds` is the tokens of an iteration that is known otherwise."""
        if self.tokens is None:
            return False
        devices = self.evidence.settings.devices or math.nan
        rates = [v * (devices if c.meaning.place == "device" else 1.0) for c, v in self.evidence.columns("tokens_rate")]
        return any(near(middle(rate * seconds / self.tokens), 1.0) for rate in rates)

    # --- rates

    def _rates(self, kind: str, quantity: str, size: Values | None) -> None:
        """Weigh the rates of a kind: `size` is what an iteration of the whole machine has of it."""
        total, device, plain = (self._one(kind, place) for place in ("total", "device", ""))
        if plain and total:
            # A "global rate" may be one since the start; a rate of the machine is no small part of another rate of it.
            total = plain if near(middle(total[1] / plain[1]), 1.0, 0.3) else total
        elif plain and device:
            total = self._beside(plain, device)
        elif plain:
            total, device = self._placed(plain, size)
        if total and self._fits(total, size):
            self._believe(total, quantity, "of the whole machine")
        if device:
            self._believe(device, f"{quantity}_per_device", "of one device")

    def _one(self, kind: str, place: str) -> Pair | None:
        """Return the one column of a kind of rate and place: no mean where there is another, no selection of the tokens."""
        columns = self.evidence.columns(kind)
        found = [(c, v) for c, v in columns if c.meaning.place == place and np.isfinite(v).any()]
        for is_worse in ("is_average", "is_variant"):
            found = [pair for pair in found if not getattr(pair[0].meaning, is_worse)] or found
        if any(not near(middle(values / found[0][1]), 1.0, 0.02) for _, values in found[1:]):
            names = " and ".join(f"'{column.shown}'" for column, _ in found)
            self.found.doubts.append(f"{names} differ, and nothing says which is the rate of the training")
            return None
        return found[0] if found else None

    def _beside(self, plain: Pair, device: Pair) -> Pair | None:
        """Return a rate without a place as that of the machine, where it is a multiple of the rate of one device."""
        share = middle(plain[1] / device[1])
        if near(share, max(whole(share), 1), 0.04):
            self.found.sure = HIGH
            self.found.facts["num_devices"] = (float(max(whole(share), 1)), 0)
            return plain
        self.doubt(plain[0], f"it is {share:.3g} x the rate of one device")
        return None

    def _placed(self, plain: Pair, size: Values | None) -> tuple[Pair | None, Pair | None]:
        """Tell whether a rate without a place is of the whole machine (first) or of one device (second)."""
        column, values = plain
        is_timed = self.seconds is not None
        seconds = self.seconds if self.seconds is not None else np.full(len(values), self.evidence.wall_s)
        share = middle(values * seconds / size) if size is not None else math.nan
        if size is None and column.meaning.kind == "tokens_rate":
            own = middle(values * seconds / self.evidence.share())
            if near(own, 1.0):
                self.note(f"'{column.shown}' x time is the batch of one device x sequence")
                return None, plain
        if not math.isfinite(share):
            return self._alone(plain)
        tolerance = NEAR if is_timed else 0.25
        is_device = near(share * (self.evidence.settings.devices or math.nan), 1.0, tolerance)
        if near(share, 1.0, tolerance) or is_device:
            self.found.sure = HIGH
            return (None, plain) if not near(share, 1.0, tolerance) else (plain, None)
        if is_timed and share < 0.6 and near(1 / share, whole(1 / share), 0.04):
            self.doubt(column, f"it is 1/{whole(1 / share)} of tokens / time, perhaps the rate of one device")
        else:
            self._contradict(column, share)
        return None, None

    def _alone(self, plain: Pair) -> tuple[Pair | None, Pair | None]:
        """Decide on a rate without a place that no other quantity of the log speaks about."""
        column, settings = plain[0], self.evidence.settings
        is_own = self.evidence.is_many and column.shown in self.evidence.own
        if is_own:
            self.note(f"each process prints its own '{column.shown}', so it is taken as that of one device")
        elif self.evidence.is_parallel:
            count = f"{settings.devices:.0f} devices" if settings.devices else "several devices"
            why = "it may be of one of them or of all, and no time, batch and sequence of the log decide it"
            self.doubt(column, f"with {count} {why}")
            return None, None
        elif column.meaning.per == "short" and settings.devices != 1:
            self.note(
                f"'{column.shown}' is of one device in some programs and of the whole machine in others: taken as of one "
                "device; if it is of the whole machine, give --num-gpus 1"
            )
            is_own = True
        return (None, plain) if is_own else (plain, None)

    def _fits(self, total: Pair, size: Values | None) -> bool:
        """Say whether a rate of the whole machine fits time and size, where both are known."""
        if self.seconds is None or size is None:
            return True
        share = middle(total[1] * self.seconds / size)
        if near(share, 1.0):
            self.found.sure = HIGH
            return True
        self._contradict(total[0], share)
        return False

    def _contradict(self, column: Column, share: float) -> None:
        self.found.doubts.append(f"'{column.shown}' contradicts tokens / time: it is {share:.3g} x as much")
        self.is_contradicted = True

    def _believe(self, pair: Pair, quantity: str, where: str) -> None:
        column, values = pair
        is_old = column.meaning.is_average or self.evidence.is_since_start(_inverse(values))
        size = self.tokens if self.tokens is not None else np.full(len(values), math.nan)
        # An average that follows the time stamps is one of the interval.
        if is_old and not near(middle(values * self.evidence.wall_s / size), 1.0, 0.05):
            self.doubt(column, "it is a running average")
            return
        self.found.columns[quantity] = values
        self.note(f"'{column.shown}' as {quantity.removesuffix('_per_device').replace('_', ' ')} {where}")

    def _confirm(self, seconds: Values) -> None:
        """Raise the sureness where rate x time is one number all along, or the time fits the time stamps."""
        rate = next((self.found.columns[name] for name in RATES if name in self.found.columns), None)
        product = (rate if rate is not None else np.full(len(seconds), np.nan)) * seconds
        product = product[np.isfinite(product)]
        is_constant = len(product) > 2 and np.ptp(product) < NEAR * np.median(product)
        if is_constant or near(middle(seconds) / self.evidence.wall_s, 1.0, 0.15):
            self.found.sure = HIGH

    def _clock(self) -> None:
        evidence = self.evidence
        for column, values in evidence.columns("clock", "time"):
            is_bar = column.shown == _BAR.shown
            if not column.meaning.has_unit or (is_bar and self._why_no_time(_BAR, values)):
                continue
            if evidence.is_clock(values) and (column.meaning.kind == "clock" or not evidence.is_of_step(values)):
                self.found.columns["clock_s"] = values
                self.note(f"'{column.shown}' as the training's clock")
                return


def _inverse(values: Values) -> Values:
    return np.where(values > 0, 1 / values, np.nan)


def _why_doubtful(meaning: Meaning) -> str:
    if not meaning.has_unit:
        return "its unit is not stated"
    if meaning.is_average:
        return "it is an average that may have begun long before"
    if meaning.place == "device":
        return "it is of one device, which may count its own iterations"
    return "it may be of an iteration, of an interval between two lines, or since the start"
