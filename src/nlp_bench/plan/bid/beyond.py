"""In what the best configuration lies outside of the published measurements: there its prediction is an extrapolation."""

from collections.abc import Sequence

from nlp_bench.plan.answer.answer import Answer
from nlp_bench.plan.bid.bid import offered
from nlp_bench.plan.bid.extrapolated import extrapolated


def beyond(answer: Answer, rows: Sequence[dict[str, str]] | None) -> tuple[str, ...]:
    """Return a sentence for each thing in which the best one lies outside of the published `rows`.

    None where nothing fits, where the machine itself was measured (`plan calibrate`), or where there are no published points.
    """
    problem = answer.problem
    if (
        not answer.rows or problem.constants.machine is not None
    ):  # measured: nothing rests on published runs of other GPUs
        return ()
    own = problem.model.training.precision
    other = (
        (f"number format: planned in {problem.precision}, but a run trains in the model file's ({own})",)
        if problem.precision != own
        else ()
    )
    return other if rows is None else (*other, *extrapolated(offered(problem, answer.rows[0]), rows))
