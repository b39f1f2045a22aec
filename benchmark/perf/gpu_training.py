# ruff: noqa: INP001  # scripts, not a package
"""How fast does one GPU train? GPT 1.3B and 2.7B and a Llama-8B-like model, with their rivals in the same session.

    python benchmark/perf/gpu_training.py [--output reports/reference/gpu] [--budget 560] [--kernels auto] [--only plain ...]
    python benchmark/perf/gpu_training.py --smoke --output /tmp/smoke        # the same way through on a CPU, tiny shapes

bf16, sequence 2048, no recompute, no dropout, random tokens. In this order: an 8192^3 bf16 matrix product, our trainer, a
plain PyTorch loop (torch.compile, autocast, fused AdamW), and Megatron-LM's pretrain_gpt.py where MEGATRON_LM_REPO names a
checkout. FLOPs are model FLOPs, 3 x forward, causal attention counted half. A model too large for the GPU is trained with
fewer layers, which the table says. Results and logs are written after each part: a run that is cut keeps what it had, and a second
call of one day and commit on the same device adds what is missing or failed.
"""

import argparse
import datetime as dt
import json
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]

from gpu_models import MODELS, SMOKE, Model, arguments, fitted  # noqa: E402  # a script finds its neighbours first

from nlp_bench.launch.arguments import WITHOUT_APEX  # noqa: E402

SCHEMA = "nlp-bench/gpu-training/1"
WARM_UP, MEASURED = 3, 8
LIMIT_S = {"matmul": 60, "nlp-bench": 120, "plain": 110, "megatron-lm": 120}
ENGINES = ("nlp-bench", "plain", "megatron-lm")
LEAST_S = 20
"""No part is begun with less time left."""
OURS = re.compile(r"elapsed time per iteration \(s\): ([\d.]+) .*?lm loss: ([\d.E+-]+)")
THEIRS = re.compile(r"elapsed time per iteration \(ms\): ([\d.]+) .*?lm loss: ([\d.E+-]+)")
PEAK = re.compile(r"peak memory GiB: ([\d.]+)")
FACT = re.compile(
    r"^ > (kernels|attention|normalisation|element-wise|cross entropy|weight gradient|optimizer|versions): (.+)$",
    re.MULTILINE,
)
SHORT_OF_MEMORY = re.compile(r"OutOfMemoryError|out of memory", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a part's process left."""

    code: int | None
    """Exit status; None where its time was up."""
    text: str
    """Its stdout and stderr."""


class Session:
    """The budget, the options and the record that grows."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.until_s = time.monotonic() + options.budget
        self.record: dict[str, Any] = {"schema": SCHEMA, "smoke": options.smoke, **facts(), "matmul": None, "runs": []}

    def left_s(self) -> float:
        """Return what is left of the budget."""
        return self.until_s - time.monotonic()

    def run(self, part: str, command: list[str], **environment: str) -> Ended | None:
        """Run one part within its own limit and the budget; None where too little is left to begin."""
        if self.left_s() < LEAST_S:
            return None
        path = os.pathsep.join(
            filter(None, [environment.pop("path", ""), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        )
        settings = {"PYTHONPATH": path, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", **environment}
        try:
            ended = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                timeout=min(LIMIT_S[part], self.left_s()), env={**os.environ, **settings},
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            output = error.stdout or b""
            return Ended(code=None, text=output.decode(errors="replace") if isinstance(output, bytes) else output)
        return Ended(code=ended.returncode, text=ended.stdout)

    def save(self) -> None:
        """Write JSON and table."""
        from nlp_bench.files import write_json, write_text  # noqa: PLC0415  # --help stays fast

        folder: Path = self.options.output
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{self.name}.json", self.record)
        write_text(folder / f"{self.name}.md", markdown(self.record))

    @property
    def name(self) -> str:
        """Of the record's files: day and device."""
        return f"{self.record['date']}-{slug(self.record['device'] or 'unknown')}"

    def go_on(self) -> None:
        """Take over the runs of an earlier call that gave a number."""
        path = self.options.output / f"{self.name}.json"
        earlier = json.loads(path.read_text()) if path.is_file() else {}
        if all(earlier.get(key) == self.record[key] for key in ("commit", "device", "smoke")):
            self.record["runs"] = [run for run in earlier["runs"] if not run["error"]]

    def keep_log(self, engine: str, model: Model, text: str) -> None:
        """Write what a training printed."""
        self.options.output.mkdir(parents=True, exist_ok=True)
        (self.options.output / f"{self.name}-{slug(model.name)}-{engine}.log").write_text(text)


def facts() -> dict[str, Any]:
    """Return where and with what the session runs; unknown is None."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,power.limit", "--format=csv,noheader"]
    return {
        "date": dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%d"),
        "device": None,
        "driver": said(query),
        "commit": said(["git", "-C", str(ROOT), "rev-parse", "HEAD"]),
        "peak_bf16_tflops": None,
    }


def said(command: list[str]) -> str | None:
    """Return the first line that a program prints, None where it cannot."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    return answer[0].strip() if answer else None


def slug(text: str) -> str:
    """Return `text` as a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def measure_matmul(session: Session) -> None:
    """Put the device, its data-sheet peak and its matrix rate into the record."""
    size = "256" if session.options.smoke else "8192"
    ended = session.run("matmul", [sys.executable, str(HERE / "gpu_part.py"), "matmul", size])
    if ended is None or ended.code != 0:
        sys.exit(f"the matrix product did not run:\n{ended.text[-2000:] if ended else 'no time left'}")
    found = json.loads(ended.text.splitlines()[-1])
    session.record |= {"matmul": found, "device": found["device"], "peak_bf16_tflops": peak_tflops(found["device"])}


def peak_tflops(device: str) -> float | None:
    """Return the dense bf16 peak of the data sheet, None where the table has no such device."""
    from nlp_bench.config.accelerators import peak_of  # noqa: PLC0415
    from nlp_bench.errors import NlpBenchError  # noqa: PLC0415  # --help stays fast

    try:
        return peak_of(device, "bf16").tflops
    except NlpBenchError:
        return None


def measure(session: Session, engine: str, model: Model) -> dict[str, Any]:
    """Train `model` with `engine`; with half the micro-batch where memory does not suffice.

    Megatron-LM's local attention keeps its scores, 2 layers x heads x s^2 numbers of 16 bits and more per sample: it begins with half.
    """
    if engine == "megatron-lm" and session.options.upstream_impl == "local" and model.micro > 1:
        model = replace(model, micro=model.micro // 2)
    while True:
        ended = session.run(engine, command(session, engine, model), **surroundings(engine))
        if ended is None:
            return {"engine": engine, "model": asdict(model), "error": "no time left in the budget"}
        session.keep_log(engine, model, ended.text)
        seconds, losses, peak = readings(engine, ended.text)
        if len(seconds) <= WARM_UP and SHORT_OF_MEMORY.search(ended.text) and model.micro > 1:
            model = replace(model, micro=model.micro // 2)
            continue
        return outcome(session, engine, model, ended, seconds) | {"losses": losses, "peak_gib": peak}


def command(session: Session, engine: str, model: Model) -> list[str]:
    """Return the program that trains."""
    steps, bf16 = WARM_UP + MEASURED, not session.options.smoke
    if engine == "plain":
        return [sys.executable, str(HERE / "gpu_part.py"), "plain", json.dumps(asdict(model)), str(steps)]
    words = arguments(model, iterations=steps, bf16=bf16)
    if engine == "nlp-bench":
        kernels = ["--kernels", session.options.kernels]
        return [sys.executable, "-m", "nlp_bench.train", *words, "--vocab-size", str(model.vocabulary), *kernels]
    fixed = ["--tokenizer-type", "NullTokenizer", "--eval-iters", "0", "--eval-interval", "1000"]
    engine_words = [*fixed, "--vocab-size", str(model.vocabulary - 1)]
    script = str(Path(os.environ["MEGATRON_LM_REPO"]) / "pretrain_gpt.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", script]
    is_local = session.options.upstream_impl == "local"
    without = WITHOUT_APEX if is_local and find_spec("apex") is None else ()
    return [*torchrun, *words, *engine_words, "--transformer-impl", session.options.upstream_impl, *without]


def surroundings(engine: str) -> dict[str, str]:
    """Return the variables of an engine; `path` goes before the others' PYTHONPATH."""
    upstream = {"path": os.environ.get("MEGATRON_LM_REPO", ""), "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    return upstream if engine == "megatron-lm" else {}


def readings(engine: str, text: str) -> tuple[list[float], list[float], float | None]:
    """Return seconds and loss of every step and the peak of memory in GiB, as far as the process came."""
    if engine == "plain":
        line = next((line for line in reversed(text.splitlines()) if line.startswith('{"seconds"')), None)
        found = json.loads(line) if line else {"seconds": [], "losses": [], "peak_bytes": None}
        return found["seconds"], found["losses"], found["peak_bytes"] / 2**30 if found["peak_bytes"] else None
    unit, pattern = (1.0, OURS) if engine == "nlp-bench" else (1e-3, THEIRS)
    steps = [(float(seconds) * unit, float(loss)) for seconds, loss in pattern.findall(text)]
    peaks = [float(peak) for peak in PEAK.findall(text)]
    return [step[0] for step in steps], [step[1] for step in steps], max(peaks, default=None)


def outcome(session: Session, engine: str, model: Model, ended: Ended, seconds: list[float]) -> dict[str, Any]:
    """Return one row: rates over the steps behind the warm-up, or what went wrong."""
    row: dict[str, Any] = {"engine": engine, "model": asdict(model), "seconds": seconds, "error": None}
    if engine == "nlp-bench":
        row["facts"] = dict(FACT.findall(ended.text))
    window = seconds[WARM_UP:]
    if not window:
        why = "its time was up" if ended.code is None else f"it ended with status {ended.code}"
        return row | {"error": f"{why}: {' / '.join(ended.text.strip().splitlines()[-3:])[:600]}"}
    rate = model.batch * model.length / statistics.fmean(window)
    tflops = rate * flops_per_token(model) / 1e12
    peak, product = session.record["peak_bf16_tflops"], session.record["matmul"]["tflops"]
    return row | {
        "num_measured": len(window),
        "tokens_per_second": rate,
        "model_tflops": tflops,
        "mfu": tflops / peak if peak else None,
        "of_matmul": tflops / product,
    }


def flops_per_token(model: Model) -> float:
    """Return the model FLOPs of training, causal attention counted half; docs/flops.md."""
    from nlp_bench.layout.flops import model_flops_per_token  # noqa: PLC0415  # --help stays fast
    from nlp_bench.layout.shape import ModelShape  # noqa: PLC0415  # --help stays fast

    shape = ModelShape(
        num_layers=model.layers, hidden_size=model.width, ffn_hidden_size=model.inner, num_attention_heads=model.heads,
        num_query_groups=model.groups, sequence_length=model.length, padded_vocab_size=model.padded_vocabulary, gated=model.llama,
    )  # fmt: skip
    return model_flops_per_token(shape)


def markdown(record: dict[str, Any]) -> str:
    """Return the record as a table with what one has to know of it."""
    matrix, peak = record["matmul"], record["peak_bf16_tflops"]
    title = "CPU SMOKE TEST, no measurement" if record["smoke"] else record["device"]
    lines = [
        f"# Training on one GPU: {title}",
        "",
        (
            f"{record['date']}, commit {record['commit'] or 'unknown'}, torch {matrix['torch']}, CUDA {matrix['cuda']}, "
            f"cuDNN {matrix['cudnn']}; driver line: {record['driver'] or 'unknown'}."
        ),
        f"Data sheet, dense bf16: {peak or 'unknown'} TFLOP/s. Same session, {matrix['size']}^3 bf16 product: {matrix['tflops']:.1f} TFLOP/s.",
        (
            "bf16, no recompute, no dropout; model FLOPs with causal attention counted half; steps behind the first "
            f"{WARM_UP}. MFU is against the data sheet."
        ),
        "",
        "| model | layers | micro-batch | engine | tokens/s | TFLOP/s | MFU | of matmul | x plain | peak GiB |",
        "|:--|--:|--:|:--|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [table_row(run, record["runs"]) for run in record["runs"]]
    ours = next((run["facts"] for run in record["runs"] if run.get("facts")), {})
    kernels = [f"- {name}: {text}" for name, text in ours.items()]
    return "\n".join([*lines, "", "Kernels of nlp-bench:", "", *kernels]) + "\n"


def table_row(run: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    """Return one line of the table."""
    model = run["model"]
    layers = (
        f"{model['layers']} of {model['full_layers']}"
        if model["layers"] < model["full_layers"]
        else f"{model['layers']}"
    )
    head = f"| {model['name']} | {layers} | {model['micro']} | {run['engine']} |"
    if run["error"]:
        return f"{head} {run['error'].replace('|', '/')[:160]} | | | | | |"
    rival = next((one for one in runs if one["engine"] == "plain" and one["model"]["name"] == model["name"]), {})
    ratio = run["tokens_per_second"] / rival["tokens_per_second"] if rival.get("tokens_per_second") else None
    cells = [
        f"{run['tokens_per_second']:.0f}", f"{run['model_tflops']:.4g}", share(run["mfu"]), share(run["of_matmul"]),
        f"{ratio:.3f}" if ratio else "", f"{run['peak_gib']:.1f}" if run["peak_gib"] else "",
    ]  # fmt: skip
    return f"{head} {' | '.join(cells)} |"


def share(value: float | None) -> str:
    """Return a share in percent."""
    return "" if value is None else f"{100 * value:.1f} %"


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--output", type=Path, default=ROOT / "reports" / "reference" / "gpu", help="folder of JSON and table"
    )
    parser.add_argument(
        "--budget", type=float, default=560, metavar="SECONDS", help="of the whole call (default: %(default)s)"
    )
    parser.add_argument("--kernels", default="auto", choices=("auto", "te", "apex", "torch"), help="of our trainer")
    parser.add_argument(
        "--upstream-impl",
        default="local",
        choices=("local", "transformer_engine"),
        help="Megatron-LM's --transformer-impl",
    )
    parser.add_argument("--only", nargs="+", choices=ENGINES, default=ENGINES, help="these engines")
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="NAME",
        help="models whose name contains one of these words, in this order, for example 1.3B",
    )
    parser.add_argument(
        "--smoke", action="store_true", help="on a CPU, with tiny shapes: proves the way, measures nothing"
    )
    return parser.parse_args(words)


def chosen(options: argparse.Namespace, memory_bytes: int | None) -> list[Model]:
    """Return the models whose names hold one of the words of --models, in their order, all without; as much of each as fits."""
    every = SMOKE if options.smoke else MODELS
    named = [model for word in options.models or () for model in every if word in model.name]
    return [fitted(model, memory_bytes) if memory_bytes else model for model in named or every]


def main() -> int:
    """Measure everything that fits into the budget; return 0 where each of our own runs gave a number."""
    options = parse()
    session = Session(options)
    measure_matmul(session)
    memory = session.record["matmul"]["memory_bytes"]
    session.go_on()
    done = {(run["engine"], run["model"]["name"]) for run in session.record["runs"]}
    engines = [one for one in options.only if one != "megatron-lm" or os.environ.get("MEGATRON_LM_REPO")]
    for model in chosen(options, memory):
        for engine in engines:  # rivals in the same minutes
            if (engine, model.name) in done:
                continue
            run = measure(session, engine, model)
            session.record["runs"].append(run)
            session.save()
            print(table_row(run, session.record["runs"]), flush=True)
    session.save()
    print(markdown(session.record))
    return int(any(run["error"] for run in session.record["runs"] if run["engine"] == "nlp-bench"))


if __name__ == "__main__":
    sys.exit(main())
