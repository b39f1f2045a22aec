# ruff: noqa: INP001  # scripts, not a package
"""Is what we say before and beside a run true on one GPU? Predictions and rehearsals against trainings, the recorder against NVML's counter.

    python benchmark/perf/gpu/truth.py --output OUT [--system dgx-h100] [--budget 540] [--only watched calibrated 1.3B ...]
    python benchmark/perf/gpu/truth.py --output OUT --smoke       # the same way on a CPU: proves the way, not the GPU

Each part is written to OUT/truth.json when it ends; a second call goes on where the first was cut. Time and memory are predicted twice: from data
sheets and published runs, and with what `plan calibrate` measured here. Goals: 10 % of the time, 4 % of the memory. Nothing changes the GPU.
"""

import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "src"))

SCHEMA = "nlp-bench/gpu-truth/1"
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
LINE = re.compile(r"iteration +(\d+)/.*?elapsed time per iteration \(s\): ([\d.]+).*?peak memory GiB: ([\d.]+)")
SHORT = re.compile(r"out of memory|OutOfMemoryError", re.IGNORECASE)
WARM_UP, MEASURED, LIMIT_S = 4, 8, 150
RUNS: dict[str, dict[str, Any]] = {
    "GPT 126M, micro batch 4": {"model": "gpt_126m", "micro_batch_size": 4},
    "GPT 126M, micro batch 32": {"model": "gpt_126m", "micro_batch_size": 32},
    "GPT 1.3B, micro batch 1": {"model": "gpt_1_3b", "micro_batch_size": 1},
    "GPT 1.3B, micro batch 4": {"model": "gpt_1_3b", "micro_batch_size": 4},
    "GPT 1.3B, micro batch 8": {"model": "gpt_1_3b", "micro_batch_size": 8},
    "GPT 1.3B, micro batch 4, full recompute": {"model": "gpt_1_3b", "micro_batch_size": 4, "recompute": "full"},
    "GPT 2.7B, micro batch 1": {"model": "gpt_2_7b", "micro_batch_size": 1},
    "GPT 2.7B, micro batch 4": {"model": "gpt_2_7b", "micro_batch_size": 4},
    "BERT large, micro batch 16": {"model": "bert_large", "micro_batch_size": 16},
    "T5 220M, micro batch 16": {"model": "t5_220m", "micro_batch_size": 16},
}
"""Ten configurations of one GPU, from launch-bound to the edge of 80 GB; four micro-batches an iteration."""
SMOKE = {
    "tiny": {"model": "tiny", "micro_batch_size": 2},
    "tiny, full recompute": {"model": "tiny", "micro_batch_size": 1, "recompute": "full"},
}


class Truth:
    """What was found so far, written after every part."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.end = options, time.monotonic() + options.budget
        self.path = options.output / "truth.json"
        options.output = options.output.resolve()
        options.output.mkdir(parents=True, exist_ok=True)
        empty: dict[str, Any] = {"schema": SCHEMA, "smoke": options.smoke, "parts": {}}
        self.found = json.loads(self.path.read_text()) if self.path.is_file() else empty

    def part(self, name: str, make: Callable[[], dict[str, Any]], least_s: float = 30.0) -> None:
        """Do one part, unless an earlier call did or the time is nearly over."""
        if "error" not in self.found["parts"].get(name, {"error": ""}):
            return
        if self.end - time.monotonic() < least_s:
            self.found["parts"][name] = {"error": "no time left in the budget"}
        else:
            begin = time.monotonic()
            try:
                made = make()
            except Exception as error:  # noqa: BLE001  # one part that breaks must not cost the others
                made = {"error": f"{type(error).__name__}: {error}"}
            self.found["parts"][name] = made | {"took_s": round(time.monotonic() - begin, 1)}
            print(f"{name}: {json.dumps(self.found['parts'][name])[:300]}", file=sys.stderr, flush=True)
        self.path.write_text(json.dumps(self.found, indent=1) + "\n")

    def resolved(self, changes: dict[str, Any]) -> Any:
        """Return the run of one GPU."""
        from nlp_bench.config.request import Request  # noqa: PLC0415  # --help is light
        from nlp_bench.config.resolve import resolve  # noqa: PLC0415

        wanted = {
            "system": self.options.system, "launcher": "local", "nodes": 1, "gpus_per_node": 1, "tensor": 1, "pipeline": 1,
            "gradient_accumulation_steps": 4, "iterations": WARM_UP + MEASURED, "log_interval": 1, "data_path": "mock",
        }  # fmt: skip
        return resolve(Request(**wanted, **changes), ask_scheduler=False)

    def trained(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Train one configuration; return its time and memory beside what was predicted and rehearsed."""
        from nlp_bench.launch.arguments import training_arguments  # noqa: PLC0415  # as above

        run = self.resolved(changes)
        result = self.said_before(run)
        began = time.monotonic()
        ended = self.python("-m", "nlp_bench.train", *training_arguments(run), check=False)
        lines = LINE.findall(ended.stdout)
        result |= {"wall_s": round(time.monotonic() - began, 1), "iterations": len(lines)}
        if len(lines) <= WARM_UP:
            is_short = bool(SHORT.search(ended.stdout + ended.stderr))
            last = (ended.stderr.strip().splitlines() or [""])[-1]
            return result | (
                {"out_of_memory": True} if is_short else {"error": f"exit {ended.returncode}: {last[:300]}"}
            )
        measured = {
            "iteration_s": statistics.median(float(line[1]) for line in lines[WARM_UP:]),
            "peak_bytes": float(lines[-1][2]) * 2**30,
        }
        return result | {"measured": measured, "off": off(result, measured)}

    def said_before(self, run: Any) -> dict[str, Any]:
        """Return the predictions of both sets of constants and what a rehearsal says."""
        from nlp_bench.plan.constants import read_constants  # noqa: PLC0415  # as above
        from nlp_bench.plan.forecast import forecast  # noqa: PLC0415
        from nlp_bench.plan.problem import configuration_of  # noqa: PLC0415

        said: dict[str, Any] = {}
        own = self.options.output / "here.toml"
        for name, path in {"published": None, "calibrated": own if own.is_file() else None}.items():
            if name == "published" or path:
                constants = read_constants(path) if path else read_constants()
                found = forecast(configuration_of(run, constants), constants)
                said[name] = {
                    "iteration_s": float(found.seconds.total.item()),
                    "peak_bytes": float(found.memory.total.item()),
                }
        record = self.options.output / "run.json"
        run.write(self.options.output)
        done = self.python("-m", "nlp_bench", "rehearse", "--run", str(record), "--format", "json", check=False)
        if done.returncode == 0:
            rehearsed = json.loads(done.stdout)
            said["rehearsed"] = {"peak_bytes": rehearsed["ranks"][0]["peak_bytes"], "fits": rehearsed["fits"]}
        else:
            said["rehearsal"] = done.stderr.strip()[:300] or "failed"
        return {"said": said}

    def calibrated(self) -> dict[str, Any]:
        """Measure the constants of this GPU."""
        words = (
            ["--minutes", "0.3", "--device", "cpu", "--precision", "fp32"]
            if self.options.smoke
            else ["--minutes", "2.5"]
        )
        path = self.options.output / "here.toml"
        done = self.python(
            "-m", "nlp_bench", "plan", "calibrate", *words, "--system", self.options.system, "--output", str(path)
        )
        return {"said": done.stdout.splitlines()[-25:]}

    def doctor(self) -> dict[str, Any]:
        """Return what doctor's checks of a node's hardware say."""
        words = ["--checks", "gpus,gpu_health,gpu_processes,cuda,nccl,limits,clock", "--format", "json"]
        done = self.python("-m", "nlp_bench", "doctor", "--system", self.options.system, *words, check=False)
        return {"checks": {one["name"]: [one["status"], one["summary"]] for one in json.loads(done.stdout)["checks"]}}

    def watched(self) -> dict[str, Any]:
        """Train with the recorder beside it; return its samples' energy against NVML's own counter, and what `report` says of the log.

        Then the same training without the recorder, and with a tenth of the lines: what watching costs.
        """
        from nlp_bench.launch.arguments import training_arguments  # noqa: PLC0415  # as above
        from nlp_bench.machine.nvml import Nvml, NvmlError  # noqa: PLC0415

        iterations = 30 if self.options.smoke else 200
        changes = {"model": "tiny" if self.options.smoke else "gpt_126m", "micro_batch_size": 4}
        words = [*training_arguments(self.resolved(changes)), "--train-iters", str(iterations)]
        try:
            nvml = Nvml()
        except NvmlError:
            nvml = None
        folder = self.options.output / "watched"
        folder.mkdir(exist_ok=True)
        recorder = subprocess.Popen(
            [sys.executable, "-m", "nlp_bench.machine.recorder", str(folder), "--parent", str(os.getpid()), "--gpus", str(int(nvml is not None))],
            env=ENVIRONMENT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(3)
        before = total_mj(nvml)
        with_recorder = self.python("-m", "nlp_bench.train", *words)
        after = total_mj(nvml)
        recorder.terminate()
        recorder.wait(10)
        (folder / "job.out").write_text(with_recorder.stdout)
        report = self.python("-m", "nlp_bench", "report", str(folder / "job.out"), "--format", "json", check=False)
        run = json.loads(report.stdout)["runs"][0]
        without = self.python("-m", "nlp_bench.train", *words)
        rarely = self.python("-m", "nlp_bench.train", *words, "--log-interval", "10")
        seconds = [step(one.stdout) for one in (with_recorder, without, rarely)]
        return {
            "energy_j": {
                "NVML's counter": None if before is None or after is None else (after - before) / 1e3,
                "recorder": recorded_j(folder),
            },
            "iteration_s": dict(
                zip(("recorder, every line", "no recorder", "no recorder, every tenth line"), seconds, strict=True)
            ),
            "report": {
                name: run[name]
                for name in ("tokens_per_second", "window", "seconds_per_iteration", "outcome", "reasons")
            },
        }

    def python(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run Python with this checkout's package."""
        environment = ENVIRONMENT | (
            {"CUDA_VISIBLE_DEVICES": "", "NLP_BENCH_ACCELERATOR": "cpu"} if self.options.smoke else {}
        )
        done = subprocess.run(
            [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=LIMIT_S + 60, check=False,
            stdin=subprocess.DEVNULL, cwd=self.options.output,  # where the trainer leaves its TensorBoard
        )  # fmt: skip
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(words[:4])}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
        return done


def off(result: dict[str, Any], measured: dict[str, float]) -> dict[str, dict[str, float]]:
    """Return predicted / measured - 1 of each source and quantity."""
    return {
        source: {name: round(values[name] / measured[name] - 1, 4) for name in measured if name in values}
        for source, values in result["said"].items()
        if isinstance(values, dict)
    }


def step(log: str) -> float:
    """Return the median seconds of an iteration behind the first quarter of the lines."""
    lines = LINE.findall(log)
    return statistics.median(float(line[1]) for line in lines[len(lines) // 4 :])


def total_mj(nvml: Any) -> float | None:
    """Return NVML's energy counter of the first GPU in millijoules."""
    return nvml.maybe("nvmlDeviceGetTotalEnergyConsumption", nvml.handles[0]) if nvml and nvml.handles else None


def recorded_j(folder: Path) -> float | None:
    """Return what the recorder's samples add up to, in joules, by its energy column."""
    (samples,) = (folder / "machine").glob("*.samples.csv")
    rows = list(csv.DictReader(samples.read_text().splitlines()))
    energy = next((name for name in rows[0] if "energy" in name and "gpu" in name), None)
    values = [float(row[energy]) for row in rows if energy and row[energy]]
    return (values[-1] - values[0]) / 1e3 if len(values) > 1 else None


def main() -> int:
    """Do all parts that are not done; return 1 where one of them has no answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder of truth.json and the calibrated constants")
    parser.add_argument("--system", default="dgx-h100", help="system file whose GPU this is (default: %(default)s)")
    parser.add_argument(
        "--budget", type=float, default=540, metavar="SECONDS", help="of the whole call (default: %(default)s)"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="on a CPU, with tiny models: proves the way, measures nothing"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="parts whose name contains one of these words, in this order"
    )
    truth = Truth(parser.parse_args())
    parts = {"doctor": (truth.doctor, 30.0), "calibrated": (truth.calibrated, 180.0)}
    for name, changes in (SMOKE if truth.options.smoke else RUNS).items():
        parts[name] = (partial(truth.trained, changes), 60.0)
    parts["watched"] = (truth.watched, 60.0)
    for word in truth.options.only or [""]:
        for name, (make, least_s) in parts.items():
            if word in name:
                truth.part(name, make, least_s)
    missing = [name for name, one in truth.found["parts"].items() if "error" in one]
    print(
        f"truth: {len(truth.found['parts']) - len(missing)} parts done, {len(missing)} not: {', '.join(missing) or '-'}; {truth.path}"
    )
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
