"""In what two configurations differ: the workload, which must be the same, and what may be tuned or is the machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nlp_bench.measure.observation import MACHINE
from nlp_bench.measure.workload import FREE, FROZEN, Setting

MODEL = ("num_layers", "hidden_size", "seq_length")
"""Who shows none of these does not show what was trained."""
_PLACE = ("nodes", "gpus_per_node", "world_size")
NOT_SHOWN = "not shown"

Settings = Mapping[str, Setting]


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One name on which two configurations do not agree."""

    name: str
    """As Megatron-LM names the argument."""
    a: Setting | None
    """What A says, None where it does not."""
    b: Setting | None
    """What B says."""

    def cells(self) -> tuple[str, str, str, str]:
        """Return name, both values and where they stand."""
        sources = [f"{side}: {found.source}" for side, found in (("A", self.a), ("B", self.b)) if found]
        return self.name, _shown(self.a), _shown(self.b), "; ".join(sources)

    def to_json(self) -> dict[str, Any]:
        """Return it as an object."""
        values = {
            side: None if found is None else {"value": found.value, "from": found.source}
            for side, found in (("a", self.a), ("b", self.b))
        }
        return {"name": self.name, **values}


def _shown(setting: Setting | None) -> str:
    return NOT_SHOWN if setting is None else str(setting.value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """All of them, by what they mean."""

    workload: tuple[Difference, ...]
    """Frozen by the rules and not the same: these two did different work."""
    not_shown: tuple[Difference, ...]
    """Frozen by the rules and shown by one of them only, or the model shown by neither."""
    free: tuple[Difference, ...]
    """What a person may tune."""
    machine: tuple[Difference, ...]
    """Where they ran."""

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.workload) + len(self.not_shown) + len(self.free) + len(self.machine)


def differences(a: Settings, b: Settings) -> Differences:
    """Compare what is known of two configurations, name by name."""
    frozen = [found for name in FROZEN if (found := _difference(name, a, b))]
    neither = [] if _both_name_a_model(a, b) else [name for name in MODEL if name not in a and name not in b]
    machine = tuple(dict.fromkeys((*MACHINE, *_PLACE)))
    return Differences(
        workload=tuple(found for found in frozen if found.a and found.b),
        not_shown=(
            *(Difference(name=name, a=None, b=None) for name in neither),
            *(found for found in frozen if not (found.a and found.b)),
        ),
        free=tuple(found for name in FREE if name not in machine and (found := _difference(name, a, b))),
        machine=tuple(found for name in machine if (found := _difference(name, a, b))),
    )


def same_machine(a: Settings, b: Settings) -> bool:
    """Say whether nothing that is known of two configurations tells their machines apart."""
    return not differences(a, b).machine


def _difference(name: str, a: Settings, b: Settings) -> Difference | None:
    one, two = a.get(name), b.get(name)
    if one is None and two is None:
        return None
    return None if one and two and _word(one) == _word(two) else Difference(name=name, a=one, b=two)


def _word(setting: Setting) -> Any:
    return setting.value.casefold() if isinstance(setting.value, str) else setting.value


def _both_name_a_model(a: Settings, b: Settings) -> bool:
    return "model" in a and "model" in b and _word(a["model"]) == _word(b["model"])
