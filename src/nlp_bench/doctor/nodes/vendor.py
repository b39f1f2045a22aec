"""The makers' own tests, where a node has them: DCGM's diagnostics and NCCL's tests. They are run, never required.

`dcgmi diag -r LEVEL` (NVIDIA DCGM user guide, "DCGM Diagnostics"): exit status 0 where every test passed. `all_reduce_perf` of
github.com/NVIDIA/nccl-tests: "# Avg bus bandwidth    : X" in GB/s; one process drives all GPUs of the node.
"""

import re
import shutil
from typing import Any

from nlp_bench.programs import ask

LIMIT_S = 240.0
LEVEL = "1"
"""DCGM's level 1 takes seconds: deployment, permissions, retired pages, NVLink."""


def vendor_tests(num_gpus: int) -> list[dict[str, Any]]:
    """Return what the installed tests said: name, whether it passed, a value where there is one, the end of the output."""
    if num_gpus == 0:
        return []
    found = []
    if shutil.which("dcgmi"):
        answer = ask("dcgmi", "diag", "-r", LEVEL, timeout_s=LIMIT_S)
        failures = [line.strip() for line in answer.out.splitlines() if re.search(r"\bFail", line)]
        said = "; ".join(failures)[:500] or (answer.said if not answer.is_good else "")
        found.append({"name": "dcgmi diag", "is_passed": answer.is_good and not failures, "said": said})
    if shutil.which("all_reduce_perf") and num_gpus > 1:
        words = ("all_reduce_perf", "-b", "8M", "-e", "256M", "-f", "2", "-g", str(num_gpus))
        answer = ask(*words, timeout_s=LIMIT_S)
        value = re.search(r"Avg bus bandwidth\s*:\s*([\d.]+)", answer.out)
        found.append(
            {
                "name": "all_reduce_perf",
                "is_passed": answer.is_good and "FAILED" not in answer.out,
                "said": "" if answer.is_good else answer.said,
                "bus_gb_per_s": float(value.group(1)) if value else None,
            }
        )
    return found
