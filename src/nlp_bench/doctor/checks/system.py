"""Which machine this is, and whether the run fits its description."""

from nlp_bench.doctor.finding import Finding, failed, ok
from nlp_bench.doctor.place import Place


def check(place: Place) -> Finding:
    """Say which system file is used; a run that cannot be resolved would be refused by `nlp-bench check` as well."""
    if place.system is None:
        return failed(place.no_system, remedy="nlp-bench doctor --system NAME (the files of benchmark/systems)")
    if place.run is None:
        return failed(
            f"model {place.model} cannot run on {place.system.name}: {place.no_run}",
            remedy=f"nlp-bench check --model {place.model} --system {place.system.name} --offline",
        )
    run = place.run
    facts = f"{run.parallel.nodes} node(s) x {run.parallel.gpus_per_node} {run.system.accelerator} rank(s), launcher {run.launch.launcher}"
    return ok(f"{place.system.name}, model {run.model.name}", facts)
