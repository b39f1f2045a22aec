"""The rules of one file, ready to be held against runs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nlp_bench.config.model import Model
from nlp_bench.measure.entry import RunResult
from nlp_bench.measure.findings import Finding, Judgement, Status
from nlp_bench.rules.frozen import same_model
from nlp_bench.rules.rule import Rule, missing
from nlp_bench.rules.subject import Subject


@dataclass(frozen=True, kw_only=True)
class RuleSet:
    """What one file says, with all that it extends."""

    name: str
    """Its name, without .toml."""
    title: str
    """What the rules are of."""
    models: Mapping[str, Model]
    """The models whose values are frozen, by their names."""
    free: tuple[str, ...]
    """Settings that may be tuned."""
    rules: Mapping[str, Rule]
    """By their ids, in the order of the file."""
    digest: str
    """SHA-256 of what the rules and the models say."""

    def judge(
        self,
        entry: RunResult,
        *,
        run: Mapping[str, Any] | None = None,
        ended: Mapping[str, Any] | None = None,
        is_asked: bool = False,
    ) -> Judgement:
        """Hold one run to the rules; `run` is run.json and `ended` outcome.json, None for a log of somebody else."""
        subject = Subject(entry=entry, run=run, ended=ended, models=tuple(self.models))
        model = same_model(subject, dict(self.models))
        subject = replace(subject, model=model)
        found = [self._finding(name, rule, subject) for name, rule in self.rules.items() if self._holds(rule, subject)]
        return Judgement(
            rules=self.name,
            digest=self.digest,
            model=model.name if model else None,
            is_asked=is_asked,
            findings=tuple(found),
            free=entry.workload.values(self.free),
        )

    @staticmethod
    def _holds(rule: Rule, subject: Subject) -> bool:
        """Say whether the rule is one for the run's model; where nothing names the model, every rule may be."""
        named = subject.model.name if subject.model else subject.named
        return not rule.models or named is None or named in rule.models

    @staticmethod
    def _finding(name: str, rule: Rule, subject: Subject) -> Finding:
        found = rule.finding(name, subject)
        if not rule.models or subject.model or found.status is Status.NOT_SHOWN:
            return found
        # What holds for one model only says nothing of a run that may have trained another.
        evidence = missing("model", f"one of {', '.join(rule.models)}", "the rule is for this model alone")
        shown = tuple(replace(one, status=None) for one in found.evidence)
        return replace(found, status=Status.NOT_SHOWN, evidence=(evidence, *shown))
