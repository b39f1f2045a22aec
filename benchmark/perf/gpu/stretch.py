# ruff: noqa: INP001  # a script, not a package
"""What would make a training step faster on this GPU? Open items on the shapes of one layer, then the trainer's step with each switch by itself.

    python benchmark/perf/gpu/stretch.py --output OUT [--model "GPT 1.3B"] [--budget 540]
    python benchmark/perf/gpu/stretch.py --output OUT --smoke      # the same way on a CPU: proves the way, measures nothing

8-bit products are PyTorch's own scaled ones, one scale per tensor, e4m3 forward and e5m2 for gradients, casts included. The layer is that of
plain_gpt.py in bfloat16. A gain is time without / time with. Each result is written to OUT/stretch.json when it is there; a second call
tries what is missing or failed. Exit code 1 where one failed.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "src")]

import gpu_training  # noqa: E402  # a script finds its neighbours first
import torch  # noqa: E402
from gpu_models import MODELS, SMOKE, Model, fitted  # noqa: E402
from gpu_part import DEVICE, timed  # noqa: E402
from plain_gpt import Block  # noqa: E402

SCHEMA = "nlp-bench/gpu-stretch/1"
Result = dict[str, Any]
SWITCHES: dict[str, tuple[str, dict[str, str]]] = {
    "without compiled rotary positions": ("--no-rope-fusion", {}),
    "without compiled activation": ("--no-bias-gelu-fusion --no-bias-swiglu-fusion", {}),
    "without compiled dropout add": ("--no-bias-dropout-fusion", {}),
    "without the weight gradient in the product": ("--no-gradient-accumulation-fusion", {}),
    "without our loss": ("--no-cross-entropy-loss-fusion", {}),
    "gradients in bfloat16": ("--no-accumulate-allreduce-grads-in-fp32", {}),
    "cuBLASLt for all products": ("", {"TORCH_BLAS_PREFER_CUBLASLT": "1"}),
    "feed-forward blocks recomputed": ("--recompute-granularity selective --recompute-modules mlp", {}),
}
"""Words and variables of one change to the trainer's step."""


class NotHereError(Exception):
    """This machine cannot do it."""


class Stretch:
    """The trials by name, in the order of worth."""

    def __init__(self, options: argparse.Namespace, record: Result) -> None:
        self.options, self.record = options, record
        shapes = SMOKE if options.smoke else MODELS
        whole = next(one for one in shapes if options.model in one.name)
        on_gpu = DEVICE.type == "cuda"
        memory = torch.cuda.get_device_properties(DEVICE).total_memory if on_gpu else None
        self.model: Model = fitted(whole, memory) if memory else whole
        self.session = gpu_training.Session(
            argparse.Namespace(budget=options.budget, smoke=options.smoke, kernels="auto")
        )

    def all(self) -> dict[str, Callable[[], Result]]:
        """Return every trial."""
        found: dict[str, Callable[[], Result]] = {
            "the layer's products": self.products,
            "8-bit products": self.eight_bit,
            "layer in a CUDA graph": self.graphed,
            "layer compiled": lambda: self.compiled(self.layer),
            "norm and residual add compiled": lambda: self.compiled(self.norm),
            "step as it is": lambda: self.step("", {}),
        }
        for name, (words, environment) in SWITCHES.items():
            found[f"step {name}"] = lambda words=words, environment=environment: self.step(words, environment)
        return found

    def matrices(self) -> list[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Return name, input [n, k], weight [m, k] and gradient of the output [n, m] of a layer's four linear layers."""
        m, head = self.model, self.model.width // self.model.heads
        shapes = {
            "qkv": (m.width + 2 * head * m.groups, m.width),
            "projection": (m.width, m.width),
            "up": ((1 + m.llama) * m.inner, m.width),
            "down": (m.width, m.inner),
        }
        tokens = m.micro * m.length
        random = lambda *size: torch.randn(*size, device=DEVICE, dtype=torch.bfloat16)  # noqa: E731  # used here only
        return [(name, random(tokens, k), random(n, k), random(tokens, n)) for name, (n, k) in shapes.items()]

    def products(self) -> Result:
        """Return TFLOP/s of each product of the layer: output, gradient of the input, gradient of the weight."""
        rates: dict[str, list[float]] = {}
        for name, x, w, g in self.matrices():
            work = [lambda x=x, w=w: x @ w.t(), lambda g=g, w=w: g @ w, lambda g=g, x=x: g.t() @ x]
            flops = 2 * x.shape[0] * w.numel()
            rates[name] = [round(flops / usual_s(one) / 1e12, 3) for one in work]
        return {"tflops": rates}

    def eight_bit(self) -> Result:
        """Hold the layer's products with 8-bit inputs against those with 16-bit ones."""
        wide_s = narrow_s = 0.0
        errors: dict[str, list[float]] = {}
        quantised = torch.compile(scaled) if DEVICE.type == "cuda" else scaled
        for name, x, w, g in self.matrices():

            def wide(x: torch.Tensor = x, w: torch.Tensor = w, g: torch.Tensor = g) -> list[torch.Tensor]:
                return [x @ w.t(), g @ w, g.t() @ x]

            def narrow(x: torch.Tensor = x, w: torch.Tensor = w, g: torch.Tensor = g) -> list[torch.Tensor]:
                forward, backward = torch.float8_e4m3fn, torch.float8_e5m2
                (qx, sx), (qw, sw), (qg, sg) = quantised(x, forward), quantised(w, forward), quantised(g, backward)
                return [
                    product(qx, qw.t(), sx, sw),
                    product(qg, qw.t().contiguous().t(), sg, sw),
                    product(qg.t().contiguous(), qx.t().contiguous().t(), sg, sx),
                ]

            try:
                pairs = list(zip(wide(), narrow(), strict=True))
            except (RuntimeError, NotImplementedError) as error:
                raise NotHereError(str(error).splitlines()[0]) from error
            errors[name] = [round(((b - a).float().norm() / a.float().norm()).item(), 4) for a, b in pairs]
            wide_s, narrow_s = wide_s + usual_s(wide), narrow_s + usual_s(narrow)
        return {"gain": wide_s / narrow_s, "relative_errors": errors, "passed": max(map(max, errors.values())) < 0.1}

    def layer(self) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
        """Return one layer and its arguments."""
        m = self.model
        block = Block(m.width, m.heads, m.inner, m.groups, m.llama).to(DEVICE, torch.bfloat16)
        angles = torch.randn(m.length, m.width // m.heads, device=DEVICE)
        return block, (hidden(m), angles.cos(), angles.sin())

    def norm(self) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
        """Return a residual add with the normalisation behind it, and its arguments."""
        return Joined(self.model).to(DEVICE, torch.bfloat16), (hidden(self.model), hidden(self.model))

    def graphed(self) -> Result:
        """Capture the layer's forward and backward pass."""
        if DEVICE.type != "cuda":
            raise NotHereError("a CUDA graph needs a GPU")
        block, arguments = self.layer()
        before_s = usual_s(lambda: passes(block, arguments))
        graph = torch.cuda.make_graphed_callables(block, arguments)
        return {"gain": before_s / usual_s(lambda: passes(graph, arguments))}

    def compiled(self, made: Callable[[], tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]) -> Result:
        """Compile a part of a layer."""
        module, arguments = made()
        before, before_s = passes(module, arguments), usual_s(lambda: passes(module, arguments))
        fast = torch.compile(module, backend="aot_eager" if self.options.smoke else "inductor")
        after = passes(fast, arguments)
        error = ((after - before).float().norm() / before.float().norm()).item()
        return {
            "gain": before_s / usual_s(lambda: passes(fast, arguments)),
            "relative_error": error,
            "passed": error < 0.02,
        }

    def step(self, words: str, environment: dict[str, str]) -> Result:
        """Train with one switch; the gain is against the step as it is."""
        model = self.model
        command = [*gpu_training.command(self.session, "nlp-bench", model), *words.split()]
        ended = self.session.run("nlp-bench", command, **environment)
        if ended is None:
            raise TimeoutError("no time left in the budget")
        seconds, losses, peak = gpu_training.readings("nlp-bench", ended.text)
        window = seconds[gpu_training.WARM_UP :]
        if not window:
            raise RuntimeError(" / ".join(ended.text.strip().splitlines()[-3:])[:600])
        found = {"seconds": statistics.median(window), "losses": [losses[0], losses[-1]], "peak_gib": peak}
        base = self.record["trials"].get("step as it is", {}).get("seconds")
        return found | ({"gain": base / found["seconds"]} if base else {})


class Joined(torch.nn.Module):
    """Residual add and normalisation, which a layer does twice."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.norm = (torch.nn.RMSNorm if model.llama else torch.nn.LayerNorm)(model.width, 1e-5)

    def forward(self, x: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        """Return the normalised sum [b, s, h]; the sum goes on in the residual, so it is written too."""
        total = x + added
        return self.norm(total) + total


def hidden(model: Model) -> torch.Tensor:
    """Return random hidden states [b, s, h] that want a gradient."""
    shape = (model.micro, model.length, model.width)
    return torch.randn(shape, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)


def passes(module: Any, arguments: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Run forward and backward; return the gradient of the first argument."""
    output = module(*arguments)
    wanted = [arguments[0], *(module.parameters() if isinstance(module, torch.nn.Module) else ())]
    return torch.autograd.grad(output, wanted, torch.ones_like(output))[0]


def scaled(values: torch.Tensor, form: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values in an 8-bit format, and the scale that they are to be multiplied by."""
    largest = torch.finfo(form).max
    scale = values.abs().amax().float().clamp(min=1e-12) / largest
    return (values.float() / scale).clamp(-largest, largest).to(form), scale


def product(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    """Return the product of two 8-bit matrices in bfloat16; `a` lies row by row, `b` column by column."""
    return torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16)  # noqa: SLF001  # no public form in torch 2.9 and before


def usual_s(work: Callable[[], Any], repeats: int = 7) -> float:
    """Return the median seconds of some work, warmed up."""
    timed(work)
    return statistics.median(timed(work) for _ in range(repeats))


def line(name: str, found: Result) -> str:
    """Return one result in a line."""
    if "error" in found:
        return f"FAILED    {name}: {found['error']}"
    if "not_here" in found:
        return f"not here  {name}: {found['not_here']}"
    gain = f"{found['gain']:.3f} x  " if "gain" in found else ""
    return (
        f"{gain or 'measured  '}{name}: {json.dumps({k: v for k, v in found.items() if k not in {'gain', 'passed'}})}"
    )


def main() -> int:
    """Try what is missing; print a line per trial."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="OUT", help="folder of stretch.json")
    parser.add_argument("--model", default="GPT 1.3B", help="a word of its name (default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="trials whose name holds one of these")
    parser.add_argument("--budget", type=float, default=540, metavar="SECONDS", help="no trial begins later")
    parser.add_argument("--smoke", action="store_true", help="on a CPU, with tiny shapes")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    path, until = options.output / "stretch.json", time.monotonic() + options.budget
    record: Result = {"schema": SCHEMA, "smoke": options.smoke, **gpu_training.facts(), "trials": {}}
    if path.exists():
        record = json.loads(path.read_text())
    trials = Stretch(options, record).all()
    record["device"] = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "CPU"
    wanted = {n: t for n, t in trials.items() if not options.only or any(w in n for w in options.only)}
    for name, trial in wanted.items():
        if "seconds_taken" in record["trials"].get(name, {}) or time.monotonic() > until:
            continue
        begin = time.monotonic()
        try:
            found = trial()
            found = found if found.get("passed", True) else found | {"error": f"wrong result: {found}"}
        except NotHereError as error:
            found = {"not_here": str(error)}
        except Exception as error:  # noqa: BLE001  # the next trial is worth as much
            found = {"error": f"{type(error).__name__}: {error}"[:600]}
        if options.smoke:
            found.pop("gain", None)  # of tiny shapes
        taken = {} if "error" in found else {"seconds_taken": round(time.monotonic() - begin, 1)}
        record["trials"][name] = found | taken
        path.write_text(json.dumps(record, indent=1))
        print(line(name, found), flush=True)
    missing = [name for name in wanted if name not in record["trials"]]
    failed = [name for name in wanted if "error" in record["trials"].get(name, {})]
    print(f"stretch: {len(wanted)} trials, {len(failed)} failed, {len(missing)} not begun within the budget")
    return int(bool(failed or missing))


if __name__ == "__main__":
    sys.exit(main())
