# ruff: noqa: INP001  # scripts, not a package
"""How fast is the planner? Configurations per second on one core, and the whole answer with start-up, beside llm-analysis.

    python benchmark/perf/planner.py                         (installs the rival in a temporary environment: needs an index)
    python benchmark/perf/planner.py --no-rival
    python benchmark/perf/planner.py --rival-python PATH     (a Python that has llm-analysis already)

Both analyse the same configurations of the same model on the same GPU, one thread each, taking turns; the seconds of the rival's
row are those of the configurations that it can describe (no virtual stages, no context parallelism, all stages alike).
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from log_reader import processor
from trainer_vs_torch import positive

from nlp_bench.config import catalog
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.forecast import forecast
from nlp_bench.plan.problem import Problem, make_problem
from nlp_bench.plan.search import figures_of, search, space

RIVAL = "llm-analysis==0.2.2"
NEEDS = (
    "fire",
)  # its pins of huggingface-hub and transformers serve names that are looked up on a hub, which is not done here
QUESTION = ("plan", "--model", "175", "--system", "juwels-booster", "--nodes", "96")
TOKENS = 20_000_000
GOAL_PER_S, GOAL_S = 1e5, 1.5
RIVAL_CODE = """
import json, logging, sys, time
from llm_analysis import analysis as a
from llm_analysis.config import GPUConfig, ModelConfig, ParallelismConfig, get_dtype_config_by_name
asked = json.load(sys.stdin)
a.logger.setLevel(logging.CRITICAL)
model, gpu, dtype = ModelConfig(**asked["model"]), GPUConfig(**asked["gpu"]), get_dtype_config_by_name("w16a16e16")
words = {"none": a.ActivationRecomputation.NONE, "selective": a.ActivationRecomputation.SELECTIVE, "full": a.ActivationRecomputation.FULL}
best, done, refused = 1e9, 0, {}
for _ in range(asked["repeat"]):
    done, refused, start = 0, {}, time.perf_counter()
    for tp, pp, dp, micro, gas, recompute, sharded in asked["configurations"]:
        try:
            one = a.LLMAnalysis(model, gpu, dtype, ParallelismConfig(tp_size=tp, pp_size=pp, dp_size=dp), flops_efficiency=0.5)
            one.training(batch_size_per_gpu=micro, gradient_accumulation_steps=gas, global_batch_size=micro * gas * dp,
                         seq_len=asked["sequence_length"], total_num_tokens=asked["tokens"], activation_recomputation=words[recompute],
                         ds_zero=a.DSZeRO.STAGE_1 if sharded else a.DSZeRO.NONE)
            done += 1
        except (AssertionError, ZeroDivisionError) as error:
            refused[str(error)[:60] or type(error).__name__] = refused.get(str(error)[:60] or type(error).__name__, 0) + 1
    best = min(best, time.perf_counter() - start)
print(json.dumps({"seconds": best, "done": done, "refused": refused}))
"""


def main() -> int:
    """Measure and print; return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=positive, default=5, help="the best of so many")
    parser.add_argument("--sample", type=positive, default=2000, help="configurations for the rival")
    parser.add_argument("--no-rival", action="store_true", help="measure the planner alone")
    parser.add_argument("--rival-python", metavar="PATH", help="a Python that has llm-analysis installed")
    options = parser.parse_args()
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core, children too
    print(
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {processor()} (one core), Python {platform.python_version()}, NumPy {np.__version__}, load {os.getloadavg()[0]:.1f}\n"
    )
    problem = question()
    rates = show_rates(problem, options.repeat)
    show_answer(options.repeat)
    if not options.no_rival:
        show_rival(problem, rates, options)
    return 0


def question() -> Problem:
    """Return the 175B benchmark on 96 nodes of JUWELS Booster."""
    model, system = catalog.load_model("175"), catalog.load_system("juwels-booster")
    return make_problem(model, system, read_constants(), tokens=TOKENS, nodes=96)


def show_rates(problem: Problem, repeat: int) -> float:
    """Print seconds and configurations per second by part; return the rate of legality, memory and time together."""
    legal = space(problem).legal
    number = len(legal)
    rows: dict[str, Callable[[], Any]] = {
        "legality: enumerate and check": lambda: space(problem),
        "memory and time": lambda: figures_of(legal, problem),
        "legality, memory, time and order": lambda: search(problem),
    }
    print(f"| part, {number} legal configurations | s | configurations/s | asked |\n|:--|--:|--:|--:|")
    seconds = {name: best_of(part, repeat) for name, part in rows.items()}
    for name, taken in seconds.items():
        asked = f"{GOAL_PER_S:,.0f}" if name == list(rows)[-1] else ""
        print(f"| {name} | {taken:.3f} | {number / taken:,.0f} | {asked} |")
    return number / seconds[list(rows)[-1]]


def show_answer(repeat: int) -> None:
    """Print the seconds of the whole command, start-up included."""
    command = [sys.executable, "-m", "nlp_bench", *QUESTION]
    best = best_of(lambda: answer_of(command), repeat)
    print(f"\n`nlp-bench {' '.join(QUESTION)}`: {best:.2f} s with start-up, best of {repeat} (asked: {GOAL_S} s)")


def show_rival(problem: Problem, rate: float, options: argparse.Namespace) -> None:
    """Print a table of both on the same configurations, or why there is none."""
    with tempfile.TemporaryDirectory(prefix="rival-") as folder:
        try:
            python = options.rival_python or install(Path(folder))
        except subprocess.CalledProcessError as error:
            print(f"\nno rival: {RIVAL} could not be installed here: {(error.stderr or '').strip()[-300:]}")
            return
        asked, places = sample(problem, options)
        found = json.loads(answer_of([python, "-W", "ignore", "-c", RIVAL_CODE], json.dumps(asked)))
    chosen = space(problem).legal.take(places)
    own = best_of(lambda: forecast(chosen, problem.constants), options.repeat)
    theirs = found["seconds"] / len(places)
    print(f"\n| {len(places)} configurations, memory and time | s | configurations/s | ratio |\n|:--|--:|--:|--:|")
    print(f"| nlp-bench plan | {own:.4f} | {len(places) / own:,.0f} | {theirs * len(places) / own:,.0f} x as fast |")
    print(f"| {RIVAL} | {found['seconds']:.4f} | {1 / theirs:,.0f} | 1 |")
    print(f"\nWith legality and order over the whole space the planner is {rate * theirs:,.0f} x as fast.")
    print(
        f"{RIVAL} answered {found['done']} of them; it asks for the efficiency of the GPU, which the planner predicts."
    )
    for why, number in found["refused"].items():
        print(f"refused {number}: {why}")


def install(folder: Path) -> str:
    """Install the rival in an environment of its own; return its Python."""
    print(f"\ninstalling {RIVAL} in a temporary environment", file=sys.stderr)
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    for words in (("--no-deps", RIVAL), NEEDS):
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
        subprocess.run(command, check=True, capture_output=True, text=True)
    return python


def sample(problem: Problem, options: argparse.Namespace) -> tuple[dict[str, Any], Any]:
    """Return what the rival is asked, and the positions of the same configurations among the legal ones."""
    legal, n, model = space(problem).legal, problem.network, problem.model.architecture
    s, number = legal.spread, len(legal)
    plain = (s.virtual == 1) & (s.context == 1) & (s.first_layers == 0) & (s.last_layers == 0)
    places = np.flatnonzero(np.broadcast_to(plain, (number,)))
    places = np.random.default_rng(0).permutation(places)[: options.sample]
    arrays = (s.tensor, s.pipeline, s.data, s.micro_batch_size, s.num_microbatches, s.recompute, s.sharding)
    columns = [np.broadcast_to(array, (number,))[places].astype(int).tolist() for array in arrays]
    words = ("none", "selective", "full")
    rows = [(*row[:5], words[row[5]], row[6]) for row in zip(*columns, strict=True)]
    return {
        "configurations": rows,
        "repeat": max(1, options.repeat // 2),
        "sequence_length": model.sequence_length,
        "tokens": TOKENS,
        "model": {
            "name": "same",
            "num_layers": model.num_layers,
            "n_head": model.num_attention_heads,
            "hidden_dim": model.hidden_size,
            "vocab_size": model.vocab_size,
            "max_seq_len": model.sequence_length,
            "ffn_embed_dim": int(n.ffn_hidden_size),
        },
        "gpu": {
            "name": "same",
            "mem_per_GPU_in_GB": float(problem.machines.memory_bytes) / 2**30,
            "hbm_bandwidth_in_GB_per_sec": float(problem.machines.memory_bytes_per_s) / 1e9,
            "intra_node_bandwidth_in_GB_per_sec": float(problem.machines.link_bytes_per_s) / 1e9,
            "intra_node_min_message_latency": 8e-6,
            "peak_fp16_TFLOPS": float(problem.machines.peak_flops) / 1e12,
        },
    }, places


def best_of(what: Callable[[], Any], repeat: int) -> float:
    """Return the shortest of `repeat` runs, in seconds, after one that does not count."""
    what()
    taken = []
    for _ in range(repeat):
        start = time.perf_counter()
        what()
        taken.append(time.perf_counter() - start)
    return min(taken)


def answer_of(command: list[str], text: str | None = None) -> str:
    """Run a command; return what it prints, or end with what it says where it fails."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, input=text)
    except OSError as error:
        raise SystemExit(f"cannot run {command[0]}: {error.strerror}") from error
    if done.returncode:
        raise SystemExit(f"{' '.join(command)[:200]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
