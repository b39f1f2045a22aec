"""The build of the kernels."""

from dataclasses import asdict

from nlp_bench.build.environment import build_folder, failed_trials, finished_builds, this_machine
from nlp_bench.doctor.finding import Finding, ok, skipped, warning
from nlp_bench.doctor.place import Place


def check(place: Place) -> Finding:
    """Look for a finished build that fits, and for kernels that failed in it; torch's own kernels need none."""
    parent = build_folder(place.root)
    remedy = place.bash("src/compile_build.sh", "nlp-bench build")
    finished = finished_builds(parent)
    half = sorted(path.name for path in parent.glob("kernels-*") if path not in finished)
    if place.is_login_node and place.accelerator == "cuda":
        return skipped(f"{len(finished)} finished build(s) in {parent}; which one fits, the compute nodes know")
    here = asdict(this_machine(None if place.accelerator == "cuda" else "cpu"))
    fitting = [(folder, record) for folder, record in finished.items() if record.get("machine") == here]
    facts = [f"never finished: {', '.join(half)}"] if half else []
    if not fitting:
        other = (
            f"{len(finished)} build(s) are for other versions or GPUs" if finished else f"no finished build in {parent}"
        )
        return warning(f"{other}: the ranks compile or do without", *facts, remedy=remedy)
    folder, record = fitting[-1]
    bad = [str(trial.get("kernel", "?")) for trial in failed_trials(record)]
    if bad:
        return warning(
            f"{folder.name}: {', '.join(bad)} failed when compared with torch, and are switched off",
            *facts,
            remedy=remedy,
        )
    return ok(f"{folder.name} fits", *facts)
