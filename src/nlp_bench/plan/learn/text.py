"""What was learned, for people: measured beside predicted before and after, the factors, what did not count."""

import math
from typing import TYPE_CHECKING

from nlp_bench.plan.learn.learned import KINDS, NORMAL_90

if TYPE_CHECKING:
    from nlp_bench.plan.learn.learn import Lesson

WHAT = {"compute": "what the GPU computes", "network": "what it sends and receives", "overhead": "launches, iteration"}
FAR = 2.5
"""Standard deviations of a prediction before."""
WIDEST = 72
"""Letters of a layout."""


def report(lesson: "Lesson") -> str:
    """Return the report as lines."""
    known, factors = lesson.known, lesson.learned
    width = min(max(len(one.row.layout) for one in known), WIDEST)
    lines = [
        factors.source,
        "",
        f"{'run':<{width}} {'measured s':>11} {'+-':>6} {'before s':>9} {'error':>7} {'after s':>9} {'error':>7}",
    ]
    for one, after in zip(known, lesson.after, strict=True):
        measured = one.row.seconds
        lines.append(
            f"{one.row.layout[:width]:<{width}} {measured:>11.4g} {one.row.noise:>6.1%} {one.before:>9.4g} "
            f"{one.before / measured - 1:>+7.1%} {after:>9.4g} {after / measured - 1:>+7.1%}"
        )
    lines += ["", "measured / predicted (with standard error):"]
    if lesson.together:
        lines.append(
            f"  everything {factors.factors['compute']:.3f} +- {lesson.errors['compute']:.1%}  (one factor: {_why_one(lesson)})"
        )
    else:
        lines += [
            f"  {kind:<9} {factors.factors[kind]:.3f} +- {lesson.errors[kind]:.1%}  ({WHAT[kind]})" for kind in KINDS
        ]
    half = max(1 - factors.low, factors.high - 1)
    before = max(one.width for one in known) * NORMAL_90
    lines.append(f"90 % interval of a prediction: about +-{half:.0%}, before +-{before:.0%}")
    lines += _doubt(lesson)
    lines += [f"did not count: {line}" for line in lesson.refused]
    return "\n".join(lines) + "\n"


def _doubt(lesson: "Lesson") -> list[str]:
    """Return a warning where the runs are farther from the prediction before than its interval allows."""
    width = max(one.width for one in lesson.known)
    far = [kind for kind, factor in lesson.learned.factors.items() if abs(math.log(factor)) > FAR * width]
    if not far:
        return []
    question = (
        "were these runs made on what the constants describe (GPU, threads of a CPU rank, number format, software)?"
    )
    return [f"WARNING: {', '.join(far)}: farther from 1 than the interval before allows; {question}"]


def _why_one(lesson: "Lesson") -> str:
    number = len({one.row.layout for one in lesson.known})
    if number < 3:
        return (
            f"{number} layout{'s' if number > 1 else ''}; from three on compute, network and overhead may be told apart"
        )
    return "the shares of network and overhead hardly differ between these runs"
