"""In what the best configuration lies outside of the published measurements: there its prediction is an extrapolation."""

from nlp_bench.config import catalog
from nlp_bench.errors import NlpBenchError
from nlp_bench.plan.answer.answer import Answer
from nlp_bench.plan.bid.bid import POINTS, offered
from nlp_bench.plan.bid.extrapolated import extrapolated
from nlp_bench.plan.bid.points import read_points


def beyond(answer: Answer) -> tuple[str, ...]:
    """Return a sentence for each thing.

    None where nothing fits, where the machine itself was measured (`plan calibrate`), or where the checkout has no published points.
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
    try:
        return (*other, *extrapolated(offered(problem, answer.rows[0]), read_points(catalog.root() / POINTS)))
    except NlpBenchError:
        return other
