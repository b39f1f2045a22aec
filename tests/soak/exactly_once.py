"""Kill JUBE at random moments with kill -9 and go on: each workpackage has had exactly one Slurm job, and its outcome.

    python tests/soak/exactly_once.py --num 50

A trial is `jube run` of two or three workpackages on a private Slurm, whose training is a stand-in (tests/faults/stub). JUBE is killed
one to three times, in `jube run` or in `jube continue`: in half of the trials alone, so that our `submit` lives on beside the next one, in
the others with all that it has started. Then a person goes on: by `jube continue`, or unattended by `nlp-bench watch --continue`.
Jobs are counted by folder and comment, ended ones too, in Slurm's queue and in its log of completed jobs.
JUBE writes workpackages.xml in place: a kill inside that write cuts the file, and JUBE cannot go on with the run. Those trials are counted
for themselves: what was submitted has still one job and ends with its outcome, by `nlp-bench watch` alone.
"""

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET  # its usual name
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # this checkout, whatever is installed

from support.sandbox import Sandbox, sandbox

from faults.stand_in import jube_file, stub_run

CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = [sys.executable, "-m", "nlp_bench"]
BOUND_S = 240.0  # for one trial to come to its end, on a busy machine
EARLY = 0.1  # share of the kills that may fall into JUBE's start
TRIES = 12  # attempts to hit a JUBE that is still running
MODES = {"ok": "VALID", "slow 0.2": "VALID", "exit 5": "FAILED", "short": "INCOMPLETE"}


@dataclass(kw_only=True)
class Trial:
    slurm: Sandbox
    folder: Path
    dice: random.Random
    span_s: float  # how long an undisturbed `jube run` takes
    is_group: bool  # whether all that JUBE has started is killed with it
    kills: int = 0
    anew: int = 0  # further kills, before JUBE had written its first workpackages.xml: the person repeats `jube run`
    modes: dict[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        words = self.dice.choices(list(MODES), k=2 + (self.dice.random() < 0.3))
        self.modes = {f"point{number}": mode for number, mode in enumerate(words)}
        self.yaml = jube_file(self.folder, **{name: stub_run(mode) for name, mode in self.modes.items()})
        self.runs = self.folder / "runs"

    def words(self) -> list[str]:
        """Return what a person types next: jube continue, or jube run where JUBE has nothing to go on with."""
        if self.run() is not None:
            return ["jube", "continue", str(self.runs), "--id", "last", "--hide-animation"]
        return ["jube", "run", str(self.yaml), "--hide-animation"]

    def run(self) -> Path | None:
        """Return JUBE's newest run folder, None where it has none that it could go on with."""
        found = sorted(self.runs.glob("[0-9]*")) if self.runs.is_dir() else []
        whole = [path for path in found if (path / "workpackages.xml").exists()]
        return whole[-1] if whole and whole[-1] == found[-1] else None

    def kill(self) -> None:
        """Start what comes next and kill it at a random moment; a JUBE that was faster does not count."""
        words, is_early = self.words(), self.dice.random() < EARLY
        with subprocess.Popen(
            words, cwd=self.folder, env=self.slurm.environment, start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            if not is_early:
                self.until_begun(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.dice.random() * self.span_s)
                self.span_s *= 0.7  # the machine is less busy than it was when the time was taken
                return
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if self.is_group else os.kill)(process.pid, signal.SIGKILL)
        is_hit = process.returncode == -signal.SIGKILL
        self.kills += is_hit and self.run() is not None
        self.anew += is_hit and self.run() is None

    def until_begun(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait until JUBE has read what it was given: its program and the YAML take much of its time, and nothing is lost there."""
        run = self.run()
        begun = run and (run / "continue.log")
        before = begun.stat().st_mtime_ns if begun and begun.exists() else 0
        while process.poll() is None:
            if (begun is None and self.run()) or (begun and begun.exists() and begun.stat().st_mtime_ns > before):
                return
            time.sleep(0.005)

    def is_cut(self) -> bool:
        """Whether JUBE's own file cannot be read any more."""
        with contextlib.suppress(ET.ParseError):
            if run := self.run():
                ET.parse(run / "workpackages.xml")  # noqa: S314  # our own JUBE's
            return False
        return True

    def go_on(self, *, unattended: bool) -> str:
        """Go on until nothing waits; return JUBE's last word."""
        end, word = time.monotonic() + BOUND_S, "none"
        while time.monotonic() < end and word not in {"FINISHED", "ERROR"}:
            words = self.words()
            if words[1] == "continue" and unattended:
                words = [*PYTHON, "watch", str(self.runs), "--continue", "--every", "1", "--max-hours", "0.05"]
            self.call(*words)
            if self.waiting():
                while (
                    self.waiting() and time.monotonic() < end
                ):  # a person looks at the queue before the next jube continue
                    time.sleep(0.2)
                continue
            word = self.call("jube", "status", str(self.runs), "--id", "last").stdout.strip().rpartition("\n")[2]
        return word

    def waiting(self) -> bool:
        return any(not (path.parent / "outcome.json").exists() for path in self.runs.glob("*/*_train/work/submit.json"))

    def call(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, cwd=self.folder, env=self.slurm.environment, capture_output=True, text=True, timeout=BOUND_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def folders(self) -> dict[str, Path]:
        """Return the run folder of each point, for all that were submitted or are JUBE's."""
        return {str(path): path for path in sorted(self.runs.glob("*/*_train/work"))}

    def said(self) -> list[str]:
        """Return the ends of what JUBE's steps have said, for a person who looks for the fault."""
        return [f"{path}: {path.read_text(errors='replace')[-600:]}" for path in sorted(self.runs.glob("*/*/std*"))]

    def faults(self, word: str, *, cut: bool) -> list[str]:
        found = [] if cut or word == "FINISHED" else [f"JUBE says {word}: {self.said()}"]
        jobs, comments = jobs_by_folder(self.slurm)
        folders = self.folders()
        submitted = {name for name, path in folders.items() if (path / "submit.json").exists()}
        if not cut and len(submitted) != len(self.modes):
            found.append(f"{len(submitted)} of {len(self.modes)} submitted")
        for name in sorted(submitted | {name for name in jobs if name.startswith(f"{self.runs}/")}):
            path = Path(name)
            own = jobs.get(name, set())
            if len(own) != 1:
                found.append(f"{name}: jobs {sorted(own) or 'none'}")
                continue
            record = json.loads((path / "submit.json").read_text())
            outcome = path / "outcome.json"
            ended = json.loads(outcome.read_text()) if outcome.exists() else {"outcome": "none", "job_id": None}
            known = (
                record["job_id"] or ended["job_id"]
            )  # a submit that is killed behind sbatch leaves the number to the job
            if {known} != own or comments[record["comment"]] != own:
                found.append(f"{name}: the records say {known}, Slurm {sorted(own)}")
            said = ended["outcome"]
            case = re.search(r'"NLP_BENCH_STUB": "([^"]*)"', (path / "run.json").read_text())
            if case is None or said != MODES[case.group(1)]:
                found.append(f"{name}: outcome {said} of {case and case.group(1)}")
        return found


def jobs_by_folder(slurm: Sandbox) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return all jobs that Slurm has ever had, by folder and by comment."""
    jobs: dict[str, set[str]] = {}
    comments: dict[str, set[str]] = {}
    shown = slurm("squeue", "--states=all", "--noheader", "--format=%i %k %Z")
    for number, comment, folder in (line.split(maxsplit=2) for line in shown.splitlines()):
        jobs.setdefault(folder, set()).add(number)
        comments.setdefault(comment, set()).add(number)
    ended = (slurm.folder / "log/jobcomp.log").read_text(errors="replace")
    for number, folder in re.findall(r"^JobId=(\d+) .*?\bWorkDir=(.*?) (?=[A-Z]\w+=)", ended, re.MULTILINE):
        jobs.setdefault(folder, set()).add(number)
    return jobs, comments


def one(slurm: Sandbox, seed: int, span_s: float) -> tuple[str, list[str], Trial]:
    """Carry out one trial; return its kind, what is wrong, and the trial."""
    dice = random.Random(seed)  # noqa: S311
    with tempfile.TemporaryDirectory(prefix="nlpb-") as folder:
        trial = Trial(slurm=slurm, folder=Path(folder).resolve(), dice=dice, span_s=span_s, is_group=seed % 2 == 0)
        trial.prepare()
        wanted = dice.choice((1, 1, 2, 3))
        for _ in range(TRIES):
            if trial.kills >= wanted or trial.is_cut():
                break
            trial.kill()
        if not trial.kills:
            return "missed", ["JUBE was always faster than the kill"], trial
        cut = trial.is_cut()
        if cut:
            said = trial.call("jube", "continue", str(trial.runs), "--id", "last", "--hide-animation")
            print(
                f"  seed {seed}: JUBE says {(said.stdout + said.stderr).strip()[-200:]!r} ({said.returncode})",
                flush=True,
            )
            for name, path in trial.folders().items():
                if (path / "submit.json").exists():  # what watch asks for where the submission itself was cut off
                    trial.call(*PYTHON, "submit", "--run", f"{name}/run.json", "--run-dir", name)
            trial.call(*PYTHON, "watch", str(trial.runs), "--every", "1", "--max-hours", "0.05")
        word = "" if cut else trial.go_on(unattended=dice.random() < 0.5)
        cut = cut or trial.is_cut()
        wrong = trial.faults(word, cut=cut)
        return ("cut" if cut else "whole"), wrong, trial


def calibrated(slurm: Sandbox) -> float:
    """Return the seconds of an undisturbed `jube run`; it must come to its end by itself."""
    with tempfile.TemporaryDirectory(prefix="nlpb-") as folder:
        trial = Trial(slurm=slurm, folder=Path(folder), dice=random.Random(0), span_s=0.0, is_group=False)  # noqa: S311
        trial.prepare()
        begin = time.monotonic()
        trial.call(*trial.words())
        span_s = 0.9 * (time.monotonic() - begin)  # without the start
        wrong = trial.faults(trial.go_on(unattended=False), cut=False)
    if wrong:
        sys.exit(f"without any kill: {wrong}")
    return span_s


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=50, help="JUBE runs (default 50)")
    parser.add_argument("--seed", type=int, default=0, help="of the first (default 0)")
    parser.add_argument("--parallel", type=int, default=3, help="at the same time (default 3)")
    options = parser.parse_args(words)
    begin, lock, kinds = time.perf_counter(), threading.Lock(), Counter[str]()
    with sandbox(4) as slurm:
        slurm.environment |= {
            "NLP_BENCH_VENV": sys.prefix, "NLP_BENCH_ROOT": str(CHECKOUT), "PYTHONPATH": str(CHECKOUT / "src"),
        }  # fmt: skip
        span_s = calibrated(slurm)

        def carry_out(seed: int) -> None:
            kind, wrong, trial = one(slurm, seed, span_s)
            with lock:
                kinds[kind] += 1
                kinds["failed"] += bool(wrong)
                kinds["kills"] += trial.kills
                kinds["anew"] += trial.anew
                kinds["points"] += len(trial.modes)
                whom = "JUBE and all below it" if trial.is_group else "JUBE alone"
                print(
                    f"  seed {seed}: {trial.kills} kills of {whom}, {kind}: {'; '.join(wrong) or 'one job each'}",
                    flush=True,
                )

        pool = ThreadPoolExecutor(options.parallel)
        try:
            list(pool.map(carry_out, range(options.seed, options.seed + options.num)))
        finally:
            pool.shutdown(cancel_futures=True)
    print(
        f"exactly once: {options.num} JUBE runs with {kinds['points']} workpackages, {kinds['kills']} kills -9, {kinds['failed']} failed; "
        f"{kinds['anew']} more before JUBE's first file; {kinds['cut']} with JUBE's file cut (jobs still exactly one, "
        f"outcomes from our own records), {time.perf_counter() - begin:.0f} s"
    )
    return int(kinds["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
