"""Which machine a rehearsal is for, where nobody names one: a rehearsal needs neither its Slurm nor its GPUs."""

from dataclasses import replace

from nlp_bench.config import catalog, machine
from nlp_bench.config.request import Request

TAG = "rehearse"
"""The tag of JUBE under which nothing is submitted."""
REFERENCE = "juwels-booster"
"""The file of the machine whose results are published: a laptop rehearses a job of many nodes for it."""


def for_rehearsal(request: Request) -> Request:
    """Return `request` with the machine that it is rehearsed for; the launcher follows from it.

    A named system stays. Otherwise it is the machine that we are on, and the reference machine where we are on none that
    a file describes and the model needs more than one node. Raises UsageError for a Slurm that no file describes.
    """
    if request.system is not None or request.launcher == "local":
        return request
    found = machine.detect_system(machine.cluster())
    nodes = request.nodes or catalog.load_model(request.model or "tiny").defaults.nodes
    return replace(request, system=REFERENCE if found == "local" and nodes > 1 else found)
