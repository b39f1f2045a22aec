"""Would sbatch take the job? It is asked with its own --test-only, which submits nothing."""

import re

from nlp_bench.doctor.finding import Finding, failed, ok, skipped
from nlp_bench.doctor.place import Place
from nlp_bench.launch.folder import script_text
from nlp_bench.launch.scheduler.sbatch import without_overrides
from nlp_bench.programs import ask


def check(place: Place) -> Finding:
    """Hand the run's own job script to `sbatch --test-only` and quote what it says."""
    if not place.is_slurm:
        return skipped("the run does not go through Slurm")
    if not place.slurm.is_good:
        return skipped("Slurm does not answer (see slurm)")
    if place.run is None:
        return skipped("no run to submit (see system)")
    script = script_text(place.run, root=place.root, run_dir=place.runs)
    variables = without_overrides(place.run.launch.account, place.variables)
    answer = ask("sbatch", "--test-only", stdin=script, variables=variables)
    said = re.sub(r"(^|\s)sbatch: ", r"\1", answer.said)
    lines = [line for line in script.splitlines() if line.startswith("#SBATCH ")]
    if not answer.is_good:
        return failed(
            f"sbatch refuses the job: {said}",
            *lines,
            remedy="change what it names (--queue, --account, --timelimit, --gres, --nodes), then ask again: "
            "nlp-bench doctor --checks job",
        )
    return ok("sbatch would take the job", said)
