"""Whether Slurm answers."""

import re
import shutil

from nlp_bench.doctor.finding import Finding, failed, ok, skipped, warning
from nlp_bench.doctor.place import Place, cluster_name, is_absent

SLOW_S = 2.0
"""Seconds for `scontrol show config`; a healthy controller takes a few hundredths, and every question of a run waits as long."""


def check(place: Place) -> Finding:
    """Tell "not there" from "does not answer": the second must never look like the first."""
    answer = place.slurm
    if is_absent(answer) and not place.is_slurm:
        return skipped("no Slurm here, and the run needs none")
    if not answer.is_good:
        return failed(
            f"Slurm does not answer: {answer.said}",
            f"scontrol show config took {answer.elapsed_s:.1f} s",
            remedy="scontrol ping; if both controllers are down, wait or ask the site; load the site's Slurm module, or set SLURM_CONF",
        )
    missing = [name for name in ("sbatch", "srun", "squeue", "scancel") if shutil.which(name) is None]
    if missing and place.is_slurm:
        return failed(f"{', '.join(missing)} not on PATH", remedy="load the site's Slurm module")
    version = re.search(r"^SLURM_VERSION\s*=\s*(\S+)", answer.out, re.MULTILINE)
    what = f"cluster {cluster_name(answer.out)}, Slurm {version.group(1) if version else '(no version told)'}"
    took = f"scontrol show config took {answer.elapsed_s:.2f} s"
    if answer.elapsed_s > SLOW_S:
        return warning(f"{what}, but slow: {took}", remedy="sdiag; ask less often: nlp-bench watch --every 60")
    return ok(what, took)
