"""Rules on single settings, and on run.json and the log saying the same."""

from dataclasses import dataclass

from nlp_bench.errors import UsageError, nearest
from nlp_bench.logs.settings import ARGUMENTS
from nlp_bench.measure.findings import Evidence
from nlp_bench.measure.workload import OURS, Setting, Value
from nlp_bench.rules.rule import Rule, decided, missing
from nlp_bench.rules.subject import Subject, expect, same

_OF_LINES = (
    "nccl_version",
    "nccl_transport",
    "torch_version",
    "megatron_core_version",
    "cuda_version",
    "python_version",
)
KNOWN = (*OURS, *sorted(ARGUMENTS), *_OF_LINES)
"""Names that a rule may use; those that end with _version or _kernel too."""


def known_setting(key: str, name: str) -> None:
    """Raise UsageError, naming the nearest, where no run can state `name`."""
    if name not in KNOWN and not name.endswith(("_version", "_kernel")):
        raise UsageError(f"{key}: {name!r} is no setting of a run{nearest(name, list(KNOWN))}")


@dataclass(frozen=True, kw_only=True)
class SettingRule(Rule):
    """One setting is within bounds, wherever it is stated."""

    name: str
    """Name of the setting, of `measure.workload`."""
    equals: int | float | str | bool | None = None
    """The only value."""
    one_of: tuple[int | float | str, ...] = ()
    """The only values."""
    contains: str | None = None
    """Words that the value holds, upper or lower case."""
    at_least: float | None = None
    """Smallest value."""
    at_most: float | None = None
    """Largest value."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known_setting("name", self.name)
        if all(value in {None, ()} for value in (self.equals, self.one_of, self.contains, self.at_least, self.at_most)):
            raise UsageError("equals: missing; give equals, one_of, contains, at_least or at_most")

    def look(self, subject: Subject) -> list[Evidence]:
        """Look at what run.json and the log state."""
        stated = subject.stated(self.name)
        if not stated:
            return [missing(self.name, self._expected())]
        return [self._of(one) for one in stated]

    def _expected(self) -> str:
        words = [] if self.equals is None else [f"{self.equals}"]
        words += [f"one of {', '.join(map(str, self.one_of))}"] if self.one_of else []
        words += [f"with {self.contains!r} in it"] if self.contains is not None else []
        words += [f"at least {self.at_least:g}"] if self.at_least is not None else []
        words += [f"at most {self.at_most:g}"] if self.at_most is not None else []
        return " and ".join(words)

    def _of(self, setting: Setting) -> Evidence:
        value = setting.value
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
        low, high = self.at_least, self.at_most
        passes = (
            (self.equals is None or same(value, self.equals))
            and (not self.one_of or any(same(value, one) for one in self.one_of))
            and (self.contains is None or self.contains.lower() in str(value).lower())
            and (low is None or (number is not None and number >= low))
            and (high is None or (number is not None and number <= high))
        )
        return decided(self.name, value, self._expected(), setting.source, passes=passes)


@dataclass(frozen=True, kw_only=True)
class Agreement(Rule):
    """Run.json and the log say the same of every setting that both state: the log of another run is found."""

    at_least: int = 1
    """Settings that both must state."""
    without: tuple[str, ...] = ()
    """Settings that are not compared."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.without:
            known_setting("without", name)

    def look(self, subject: Subject) -> list[Evidence]:
        """Compare every setting."""
        if subject.run is None:
            return [missing("settings_in_common", "all alike", "there is no run.json")]
        both: list[tuple[str, Setting, Value]] = [
            (name, logged, asked.value)
            for name in (*subject.workload.asked, "train_iters")
            if name not in self.without and (asked := subject.asked(name)) and (logged := subject.logged(name))
        ]
        differing = [
            e for name, logged, asked in both if not same(logged.value, asked) for e in expect(name, [logged], asked)
        ]
        if differing:
            return differing
        expected = f"at least {self.at_least}, all alike"
        if len(both) < self.at_least:
            return [missing("settings_in_common", expected, f"run.json and the log have {len(both)}")]
        return [decided("settings_in_common", len(both), expected, "run.json and the log", passes=True)]
