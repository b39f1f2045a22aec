"""What is kept of the numbers that were believed: no broken records, no pauses, nothing beyond any machine; and what goes with them."""

import math
from dataclasses import dataclass, field

import numpy as np

from nlp_bench.logs.unknown.evidence import Evidence, Values, middle, near, rises, spread
from nlp_bench.logs.unknown.shapes import Column

HIGH, MEDIUM, LOW = "high", "medium", "low"
_MOST = {"tokens_per_second": 1e9, "tokens_per_second_per_device": 1e8, "samples_per_second": 1e8, "tokens": 1e10}
_LEAST_S = 2e-5
RATES = tuple(f"{what}_per_second{of}" for what in ("tokens", "samples") for of in ("", "_per_device"))
"""Quantities that are rates."""


@dataclass
class Verdict:
    """What was made of the lines of one form."""

    columns: dict[str, Values] = field(default_factory=dict)
    """Quantities of `quantity.ROW`; empty where nothing can be believed."""
    places: list[list[int]] = field(default_factory=list)
    """Offset, line number, label of each row, and its marks (`shapes.PAUSED`, `shapes.CUT`)."""
    notes: list[str] = field(default_factory=list)
    """What was taken for what."""
    doubts: list[str] = field(default_factory=list)
    """What was left out, and why."""
    missing: tuple[str, ...] = ()
    """Facts of `quantity.OPTIONS` that a number would need besides, where nothing is believed."""
    sure: str = LOW
    """high: a second quantity agrees; medium: name or unit say it; low: nothing is believed."""
    facts: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Facts of `quantity.FACTS`, each with its line (0: none of its own)."""


class Keeping:
    """What was made of the lines of one form, while it is put together."""

    def __init__(self, evidence: Evidence) -> None:
        """Begin with nothing."""
        self.evidence = evidence
        self.found = Verdict(places=evidence.places.tolist())
        self.tokens: Values | None = None
        self.seconds: Values | None = None
        self.is_contradicted = False

    def note(self, text: str) -> None:
        """Say what was taken for what."""
        self.found.notes.append(text)

    def doubt(self, column: Column, why: str) -> None:
        """Say what was left out."""
        self.found.doubts.append(f"'{column.shown}' is left out: {why}")

    def leave_out_broken(self) -> None:
        """Leave out records that a terminal has cut in the last number, or whose rate and time do not belong together."""
        evidence, columns = self.evidence, self.found.columns
        cut = evidence.places[:, 3] > 1
        broken = cut if 2 * cut.sum() < len(cut) else np.zeros_like(cut)
        rate = next((columns[name] for name in RATES if name in columns), None)
        if rate is not None and self.seconds is not None:
            product = rate * self.seconds / middle(rate * self.seconds)
            strange = np.isfinite(product) & ((product > 4) | (product < 0.25))
            broken = broken | strange if 4 * strange.sum() < len(strange) else broken
        for name in {"elapsed_s", *RATES} & columns.keys() if broken.any() else ():
            columns[name] = np.where(broken, np.nan, columns[name])
        if broken.any():
            self.note(f"{int(broken.sum())} record(s) with broken numbers are left out")

    def leave_out_pauses(self) -> None:
        """Leave out steps that hold an evaluation: a line in front of them tells of one, and they are slow."""
        paused = self.evidence.places[:, 3] % 2 > 0
        for name in ("elapsed_s", *RATES):
            values = self.found.columns.get(name)
            if values is None or 2 * paused.sum() >= len(paused):
                continue
            usual = middle(values[~paused])
            slow = paused & (values > 1.5 * usual if name == "elapsed_s" else values < usual / 1.5)
            if slow.any():
                self.found.columns[name] = np.where(slow, np.nan, values)
                self.note(f"{int(slow.sum())} record(s) behind an evaluation are left out")

    def is_plausible(self) -> bool:
        """Say whether a machine can be that fast; what cannot be is said."""
        columns = self.found.columns
        beyond = [name for name, most in _MOST.items() if name in columns and middle(columns[name]) > most]
        if "elapsed_s" in columns and middle(columns["elapsed_s"]) < _LEAST_S:
            beyond.append("elapsed_s")
        self.found.doubts += [f"{name.replace('_', ' ')} beyond any machine" for name in beyond]
        return not beyond

    def rest(self) -> None:
        """Add what describes a record, beside what is measured."""
        evidence, columns = self.evidence, self.found.columns
        columns["iteration"], columns["stamp_s"] = evidence.steps, evidence.stamps
        at = evidence.names.index(evidence.counter) + 1 if evidence.counter else 0
        if evidence.names[at : at + 1] and evidence.names[at].meaning.kind == "total":
            totals = evidence.values[at]
            if spread(totals) == 0:
                columns["total_iterations"] = totals
        for _, values in evidence.columns("loss")[:1]:
            columns["lm_loss"] = values
        for kind in ("samples", "tokens"):
            for column, values in evidence.columns(f"seen_{kind}")[:1]:
                is_new = f"consumed_{kind}" not in columns and column.meaning.by == "name"
                if is_new and not column.is_rounded and rises(values):
                    columns[f"consumed_{kind}"] = values

    def missing(self) -> tuple[str, ...]:
        """Return the facts that the log does not say and that its times or rates of samples would need."""
        settings = self.evidence.settings
        is_timed = bool(self.evidence.columns("step_time", "steps_rate", "time"))
        is_sampled = bool(self.evidence.columns("samples_rate"))
        if self.tokens is not None or not (is_timed or is_sampled):
            return ()
        needs = (
            ("sequence_length", not settings.sequence),
            ("global_batch_size", not is_sampled and self.evidence.batch() is None),
        )
        return tuple(name for name, is_missing in needs if is_missing)

    def facts(self) -> None:
        """Add what the log says once."""
        settings, facts = self.evidence.settings, self.found.facts
        limits = "sequence" if settings.has("sequence") else "sequence_limit"
        stated = {
            "global_batch_size": (settings.batch, "global_batch"),
            "sequence_length": (settings.sequence, limits),
            "num_devices": (settings.devices, "devices"),
            "tokens": (settings.one("step_tokens"), "step_tokens"),
        }
        usual = middle(self.tokens) if self.tokens is not None else math.nan
        product = (settings.batch or math.nan) * (settings.sequence or math.nan)
        if not near(product / usual, 1.0, 0.01) and math.isfinite(product / usual):
            self.note(f"the settings' batch x sequence, {product:.0f} tokens, is not that of the lines")
            del stated["sequence_length"]
        for name, (value, kind) in stated.items():
            if value:
                facts.setdefault(name, (value, settings.line(kind)))
