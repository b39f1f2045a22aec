"""A publication held against itself: speed-ups, perfect linear rates and days of training are recomputed from its own rates."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nlp_bench.scaling.curve import Place

SECONDS_PER_DAY = 86400


def train_days(tokens: int, tokens_per_second: float) -> float:
    """Return days for a training on `tokens`."""
    return tokens / tokens_per_second / SECONDS_PER_DAY


def agrees(computed: float, printed: str, slack: float = 0.0) -> bool:
    """Say whether `computed` is `printed` within half a unit of the last printed digit, and `slack` more."""
    return abs(computed - float(printed)) <= half_unit(printed) + slack + 1e-9 * abs(computed)


def half_unit(printed: str) -> float:
    """Return half a unit of the last printed digit: "1.84" gives 0.005, "16" gives 0.5."""
    exponent = Decimal(printed).as_tuple().exponent
    return float(Decimal((0, (5,), int(exponent) - 1)))


def published_notes(places: Sequence["Place"]) -> Iterable[str]:
    """Return where a published table contradicts its own rates, one sentence each."""
    base = next((place for place in places if place.is_baseline), None)
    # Published speed-ups are over the publication's baseline: over another one ours must differ.
    found = base.point.entries[0].published if base else None
    is_theirs = base is not None and found is not None and found.speed_up is not None and float(found.speed_up) == 1
    for place in places:
        if place.point.entries[0].published and place.point.tokens_per_second:
            if base and is_theirs:
                yield from _speed_ups(place)
                yield from _linear(place, base)
            yield from _days(place)


def _speed_ups(place: "Place") -> Iterable[str]:
    found = place.point.entries[0].published
    if not found or place.speed_up is None:
        return
    for printed, who in ((found.speed_up, "table"), (found.stated_speed_up, "text")):
        if printed and not agrees(place.speed_up, printed):
            said = f"the {who} of the publication says {printed}x, its rates give {place.speed_up:.2f}x"
            yield f"{_name(place)}: {said} ({found.source})"


def _linear(place: "Place", base: "Place") -> Iterable[str]:
    found = place.point.entries[0].published
    if not found or not found.perfect_linear or not place.perfect_linear or not place.point.num_gpus:
        return
    # The printed rate of the baseline is rounded, and the factor makes its rounding larger.
    slack = half_unit("1") * place.point.num_gpus / (base.point.num_gpus or 1)
    if not agrees(place.perfect_linear, found.perfect_linear, slack):
        yield f"{_name(place)}: published perfect linear rate {found.perfect_linear}, recomputed {place.perfect_linear:.0f}"


def _days(place: "Place") -> Iterable[str]:
    found, rate = place.point.entries[0].published, place.point.tokens_per_second
    if not found or not found.train_tokens or not rate:
        return
    days = train_days(found.train_tokens, rate)
    same = found.train_days == found.stated_train_days
    said = [(found.train_days, "table and text say" if same else "the table says")]
    said += [] if same else [(found.stated_train_days, "the text says")]
    for printed, who in said:
        if printed and not agrees(days, printed):
            implied = found.train_tokens / (float(printed) * SECONDS_PER_DAY)
            yield (
                f"{_name(place)}: {who} {printed} days, {found.train_tokens:,} tokens at the published rate take {days:.2f}; "
                f"{printed} days would be {implied:,.0f} tokens/s, {100 * implied / rate:.0f} % of that rate ({found.source})"
            )


def _name(place: "Place") -> str:
    return f"{place.point.num_gpus} GPUs"
