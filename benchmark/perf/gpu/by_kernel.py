# ruff: noqa: INP001  # a script, not a package
"""Which kernels does a step of our trainer spend its time in, on this GPU? From torch's profiler, one line per kernel.

    python benchmark/perf/gpu/by_kernel.py --output OUT [--models 1.3B] [-- --no-rope-fusion]
    python benchmark/perf/gpu/by_kernel.py --output OUT --smoke      # the same way on a CPU: proves the way, no kernel is seen

The models are those of gpu_training.py; two iterations behind the warm-up are recorded. Shares are of the time from the first kernel to the
last; "idle" is what no kernel covers. Words behind -- go to the trainer. OUT/by_kernel.json keeps all kernels.
"""

import argparse
import gzip
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "src")]

import gpu_training  # noqa: E402  # a script finds its neighbours first
import torch  # noqa: E402
from gpu_models import Model  # noqa: E402

SCHEMA = "nlp-bench/gpu-by-kernel/1"
FIRST, LAST = 6, 8
"""The recorded iterations: from FIRST on, before LAST."""
ON_GPU = {"kernel", "gpu_memcpy", "gpu_memset"}
"""Categories of the trace that occupy the GPU."""


def recorded(session: gpu_training.Session, model: Model, folder: Path, words: list[str]) -> dict[str, Any]:
    """Train with the profiler on; return seconds and calls by kernel, and the share of the time without one."""
    window = f"--profile --profile-step-start {FIRST} --profile-step-end {LAST}".split()
    profile = [*window, "--profile-dir", str(folder)]
    ended = session.run("nlp-bench", [*gpu_training.command(session, "nlp-bench", model), *profile, *words])
    traces = sorted(folder.glob("rank0_*.json.gz"))
    if ended is None or not traces:
        return {"error": " / ".join(ended.text.strip().splitlines()[-3:])[:600] if ended else "no time left"}
    with gzip.open(traces[-1]) as file:
        events = [one for one in json.load(file)["traceEvents"] if one.get("cat") in ON_GPU]
    seconds, _, _ = gpu_training.readings("nlp-bench", ended.text)
    kernels: dict[str, list[float]] = defaultdict(list)
    for one in events:
        kernels[one["name"]].append(one["dur"] / 1e6)
    busy_s, until, begin = 0.0, 0.0, min((one["ts"] for one in events), default=0.0)
    for one in sorted(events, key=lambda one: one["ts"]):  # kernels of several streams overlap
        busy_s += max(0.0, one["ts"] + one["dur"] - max(until, one["ts"])) / 1e6
        until = max(until, one["ts"] + one["dur"])
    span_s = (until - begin) / 1e6
    order = sorted(kernels.items(), key=lambda pair: -sum(pair[1]))
    return {
        "iteration_s": seconds[gpu_training.WARM_UP : FIRST - 1],
        "span_s": span_s,
        "idle": 1 - busy_s / span_s if events else None,
        "kernels": {name: {"s": sum(all_s), "calls": len(all_s)} for name, all_s in order},
    }


def lines(name: str, found: dict[str, Any], most: int = 30) -> list[str]:
    """Return the table of one model."""
    if "error" in found:
        return [f"{name}: {found['error']}"]
    if not found["kernels"]:
        return [f"{name}: no kernel was seen; iterations of {found['iteration_s']} s"]
    span_s = found["span_s"]
    head = f"{name}: {LAST - FIRST} iterations in {span_s:.3f} s, idle {100 * found['idle']:.1f} %"
    rows = [
        f"{100 * one['s'] / span_s:6.2f} %  {one['calls']:6d} x {1e6 * one['s'] / one['calls']:9.1f} us  {kernel[:150]}"
        for kernel, one in list(found["kernels"].items())[:most]
    ]
    return [head, *rows]


def main() -> int:
    """Record each model; return 1 where one gave no trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="OUT", help="folder of by_kernel.json")
    parser.add_argument(
        "--models", nargs="+", default=["1.3B"], metavar="WORD", help="models whose name holds one of these words"
    )
    parser.add_argument(
        "--budget", type=float, default=300, metavar="SECONDS", help="of the whole call (default: %(default)s)"
    )
    parser.add_argument("--kernels", default="auto", choices=("auto", "te", "apex", "torch"), help="of our trainer")
    parser.add_argument("--smoke", action="store_true", help="on a CPU, with tiny shapes")
    parser.add_argument("words", nargs="*", help="for the trainer, behind --")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    session = gpu_training.Session(options)
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "smoke": options.smoke,
        **gpu_training.facts(),
        "words": options.words,
        "models": {},
    }
    on_gpu = torch.cuda.is_available() and not options.smoke
    record["device"] = torch.cuda.get_device_name() if on_gpu else "CPU"
    memory = torch.cuda.get_device_properties(0).total_memory if on_gpu else None
    for model in gpu_training.chosen(options, memory):
        found = recorded(session, model, options.output / gpu_training.slug(model.name), options.words)
        record["models"][model.name] = found
        (options.output / "by_kernel.json").write_text(json.dumps(record, indent=1))
        print("\n".join(lines(f"{model.name}, {model.layers} layers, micro batch {model.micro}", found)), flush=True)
    return int(any("error" in one for one in record["models"].values()))


if __name__ == "__main__":
    sys.exit(main())
