# ruff: noqa: INP001  # scripts, not a package
"""Is what one GPU computes right? Trainings of tiny models on it against the same on the CPU, and every kernel against torch's plain one.

    python benchmark/perf/gpu/correct.py --output OUT [--only attention ...] [--budget 540]
    python benchmark/perf/gpu/correct.py --output OUT --smoke       # the same way on a CPU: proves the way, not the GPU
    python benchmark/perf/gpu/correct.py --output OUT --prepare     # the CPU's trainings alone, where there is time for them

Weights are drawn on the CPU on both sides. The CPU's trainings are kept in OUT/references.json, which may be brought along. Each check is
written to OUT/correct.json when it ends; a second call tries those that are missing or failed. What a machine lacks (Apex, Transformer
Engine) is "not here", never passed. Exit code 1 where a check failed or did not run.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "src"))

SCHEMA = "nlp-bench/gpu-correct/1"
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
"""Of what is started: this checkout comes first."""
LOSS = re.compile(r"iteration +(\d+)/.*?lm loss: ([\d.E+-]+).*?grad norm: ([\d.]+)")
LIMIT_S, CPU_LIMIT_S = 150, 400
MODEL = (
    "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 --micro-batch-size 2 "
    "--global-batch-size 8 --log-interval 1 --lr 1e-3 --vocab-size 1000 --mock-data --lr-decay-iters 20 --use-cpu-initialization"
)
PLAIN = "--attention-dropout 0 --hidden-dropout 0"
FAMILIES = {
    "gpt": "",
    "llama": "--swiglu --disable-bias-linear --normalization RMSNorm --group-query-attention --num-query-groups 2 "
    "--untie-embeddings-and-output-weights --position-embedding-type rope",
    "t5": "--model-family t5 --num-layers 2 --decoder-seq-length 64 --vocab-extra-ids 20 --geglu",
    "bert": "--model-family bert",
}
RECOMPUTE = {
    "selective": "--recompute-granularity selective",
    "mlp": "--recompute-granularity selective --recompute-modules mlp",
    "full": "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
}
HEADS = {"GPT 1.3B": (16, 128), "13B": (32, 160), "175B": (12, 128), "wide": (8, 256)}
"""Heads of one rank and head width of the benchmark's models."""
FORMS = {"bf16": "--bf16", "fp16": "--fp16 --initial-loss-scale 4096"}
NEAR = {"fp32": 1e-4, "fp16": 5e-3, "bf16": 2e-2}
"""Largest relative difference of any loss from the CPU's in float32; float16 and bfloat16 have 11 and 8 bits."""


@dataclass(frozen=True)
class Trained:
    """What a training printed."""

    losses: list[float]
    norms: list[float]
    text: str
    code: int | None


def train(words: str, *, on_cpu: bool, steps: int) -> Trained:
    """Train in a process of its own, on one rank."""
    command = [sys.executable, "-m", "nlp_bench.train", *f"{MODEL} {words} --train-iters {steps}".split()]
    limit_s = CPU_LIMIT_S if on_cpu else LIMIT_S
    on_gpu = {"NVIDIA_TF32_OVERRIDE": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # several at a time share the cores
    environment = ENVIRONMENT | ({"CUDA_VISIBLE_DEVICES": ""} if on_cpu else on_gpu)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit_s, check=False, stdin=subprocess.DEVNULL
        )  # fmt: skip
        text, code = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        text, code = f"not done within {limit_s} s", None
    found = LOSS.findall(text)
    return Trained([float(one[1]) for one in found], [float(one[2]) for one in found], text, code)


def distance(ours: Trained, reference: Trained) -> dict[str, Any]:
    """Return the largest relative difference of losses and of gradient norms, or why there is none."""
    for name, one in (("this", ours), ("the reference", reference)):
        if one.code != 0 or not one.losses:
            return {"error": f"{name} ended with {one.code}: {' / '.join(one.text.strip().splitlines()[-4:])[-600:]}"}
    if len(ours.losses) != len(reference.losses):
        return {"error": f"{len(ours.losses)} losses, the reference has {len(reference.losses)}"}
    pairs = list(zip(ours.losses, reference.losses, strict=True))
    norms = list(zip(ours.norms, reference.norms, strict=True))
    return {
        "loss": max(abs(a - b) / abs(b) for a, b in pairs),
        "grad_norm": max(abs(a - b) / max(abs(b), 1e-12) for a, b in norms),
        "losses": [ours.losses[0], ours.losses[-1]],
    }


class Checks:
    """The checks by name; references are trained once."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.steps = options, 3 if options.smoke else 20
        self.path = options.output / "references.json"
        kept = json.loads(self.path.read_text()) if self.path.is_file() else {}
        self.references = {words: Trained(**one) for words, one in kept.items() if len(one["losses"]) == self.steps}
        self.lock, self.profiler = threading.Lock(), threading.Lock()

    def all(self) -> dict[str, Callable[[], dict[str, Any]]]:
        """Every check, in the order of worth."""
        found: dict[str, Callable[[], dict[str, Any]]] = {}
        for name, words in FAMILIES.items():
            found[f"{name} float32 equals the CPU"] = lambda words=words: self.against_cpu(words, "", "fp32")
        for name, (heads, width) in HEADS.items():
            for dropout in (0.0, 0.1):
                found[f"attention {name}, dropout {dropout}"] = lambda h=heads, w=width, d=dropout: self.attention(
                    h, w, d
                )
        for form, words in FORMS.items():
            slow = self.options.smoke and form == "fp16"  # 20 s an iteration on a CPU
            for name in ["gpt"] if slow else FAMILIES:
                found[f"{name} {form} near the CPU"] = lambda name=name, words=words, form=form: self.against_cpu(
                    FAMILIES[name], words, form
                )
        for name, words in RECOMPUTE.items():
            for family in ("gpt", "llama"):
                found[f"{family} recompute {name}"] = lambda words=words, family=family: self.against_cpu(
                    FAMILIES[family], words, "fp32"
                )
        for kernels, package in (("torch", "torch"), ("apex", "apex"), ("te", "transformer_engine")):
            found[f"kernels {kernels}"] = lambda kernels=kernels, package=package: self.kernels(kernels, package)
        found["checkpoint and resume"] = self.resumed
        found["kernels' own trials (nlp-bench build)"] = self.build
        return found

    def reference(self, words: str) -> Trained:
        """Return the training on the CPU in float32."""
        with self.lock:
            if words not in self.references:
                self.references[words] = train(f"{PLAIN} {words}", on_cpu=True, steps=self.steps)
                ended = {key: one for key, one in self.references.items() if one.code == 0}
                kept = {key: asdict(one) | {"text": one.text[-600:]} for key, one in ended.items()}
                self.path.write_text(json.dumps(kept, indent=1))
            return self.references[words]

    def against_cpu(self, words: str, more: str, form: str) -> dict[str, Any]:
        """Train with `more`; losses as near to the CPU's as the number format lets them be."""
        found = distance(
            train(f"{PLAIN} {words} {more}", on_cpu=self.options.smoke, steps=self.steps), self.reference(words)
        )
        return found | {"limit": NEAR[form], "passed": found.get("loss", 1.0) <= NEAR[form]}

    def attention(self, heads: int, width: int, dropout: float) -> dict[str, Any]:
        """Try one attention at a time: the profiler sees the whole process."""
        with self.profiler:
            return attention(heads, width, dropout, self.options.smoke)

    def kernels(self, kernels: str, package: str) -> dict[str, Any]:
        """Train with one choice of kernels, where its package is."""
        if find_spec(package) is None:
            return {"not_here": package, "passed": None}
        return self.against_cpu("", f"--bf16 --kernels {kernels}", "bf16")

    def resumed(self) -> dict[str, Any]:
        """Train to the half with a checkpoint, go on from it: the second half is that of one training."""
        words = f"{PLAIN} --bf16 --save {self.options.output / 'checkpoint'}"
        half = max(self.steps // 2, 1)
        first = train(words, on_cpu=self.options.smoke, steps=half)
        if first.code != 0:
            return distance(first, first) | {"limit": 0.0, "passed": False}
        whole = train(f"{PLAIN} --bf16", on_cpu=self.options.smoke, steps=self.steps)
        second = train(
            f"{words} --load {self.options.output / 'checkpoint'}", on_cpu=self.options.smoke, steps=self.steps
        )
        rest = Trained(whole.losses[half:], whole.norms[half:], whole.text, whole.code)
        found = distance(second, rest)
        return found | {"limit": 0.0, "passed": found.get("loss") == 0.0}

    def build(self) -> dict[str, Any]:
        """Let `nlp-bench build` try each kernel, and keep what it says."""
        import torch  # noqa: PLC0415  # --help is light

        words = [sys.executable, "-m", "nlp_bench", "build", "--root", str(self.options.output)]
        if torch.version.cuda and not torch.cuda.is_available():  # a smoke run: a CUDA build asks for which GPU
            words += ["--arch", "9.0"]
        done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=400, check=False)
        return {
            "said": done.stdout.splitlines()[-30:],
            "error": done.stderr[-600:] or None,
            "passed": done.returncode == 0,
        }


def attention(heads: int, width: int, dropout: float, smoke: bool) -> dict[str, Any]:
    """Hold torch's fused attention against its plain one, forward and backward; name the kernels that ran.

    With dropout the two draw other numbers, so that the outputs are held against each other in the mean of the output's square only.
    """
    import torch  # noqa: PLC0415  # --help is light
    from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415
    from torch.nn.functional import scaled_dot_product_attention  # noqa: PLC0415

    on_gpu = torch.cuda.is_available() and not smoke
    device = torch.device("cuda" if on_gpu else "cpu")
    torch.manual_seed(1)
    length = 2048 if on_gpu else 64
    shape = (2, heads, length, width)
    values = [torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(4)]

    def run(inputs: list[Any], gradient: Any) -> list[Any]:
        leaves = [one.detach().clone().requires_grad_() for one in inputs]
        out = scaled_dot_product_attention(*leaves, is_causal=True, dropout_p=dropout)
        return [out.detach(), *torch.autograd.grad(out, leaves, gradient)]

    with sdpa_kernel(SDPBackend.MATH):
        plain = run([one.float() for one in values[:3]], values[3].float())
    activities = [torch.profiler.ProfilerActivity.CPU, *([torch.profiler.ProfilerActivity.CUDA] if on_gpu else [])]
    with torch.profiler.profile(activities=activities) as profile:
        fused = run(values[:3], values[3])
    found: dict[str, Any] = {
        "kernels": sorted({one.key for one in profile.key_averages() if _is_attention(one.key)})[:8]
    }
    if dropout:
        ratio = (fused[0].float().square().mean() / plain[0].square().mean()).item()
        return found | {"ratio_of_squares": ratio, "limit": 0.05, "passed": abs(ratio - 1) <= 0.05}
    errors = [((a.float() - b).norm() / b.norm()).item() for a, b in zip(fused, plain, strict=True)]
    return found | {"relative_errors": errors, "limit": 0.02, "passed": max(errors) <= 0.02}


def _is_attention(name: str) -> bool:
    return bool(re.search(r"flash|fmha|sdpa|attention|cudnn", name, re.IGNORECASE))


def main() -> int:
    """Run what is missing; print a line per check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="OUT", help="folder of correct.json")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="checks whose name holds one of these words"
    )
    parser.add_argument(
        "--budget", type=float, default=540, metavar="SECONDS", help="no check begins later (default 540)"
    )
    parser.add_argument("--parallel", type=int, default=4, metavar="N", help="trainings at the same time (default 4)")
    parser.add_argument("--smoke", action="store_true", help="on the CPU, three iterations each")
    parser.add_argument("--prepare", action="store_true", help="train the CPU's side only, for OUT/references.json")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    options.output = options.output.resolve()
    if options.prepare:
        checks = Checks(options)
        ended = {name: checks.reference(words) for name, words in FAMILIES.items()}
        print(
            "\n".join(
                f"{name}: exit {one.code}, losses {one.losses[:1]} to {one.losses[-1:]}" for name, one in ended.items()
            )
        )
        return int(any(one.code != 0 for one in ended.values()))
    path, until = options.output / "correct.json", time.monotonic() + options.budget
    record = json.loads(path.read_text()) if path.exists() else {"schema": SCHEMA, "smoke": options.smoke, "checks": {}}
    wanted = {
        name: check
        for name, check in Checks(options).all().items()
        if not options.only or any(word in name for word in options.only)
    }
    checks = {name: one for name, one in wanted.items() if record["checks"].get(name, {}).get("passed") is not True}

    def carry_out(name: str) -> None:
        if time.monotonic() > until:
            return
        begin = time.monotonic()
        try:
            found = checks[name]()
        except Exception as error:  # noqa: BLE001  # the next check is worth as much
            found = {"error": f"{type(error).__name__}: {error}"[:600], "passed": False}
        record["checks"][name] = found | {"seconds": round(time.monotonic() - begin, 1)}
        path.write_text(json.dumps(record, indent=1))
        print(line(name, found), flush=True)

    with ThreadPoolExecutor(options.parallel) as pool:
        list(pool.map(carry_out, checks))
    missing = [name for name in checks if name not in record["checks"]]
    failed = [name for name in wanted if record["checks"].get(name, {}).get("passed") is False]
    print(f"correct: {len(wanted)} checks, {len(failed)} failed, {len(missing)} not begun within the budget")
    return int(bool(failed or missing))


def line(name: str, found: dict[str, Any]) -> str:
    """One check in a line."""
    if found["passed"] is None:
        return f"not here  {name}: {found['not_here']}"
    facts = {key: value for key, value in found.items() if key not in {"passed", "losses"}}
    return f"{'passed' if found['passed'] else 'FAILED':<9} {name}: {json.dumps(facts)[:400]}"


if __name__ == "__main__":
    sys.exit(main())
