"""The build of the kernels."""

from dataclasses import asdict

from nlp_bench.build.environment import MANIFEST, SCHEMA, build_folder
from nlp_bench.build.key import this_machine
from nlp_bench.doctor.finding import Finding, ok, skipped, warning
from nlp_bench.doctor.place import Place
from nlp_bench.files import read_object


def check(place: Place) -> Finding:
    """Look for a finished build that fits, and for kernels that failed in it; torch's own kernels need none."""
    parent = build_folder(place.root)
    remedy = place.bash("src/compile_build.sh", "nlp-bench build")
    folders = sorted(parent.glob("kernels-*"))
    records = {folder: read_object(folder / MANIFEST) for folder in folders}
    half = [folder.name for folder, record in records.items() if record.get("schema") != SCHEMA]
    finished = [(folder, record) for folder, record in records.items() if record.get("schema") == SCHEMA]
    if place.is_login_node and place.accelerator == "cuda":
        return skipped(f"{len(finished)} finished build(s) in {parent}; which one fits, the compute nodes know")
    here = asdict(this_machine(None if place.accelerator == "cuda" else "cpu"))
    fitting = [(folder, record) for folder, record in finished if record.get("machine") == here]
    facts = [f"never finished: {', '.join(half)}"] if half else []
    if not fitting:
        other = (
            f"{len(finished)} build(s) are for other versions or GPUs" if finished else f"no finished build in {parent}"
        )
        return warning(f"{other}: the ranks compile or do without", *facts, remedy=remedy)
    folder, record = fitting[-1]
    trials = record.get("verified", [])
    bad = (
        [str(t.get("name", "?")) for t in trials if isinstance(t, dict) and not t.get("passed")]
        if isinstance(trials, list)
        else []
    )
    if bad:
        return warning(
            f"{folder.name}: {', '.join(bad)} failed when compared with torch, and are switched off",
            *facts,
            remedy=remedy,
        )
    return ok(f"{folder.name} fits", *facts)
