"""What others have measured in the configuration that a model file proposes: it stands beside the prediction of it."""

import math
from collections.abc import Sequence

from nlp_bench.plan.answer.answer import Answer
from nlp_bench.plan.bid.bid import offered
from nlp_bench.plan.bid.points import LABELS, Offered, is_kin, number, same_gpu


def beside(answer: Answer, rows: Sequence[dict[str, str]] | None) -> tuple[str, ...]:
    """Return a sentence for each of the published `rows` that has the model file's own configuration on these GPUs and this fabric.

    None where there is none, where that configuration is not legal here, or where there are no published points.
    """
    row = answer.published
    if row is None or rows is None:
        return ()
    per_report = answer.problem.tokens / answer.problem.tokens_per_iteration
    found = [point for point in rows if is_kin(point) and _same(point, offered(answer.problem, row))]
    return tuple(_sentence(point, row.report_s, per_report) for point in found)


def _same(point: dict[str, str], wanted: Offered) -> bool:
    """Whether a point has every size of `wanted`; the number format may be another of 16 bit."""
    values = [(number(point, column), wanted.numbers[column]) for column in LABELS]
    sizes = all(value is not None and math.isclose(value, own, rel_tol=0.02) for value, own in values)
    return sizes and same_gpu(point.get("gpu") or "", wanted.gpu) and point.get("recompute") == wanted.recompute


def _sentence(point: dict[str, str], predicted_s: float, per_report: float) -> str:
    measured_s = (number(point, "iter_time_s") or math.nan) * per_report
    share = 100 * (predicted_s / measured_s - 1)
    side = "above" if share >= 0 else "below"
    return (
        f"{measured_s:.4g} s ({point['id']}: {point['model']}, {point['framework']}, {point['precision']}); the prediction for this "
        f"package's trainer is {abs(share):.0f} % {side} it"
    )
