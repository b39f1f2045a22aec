"""What a run was made with: the exact command, the versions and the environment, beside its log."""

import os
import platform
import re
import shlex
import socket
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nlp_bench.config.origin import origin
from nlp_bench.files import read_object, write_json, write_text
from nlp_bench.machine.node import NCCL_PACKAGES, cpu_model
from nlp_bench.packages import installed_version
from nlp_bench.redact import is_secret, without_secrets

PACKAGES = ("torch", "megatron-core", "numpy", "apex", "transformer-engine", "triton", "tokenizers", *NCCL_PACKAGES)
KEPT = re.compile(
    r"(SLURM|SBATCH|NCCL|GLOO|UCX|FI_|CUDA|CUBLAS|CUDNN|NVIDIA|NVTE|OMP|GOMP|KMP|MKL|OPENBLAS|TORCH|PYTORCH|TRITON|MALLOC_"
    r"|NLP_BENCH|JUBE|PYTHON|LD_|PATH$|HOSTNAME|TZ$|LANG|LC_)"
)
FROM_ENVIRONMENT = 'export {name}="${{{name}:?is a secret and is not kept here; export it first}}"\n'
"""How command.txt names a secret: it is taken from the environment of whoever types the command again."""


def write_provenance(
    run_dir: Path,
    command: list[str],
    added: dict[str, str],
    data_path: str,
    *,
    taken_out: Mapping[str, str] | None = None,
) -> None:
    """Write command.txt (to type again) and environment.json: versions, host, data, variables; secrets stay out of both.

    `taken_out` are variables of the caller that the ranks do not get.
    """
    added = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), **added}
    exports = "".join(_export(name, value) for name, value in sorted(added.items()))
    words = without_secrets(shlex.join(command))
    write_text(run_dir / "command.txt", f"{exports}{words}\n", errors="surrogateescape")
    everything = {**os.environ, **added}
    write_json(
        run_dir / "environment.json",
        {
            "schema": "nlp-bench/environment/1",
            "host": socket.gethostname(),
            "platform": platform.platform(),
            "cpu": cpu_model(),
            "python": platform.python_version(),
            "nlp_bench": asdict(origin()),
            "data": _data(data_path),
            "packages": {name: installed_version(name) for name in PACKAGES},
            "variables": {
                name: "***" if is_secret(name, value) else value
                for name, value in sorted(everything.items())
                if KEPT.match(name)
            },
            "taken_out": dict(taken_out or {}),
        },
    )


def _export(name: str, value: str) -> str:
    if is_secret(name, value):
        return FROM_ENVIRONMENT.format(name=name)
    return f"export {name}={shlex.quote(value)}\n"


def _data(prefix: str) -> Any:
    """Return what `nlp-bench data` recorded of the tokens (parameters, sizes, SHA-256), None for mock or other data."""
    return (read_object(Path(prefix).parent / "data.json") or None) if prefix else None
