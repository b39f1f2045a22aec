"""What every rule has, whatever it checks: the run that it examines, its evidence, its finding; and the rules of one file together."""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, field, fields, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nlp_bench.config.model import Model
from nlp_bench.errors import UsageError, nearest
from nlp_bench.immutable import immutable
from nlp_bench.logs.record import NO_RECORDS, Records
from nlp_bench.measure.judgement import Judgement, RuleEvidence, RuleFinding, Status, evidence
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.workload import Setting, Value, lookup, workload_of

NAMED_SHAPE = ("num_layers", "hidden_size", "num_attention_heads")  # what distinguishes models
_MODEL = "model"  # the check of a rule that says itself whether the run trained one of the models


@immutable
class Subject:
    """One run as the rules see it."""

    entry: RunResult  # what was measured, before any rule voided the number
    run: Mapping[str, Any] | None = None  # run.json, None for a log of somebody else
    ended: Mapping[str, Any] | None = None  # outcome.json, likewise
    model: Model | None = None  # the model of the rules that it trained, by name or shape; None: not known
    models: tuple[str, ...] = ()

    @property
    def records(self) -> Records:
        """Every logged interval; none where only their ends are kept."""
        whole = len(self.entry.records) == (self.entry.num_records or 0)
        return self.entry.records if whole else NO_RECORDS

    @property
    def lines(self) -> str | None:
        """Line numbers of the records."""
        numbers = self.records.numbers
        return f"log lines {numbers[0]} to {numbers[-1]}" if len(numbers) else None

    @property
    def named(self) -> str | None:
        """The model file that run.json names; what a table or a log calls a model is no name of a file."""
        found = self.entry.workload.asked.get("model") if self.run is not None else None
        return str(found.value) if found else None

    def asked(self, name: str) -> Setting | None:
        """Return the setting that run.json states."""
        if name == "train_iters" and self.run:
            value = lookup(self.run, "training.iterations")
            return Setting(value, "run.json") if isinstance(value, int) else None
        return self.entry.workload.asked.get(name)

    def logged(self, name: str) -> Setting | None:
        """Return the setting that the log prints."""
        return self.entry.workload.logged.get(name)

    def stated(self, name: str) -> list[Setting]:
        """Return the settings that run.json and the log state."""
        return [found for found in (self.asked(name), self.logged(name)) if found]


def same(first: Value, second: Value) -> bool:
    """Return whether two values of one setting are equal: words without their case, numbers to 9 digits."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in (first, second)):
        return math.isclose(float(first), float(second), rel_tol=1e-9)
    return str(first).lower() == str(second).lower()


def expect(name: str, settings: list[Setting], wanted: Value) -> list[RuleEvidence]:
    """Return the evidence that each of `settings` is `wanted`: one for all that are, one for each that is not."""
    if not settings:
        return [evidence(name, Status.NOT_SHOWN, None, wanted)]
    wrong = [one for one in settings if not same(one.value, wanted)]
    if not wrong:
        places = " and ".join(one.source for one in settings)
        return [evidence(name, Status.PASS, settings[-1].value, wanted, places)]
    return [evidence(name, Status.FAIL, one.value, wanted, one.source) for one in wrong]


def each(name: str, settings: list[Setting], expected: str, passes: Callable[[Value], bool]) -> list[RuleEvidence]:
    """Return the evidence that the value of each of `settings` passes; missing where there are none."""
    found = [decided(name, one.value, expected, one.source, passes=passes(one.value)) for one in settings]
    return found or [missing(name, expected)]


def decided(name: str, value: str | float | None, expected: str, source: str | None, *, passes: bool) -> RuleEvidence:
    """Return the evidence of one value that passes or fails."""
    return evidence(name, Status.PASS if passes else Status.FAIL, value, expected, source)


def missing(name: str, expected: str, why: str | None = None) -> RuleEvidence:
    """Return that nobody states `name`; `why` says what stands in its place."""
    return evidence(name, Status.NOT_SHOWN, None, expected, why)


Check = Callable[[str, Any], None]
"""Raises UsageError, which begins with the given name of the key, for a value that the key must not have."""


def checked(check: Check, default: Any = MISSING) -> Any:
    """Return a key of a rule whose value is checked; of a list each item, of a table each value by its key."""
    return field(default=default, metadata={"check": check})


def words(*known: str) -> Check:
    """Refuse a word that is not known, naming the nearest."""

    def check(key: str, word: str) -> None:
        if word not in known:
            raise UsageError(f"{key}: {word!r} is unknown{nearest(word, list(known))}")

    return check


def share(key: str, value: float) -> None:
    """Refuse what is no share."""
    if not 0 <= value <= 1:
        raise UsageError(f"{key}: {value:g} is no share; write one from 0 to 1, as 0.01 for 1 %")


def above_zero(key: str, value: float) -> None:
    """Refuse what is not above 0 or not finite."""
    if not 0 < value < math.inf:
        raise UsageError(f"{key}: {value:g} is not above 0")


def _sentence(key: str, text: str) -> None:
    if not text.strip():
        raise UsageError(f"{key}: empty; say in a sentence what the rule is for")


def _outcome(key: str, word: str | None) -> None:
    if word not in {None, "INVALID", "VALID"}:
        raise UsageError(f"{key}: {word!r} is not INVALID or VALID")


CHECKS: "dict[str, type[Rule]]" = {}  # the kinds of check by the word that a rule file uses


@immutable
class Rule:
    """One table `[rules.ID]` of a rule file; each kind of check is a class in `checks` that adds its own keys."""

    def __init_subclass__(cls, word: str) -> None:
        CHECKS[word] = cls

    check: str
    why: str = checked(_sentence)  # the rule for people, in a sentence
    models: tuple[str, ...] = ()  # the models that it holds for; empty for all models of the file
    apply: bool = True  # False removes the rule, in a file that extends another
    required_evidence: bool = False  # whether missing evidence breaks the rule, in place of being not shown
    outcome: str | None = checked(_outcome, None)
    """What a broken rule does to the number: INVALID voids it always, VALID never; None: it voids it only where the rules were requested."""

    def refuse_wrong(self, where: str) -> None:
        """Raise UsageError, which begins with `where` and the key, for a value that a key must not have."""
        for one in fields(self):
            check, value, key = one.metadata.get("check"), getattr(self, one.name), f"{where}.{one.name}"
            if check and isinstance(value, dict):
                for word, item in value.items():
                    check(f"{key}.{word}", item)
            elif check:
                for item in value if isinstance(value, tuple) else (value,):
                    check(key, item)

    def _look(self, subject: Subject) -> list[RuleEvidence]:
        raise NotImplementedError

    def finding(self, rule: str, subject: Subject) -> RuleFinding:
        """Return the word of the rule called `rule`."""
        shown = tuple(self._look(subject))
        found = {one.status for one in shown} - {None}
        status = Status.FAIL if Status.FAIL in found else Status.PASS if found == {Status.PASS} else Status.NOT_SHOWN
        if status is Status.NOT_SHOWN and self.required_evidence:
            status = Status.FAIL
        if self.models and not subject.model and status is not Status.NOT_SHOWN:
            # A rule for one model does not apply to a run that may have trained another.
            first = missing("model", f"one of {', '.join(self.models)}", "the rule is for this model alone")
            status, shown = Status.NOT_SHOWN, (first, *(replace(one, status=None) for one in shown))
        return RuleFinding(
            rule=rule, check=self.check, why=self.why, status=status, outcome=self.outcome, evidence=shown
        )


@immutable
class RuleSet:
    """The rules of one file, with all that it extends, ready to be applied to runs."""

    name: str
    title: str
    models: Mapping[str, Model]
    free: tuple[str, ...]
    rules: Mapping[str, Rule]
    digest: str  # SHA-256 of the content of the rules and the models
    files: tuple[Path, ...]  # its own and those that it names by paths: rules that it extends, models

    def judge(
        self,
        entry: RunResult,
        *,
        run: Mapping[str, Any] | None = None,
        ended: Mapping[str, Any] | None = None,
        is_asked: bool = False,
    ) -> Judgement:
        """Judge one run by the rules; `run` is run.json and `ended` outcome.json, None for a log of somebody else."""
        subject = Subject(entry=entry, run=run, ended=ended, models=tuple(self.models))
        model = same_model(subject, self.models)
        subject = replace(subject, model=model)
        # Where the model is not known, every rule may apply to it.
        named = model.name if model else subject.named
        holding = {
            name: rule for name, rule in self.rules.items() if not rule.models or named is None or named in rule.models
        }
        findings = [rule.finding(name, subject) for name, rule in holding.items()]
        if model is None and not any(rule.check == _MODEL for rule in holding.values()):
            findings.insert(0, self._other_model())
        return Judgement(
            rules=self.name,
            digest=self.digest,
            model=model.name if model else None,
            is_asked=is_asked,
            findings=tuple(findings),
            free=entry.workload.values(self.free),
        )

    def _other_model(self) -> RuleFinding:
        """Return that the run does not show that it trained one of the models of the file, where no rule of it says so."""
        expected = f"one of {', '.join(self.models)}"
        shown = (missing("model", expected, "the run does not show that it trained what the rules are for"),)
        why = "The rules of a file are for its models alone."
        return RuleFinding(rule="models", check=_MODEL, why=why, status=Status.NOT_SHOWN, outcome=None, evidence=shown)


def same_model(subject: Subject, models: Mapping[str, Model]) -> Model | None:
    """Return which of `models` a run trained: by its name in run.json, else the first of the shape that is stated."""
    if subject.named is not None:
        return models.get(subject.named)
    stated = [(name, one.value) for name in NAMED_SHAPE for one in subject.stated(name)]
    if not stated:
        return None
    fitting = (m for m in models.values() if all(vars(m.architecture)[name] == value for name, value in stated))
    return next(fitting, None)


@cache
def frozen_values(model: Model, section: str) -> Mapping[str, Value]:
    """Return what a section of the model file (architecture or training) says, by the names of `measure.workload`."""
    values = asdict(getattr(model, section))
    record = {"model": {section: values}} if section == "architecture" else {section: values}
    found = {name: setting.value for name, setting in workload_of(record, {}).asked.items()}
    if values.get("recompute") == "none":
        found["recompute_granularity"] = "none"
    return MappingProxyType(found)
