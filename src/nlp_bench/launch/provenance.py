"""What a run was made with: the exact command, the versions and the environment, beside its log."""

import contextlib
import json
import os
import platform
import re
import shlex
import socket
from pathlib import Path
from typing import Any

from nlp_bench.files import write_json, write_text
from nlp_bench.machine.node import NCCL_PACKAGES, cpu_model
from nlp_bench.packages import installed_version

PACKAGES = ("torch", "megatron-core", "numpy", "apex", "transformer-engine", "triton", "tokenizers", *NCCL_PACKAGES)
KEPT = re.compile(
    r"(SLURM|SBATCH|NCCL|GLOO|UCX|CUDA|NVIDIA|OMP|MKL|TORCH|NLP_BENCH|JUBE|PYTHON|LD_LIBRARY_PATH|PATH$|HOSTNAME|TZ$|LANG|LC_)"
)
SECRET = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|CREDENTIAL|JWT", re.IGNORECASE)


def write_provenance(run_dir: Path, command: list[str], added: dict[str, str], data_path: str) -> None:
    """Write command.txt (to type again) and environment.json: versions, host, data, variables (secrets are masked)."""
    added = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), **added}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(added.items()))
    write_text(run_dir / "command.txt", exports + shlex.join(command) + "\n")
    everything = {**os.environ, **added}
    write_json(
        run_dir / "environment.json",
        {
            "schema": "nlp-bench/environment/1",
            "host": socket.gethostname(),
            "platform": platform.platform(),
            "cpu": cpu_model(),
            "python": platform.python_version(),
            "data": _data(data_path),
            "packages": {name: installed_version(name) for name in PACKAGES},
            "variables": {
                name: "***" if SECRET.search(name) else value
                for name, value in sorted(everything.items())
                if KEPT.match(name)
            },
        },
    )


def _data(prefix: str) -> Any:
    """Return what `nlp-bench data` recorded of the tokens (parameters, sizes, SHA-256), None for mock or other data."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads((Path(prefix).parent / "data.json").read_text(encoding="utf-8")) if prefix else None
    return None
