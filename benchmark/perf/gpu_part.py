# ruff: noqa: INP001  # scripts, not a package
"""One measurement of gpu_training.py in a process of its own; the last line of stdout is its JSON.

python benchmark/perf/gpu_part.py matmul 8192
python benchmark/perf/gpu_part.py plain '{"name": "GPT 1.3B", "layers": 24, ...}' STEPS
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_models import Model
from plain_gpt import PlainGPT, PlainTrainer

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def wait() -> None:
    """Wait until the device has done everything."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds that `work` takes on the device."""
    wait()
    start = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - start


def matmul(size: int) -> dict[str, Any]:
    """Return the rate of a square bfloat16 product of random numbers: the median of five times ten products."""
    if DEVICE.type == "cpu" and size > 1024:
        sys.exit("torch sees no GPU; give --smoke to run the same way through on the CPU")
    a, b = (torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16) for _ in "ab")
    product = torch.empty_like(a)

    def ten() -> None:
        for _ in range(10):
            torch.mm(a, b, out=product)

    timed(ten)
    seconds = statistics.median(timed(ten) for _ in range(5)) / 10
    on_gpu = DEVICE.type == "cuda"
    return {
        "tflops": 2 * size**3 / seconds / 1e12,
        "size": size,
        "device": torch.cuda.get_device_name() if on_gpu else "CPU",
        "memory_bytes": torch.cuda.get_device_properties(DEVICE).total_memory if on_gpu else None,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


def plain(model: Model, steps: int) -> dict[str, Any]:
    """Return the seconds of each step of the plain loop: torch.compile, autocast to bfloat16, fused AdamW."""
    torch.manual_seed(1)
    with DEVICE:
        network = PlainGPT(
            layers=model.layers, width=model.width, heads=model.heads, inner=model.inner, groups=model.groups,
            vocabulary=model.padded_vocabulary, length=model.length, llama=model.llama,
        )  # fmt: skip
    for parameter in network.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.02)
    on_gpu = DEVICE.type == "cuda"
    trainer = PlainTrainer(
        torch.compile(network) if on_gpu else network, batches(model), model.batch // model.micro, 1e-4, bf16=on_gpu
    )
    losses: list[float] = []
    seconds = [timed(lambda: losses.append(trainer.step())) for _ in range(steps)]
    peak = torch.cuda.max_memory_allocated() if on_gpu else None
    return {"seconds": seconds, "losses": losses, "peak_bytes": peak}


def batches(model: Model) -> Iterator[dict[str, torch.Tensor]]:
    """Yield random tokens for ever, made on the device."""
    while True:
        yield {"tokens": torch.randint(model.vocabulary, (model.micro, model.length + 1), device=DEVICE)}


def main(words: list[str]) -> None:
    """Measure and print."""
    result = matmul(int(words[1])) if words[0] == "matmul" else plain(Model(**json.loads(words[1])), int(words[2]))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
