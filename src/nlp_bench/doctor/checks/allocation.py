"""Inside an allocation: whether it fits the run."""

from nlp_bench.doctor.finding import Finding, failed, ok, skipped
from nlp_bench.doctor.place import Place


def check(place: Place) -> Finding:
    """Compare the allocation's nodes with the run's; `launch` would refuse the difference after the job has waited."""
    if not place.is_inside:
        return skipped("not inside a Slurm allocation")
    told = place.variables.get("SLURM_JOB_NUM_NODES") or place.variables.get("SLURM_NNODES", "")
    job = f"job {place.variables['SLURM_JOB_ID']}: {place.variables.get('SLURM_JOB_NODELIST', '')}"
    if not told.isdecimal() or place.run is None:
        return skipped(f"nothing to compare with: {job}")
    if int(told) != place.run.parallel.nodes:
        return failed(
            f"the allocation has {told} node(s), the run asks for {place.run.parallel.nodes}",
            job,
            remedy=f"salloc --nodes={place.run.parallel.nodes}, or give nlp-bench --nodes {told}",
        )
    return ok(f"{told} node(s), as the run asks for", job)
