"""Rules on what is trained: which model, its frozen values, its number of parameters."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from types import MappingProxyType

from nlp_bench.config.model import Model
from nlp_bench.measure.findings import Evidence
from nlp_bench.measure.shape import shaped
from nlp_bench.measure.workload import Setting, Value, Workload, workload_of
from nlp_bench.rules.rule import Rule, decided, missing, one_of, share
from nlp_bench.rules.subject import Subject, expect

SECTIONS = ("architecture", "training")
NAMED_SHAPE = ("num_layers", "hidden_size", "num_attention_heads")
"""What tells models apart."""


@dataclass(frozen=True, kw_only=True)
class ModelRule(Rule):
    """The run trains one of the models of the rules: by its name in run.json, else by the shape that the log prints."""

    def look(self, subject: Subject) -> list[Evidence]:
        """Look at the name, else at the shape."""
        expected = f"one of {', '.join(subject.models)}"
        if subject.named is not None:
            return [decided("model", subject.named, expected, "run.json", passes=subject.named in subject.models)]
        shape = {name: stated[-1] for name in NAMED_SHAPE if (stated := subject.stated(name))}
        if not shape:
            return [missing("model", expected, "no shape is stated")]
        words = ", ".join(f"{name} {found.value}" for name, found in shape.items())
        source = next(iter(shape.values())).source
        return [
            decided(
                "model", f"{subject.model.name}: {words}" if subject.model else words, expected, source,
                passes=subject.model is not None,
            )
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EqualsModel(Rule):
    """What run.json and the log state is what the model file states: nothing is written twice."""

    section: str
    """Section of the model file whose values are frozen: architecture or training."""
    without: tuple[str, ...] = ()
    """Names of `measure.workload` in this section that are not frozen."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("section", self.section, SECTIONS)

    def names(self, model: Model) -> dict[str, Value]:
        """Return the frozen values by their names in `measure.workload`."""
        return {name: value for name, value in frozen_values(model, self.section).items() if name not in self.without}

    def look(self, subject: Subject) -> list[Evidence]:
        """Look at every value of the section."""
        if subject.model is None:
            return [missing("model", f"one of {', '.join(subject.models)}", "no frozen values to compare with")]
        wanted = self.names(subject.model)
        return [one for name, value in wanted.items() for one in expect(name, subject.stated(name), value)]


@cache
def frozen_values(model: Model, section: str) -> Mapping[str, Value]:
    """Return what a section of the model file says, by the names of `measure.workload`."""
    values = asdict(getattr(model, section))
    record = {"model": {section: values}} if section == "architecture" else {section: values}
    found = {name: setting.value for name, setting in workload_of(record, {}).asked.items()}
    if values.get("recompute") == "none":
        found["recompute_granularity"] = "none"
    return MappingProxyType(found)


@dataclass(frozen=True, kw_only=True)
class ParameterCount(Rule):
    """The number of parameters that the log prints is that of the shape: a small model under a large name is found."""

    tolerance: float
    """Largest relative difference."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share("tolerance", self.tolerance)

    def look(self, subject: Subject) -> list[Evidence]:
        """Compare the count that the log prints with the one by the shape."""
        shape = shaped(_claimed(subject))
        if shape.shape is None:
            return [missing("num_parameters", "the count by the shape", "the shape is not fully known")]
        wanted = shape.shape.parameters
        expected = f"{wanted} by the shape, to {100 * self.tolerance:g} %"
        found = printed_parameters(subject)
        if found is None:
            return [missing("num_parameters", expected)]
        passes = abs(float(found.value) - wanted) <= self.tolerance * wanted
        return [decided("num_parameters", found.value, expected, found.source, passes=passes)]


def _claimed(subject: Subject) -> Workload:
    """Return the shape that the run is said to have: by run.json before the log, by the model file where neither says it."""
    model = frozen_values(subject.model, "architecture") if subject.model else {}
    shape = {name: Setting(value, "model file") for name, value in model.items()}
    one_rank = {"tensor_model_parallel_size": Setting(1, "not known")}  # it only pads the vocabulary
    return Workload(logged={**one_rank, **shape, **subject.workload.logged, **subject.workload.asked})


def printed_parameters(subject: Subject) -> Setting | None:
    """Return the count that the log prints; a bound that was derived from its shape is none."""
    found, width = subject.logged("num_parameters"), subject.logged("hidden_size")
    # `logs.machine` derives a lower bound for a log without a count, and gives it the line of the shape.
    is_derived = found and width and found.source == width.source
    return None if not found or is_derived or isinstance(found.value, str) else found


def same_model(subject: Subject, models: dict[str, Model]) -> Model | None:
    """Return which of `models` a run trained: by its name in run.json, else the first of the shape that is stated."""
    if subject.named is not None:
        return models.get(subject.named)
    stated = [(name, one.value) for name in NAMED_SHAPE for one in subject.stated(name)]
    if not stated:
        return None
    fitting = [m for m in models.values() if all(vars(m.architecture)[name] == value for name, value in stated)]
    return fitting[0] if fitting else None
