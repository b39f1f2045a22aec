# ruff: noqa: INP001  # a script, not a package
"""Where the time of a training step goes on one GPU, kernel by kernel, and what each open fusion could save: arithmetic, nothing is measured.

    python benchmark/perf/gpu/roofline.py              # an H100 SXM
    python benchmark/perf/gpu/roofline.py --gpu H200

A kernel takes its FLOPs or its bytes over the share of the data sheet that published trainings reach (benchmark/plan.toml); a matrix product the
root of the sum of both squares. The bytes are those of our own kernels, pass by pass (docs/kernels.md). `gpu_training.py` measures the same models.
"""

import argparse
import math
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "src")]

from gpu_models import MODELS, Model, fitted  # noqa: E402  # a script finds its neighbours first

from nlp_bench.config.accelerators import Accelerator, variants  # noqa: E402
from nlp_bench.plan.constants import Constants, read_constants  # noqa: E402
from nlp_bench.show.table import Column, as_text  # noqa: E402

STATE_BYTES = 40
"""Per parameter and step: Adam on float32 reads four and writes three and a 16-bit copy, the gradient's norm reads and its clearing writes."""
LOGIT_BYTES = 8
"""Per logit: read for the maximum, for the sum, and for the gradient, which is written over it."""


class Step:
    """Seconds of one micro-batch's work by kernel, and what open items would save of them."""

    def __init__(self, model: Model, gpu: Accelerator, constants: Constants) -> None:
        """Count FLOPs and bytes; shares of the data sheet are those of the GPU's generation."""
        self.model, self.constants = model, constants
        share = lambda name: constants[f"{name}_{gpu.generation}"]  # noqa: E731  # used three times, here only
        self.peak = 1e12 * gpu.peak_tflops["bf16"]
        self.products, self.attention_rate = self.peak * share("products"), self.peak * share("attention")
        self.eight_bit = 1e12 * gpu.peak_tflops["fp8"] * share("products_8bit")
        self.memory = 1e9 * gpu.memory[0].gb_per_s * constants["memory_share"]
        self.tokens = model.micro * model.length
        self.heads = model.width // model.heads
        self.keys = self.heads * model.groups
        gates = 1 + model.llama
        self.shapes = (
            *((model.width + 2 * self.keys, model.width), (model.width, model.width)),
            *((gates * model.inner, model.width), (model.width, model.inner)),
        )
        """Outputs and inputs of a layer's products."""

    def product(self, outputs: int, inputs: int, *, element: int = 2, rate: float = 0.0) -> float:
        """Return the seconds of output, input's gradient and weight's gradient, which is added to a float32 sum."""
        arithmetic = 2 * self.tokens * outputs * inputs / (rate or self.products)
        least = element * (self.tokens + outputs) * inputs + 2 * self.tokens * outputs
        moved = [least, least, least + 8 * outputs * inputs]
        return sum(math.hypot(arithmetic, self.constants["operand_traffic"] * one / self.memory) for one in moved)

    def passes(self, width: float) -> float:
        """Return the seconds of reading or writing that many 16-bit numbers per token."""
        return 2 * self.tokens * width * self.constants["stream_fused"] / self.memory

    def kernels(self) -> dict[str, float]:
        """Return seconds by kind of kernel; the update's are spread over the micro-batches of a step."""
        m, n = self.model, self.model.layers
        slower = (1 + self.constants["attention_short"] / m.length) * (
            (1 + self.constants["attention_narrow"] / self.heads) / (1 + self.constants["attention_narrow"] / 128)
        )
        causal = 2 * self.tokens * m.length * m.width
        return {
            "layers' products": n * sum(self.product(*shape) for shape in self.shapes),
            "attention": n * 3.5 * causal * slower / self.attention_rate,
            "norms and residual adds": n * self.passes(24 * m.width),
            "activation": n * self.passes((5 + 3 * m.llama) * m.inner),
            "rotary positions": n * self.passes(4 * (m.width + self.keys)),
            "output layer's product": self.product(m.padded_vocabulary, m.width),
            "loss": self.tokens * m.padded_vocabulary * LOGIT_BYTES / self.memory,
            "optimizer": m.parameters * STATE_BYTES / self.memory * m.micro / m.batch,
        }

    def open_items(self) -> dict[str, float]:
        """Return the seconds that each thing not done could save at most."""
        m, n = self.model, self.model.layers
        casts = 3 * sum(outputs + inputs for outputs, inputs in self.shapes) * self.constants["cast_traffic"]
        eight = n * sum(self.product(*shape, element=1, rate=self.eight_bit) for shape in self.shapes)
        return {
            "norm joined with the residual add": n * self.passes(6 * m.width),
            "GELU in the product's epilogue": 0.0 if m.llama else n * self.passes(3 * m.inner),
            "rotary positions inside attention": n * self.passes(4 * (m.width + self.keys)),
            "loss: maximum and sum in one pass": self.tokens * m.padded_vocabulary * 2 / self.memory,
            "8-bit products, per tensor": self.kernels()["layers' products"] - eight - n * self.passes(casts / 1.2),
        }

    def model_flops(self) -> float:
        """Return the FLOPs of a micro-batch, forward and backward, causal attention counted half."""
        m = self.model
        weights = m.layers * m.parameters_per_layer + m.padded_vocabulary * m.width
        return 3 * self.tokens * (2 * weights + 2 * m.length * m.width * m.layers)


def table(steps: list[Step]) -> list[Column]:
    """Return per cent of the step for each kernel and item, and the MFU, a column for each model."""
    names = [*steps[0].kernels(), *(f"open: {name}" for name in steps[0].open_items()), "MFU, nothing of it done"]
    columns = [Column(heading="per cent of a step", cells=names, is_text=True)]
    for step in steps:
        kernels, model = step.kernels(), step.model
        total = sum(kernels.values())
        cells = [100 * one / total for one in (*kernels.values(), *step.open_items().values())]
        cells.append(100 * step.model_flops() / step.peak / total)
        heading = f"{model.name}\n{model.layers} layers, micro {model.micro}"
        columns.append(Column(heading=heading, cells=cells, form=lambda value: f"{value:.1f}"))
    return columns


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="H100 SXM", help="of benchmark/accelerators.toml (default: %(default)s)")
    found = variants(parser.parse_args().gpu)
    if not found or not found[0].memory or f"products_8bit_{found[0].generation}" not in read_constants().time:
        parser.error(
            "--gpu: give one that benchmark/accelerators.toml has with its memory, and that has 8-bit products"
        )
    gpu, constants = found[0], read_constants()
    steps = [Step(fitted(model, int(gpu.memory[0].gib * 2**30)), gpu, constants) for model in MODELS]
    print(f"{gpu.name}, bf16, predicted from data sheet and benchmark/plan.toml, not measured")
    print("\n".join(as_text(table(steps))))


if __name__ == "__main__":
    main()
