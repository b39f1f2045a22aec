"""Run each kernel once against the plain torch formula: `python -m nlp_bench.train.kernels.trial PROVIDER KERNEL...`.

One JSON line per kernel goes to stdout: {"kernel", "difference", "passed", "error"}. The line {"kernel", "starts": true} goes
before each, so that the caller knows which kernel took the process along. The difference is |got - expected| / |expected|
(2-norms) over the result and, where there is one, the gradient; the formula is computed in float64. 16-bit results
pass below 2e-2, float32 ones below 1e-4.
"""

import json
import sys
import warnings
from collections.abc import Callable

import torch

Pair = tuple[torch.Tensor, torch.Tensor]
"""What the kernel gave and what the formula gives."""
LIMITS = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


def run(provider: str, names: list[str]) -> int:
    """Try the kernels `names`; return 0 whatever they give."""
    device = _prepare()
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    from nlp_bench.train.kernels.trials import TRIALS  # noqa: PLC0415  # imports megatron-core, which _prepare prepares for

    for name in names:
        print(json.dumps({"kernel": name, "starts": True}), flush=True)
        torch.manual_seed(7)
        print(json.dumps({"kernel": name, **_outcome(TRIALS[name], provider, device, dtype)}), flush=True)
    return 0


def _prepare() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    from nlp_bench.train import cpu  # noqa: PLC0415  # only where there is no GPU

    cpu.install()
    torch.compiler.set_stance("force_eager")  # a CPU compiles nothing in a training either
    return cpu.CPU


def _outcome(
    trial: Callable[[str, torch.device, torch.dtype], list[Pair]],
    provider: str,
    device: torch.device,
    dtype: torch.dtype,
) -> dict[str, object]:
    try:
        difference = max(_difference(*pair) for pair in trial(provider, device, dtype))
    except Exception as error:  # noqa: BLE001  # a kernel that fails in any way is a kernel that is not used
        return {"difference": None, "passed": False, "error": f"{type(error).__name__}: {str(error)[:200]}"}
    return {"difference": difference, "passed": difference < LIMITS[dtype], "error": None}


def _difference(got: torch.Tensor, expected: torch.Tensor) -> float:
    expected = expected.double()
    distance = (got.double() - expected).norm() / expected.norm()
    return float(distance) if bool(distance.isfinite()) else float("inf")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(run(sys.argv[1], sys.argv[2:]))
