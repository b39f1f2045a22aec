"""The commands that run a planned configuration as it was planned."""

import shlex

from nlp_bench.plan.search.problem import Problem
from nlp_bench.plan.search.sizes import Sizes


def run_words(problem: Problem, sizes: Sizes, *, model: str, system: str) -> list[str]:
    """Return the options of one run that `nlp-bench submit`, `rehearse` and `check` take, every switch named.

    `model` and `system` are names of data files, or paths.
    """
    words: dict[str, object] = {
        "model": model,
        "system": system,
        "nodes": sizes.num_gpus // problem.gpus_per_node,
        "gpus-per-node": problem.gpus_per_node,
        "tp": sizes.tp,
        "pp": sizes.pp,
        "num-virtual-stages-per-pipeline-rank": sizes.vpp if sizes.vpp > 1 else None,
        "context-parallel-size": sizes.cp if sizes.cp > 1 else None,
        "decoder-first-pipeline-num-layers": sizes.first_layers or None,
        "decoder-last-pipeline-num-layers": sizes.last_layers or None,
        "micro-batch-size": sizes.micro_batch_size,
        "global-batch-size": sizes.global_batch_size,
        "sequence-length": sizes.sequence_length,
        "recompute-granularity": sizes.recompute,
        "sequence-parallel": sizes.sequence_parallel,
        "use-distributed-optimizer": sizes.distributed_optimizer,
        "overlap-grad-reduce": sizes.overlap_grad_reduce,
        "overlap-param-gather": sizes.overlap_param_gather,
    }
    found: list[str] = []
    for name, value in words.items():
        if value is not None:
            found += [f"--{name}", str(value).lower() if isinstance(value, bool) else str(value)]
    return found


def command(verb: str, words: list[str]) -> str:
    """Return one line for a shell: `nlp-bench VERB` with the options of the run."""
    return shlex.join(["nlp-bench", verb, *words])
