"""The real JUBE, driven as a person drives it."""

import csv
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

SMALL = {"sequence_length": "64", "nhidden": "64"}  # parameters that make an iteration of tiny several times as short


class Jube:
    """The real jube command in one working folder, with a bound on each call."""

    def __init__(self, checkout: Path, folder: Path, environment: dict[str, str]) -> None:
        self.checkout, self.folder, self.environment = checkout, folder, environment
        self.runs = folder / "runs"

    def __call__(self, *words: str, timeout_s: float = 600) -> str:
        done = subprocess.run(
            [*words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def run(self, *tags: str) -> str:
        yaml = self.checkout / "benchmark/jube/nlp_benchmark.yaml"
        return self(
            "jube", "run", str(yaml), "--hide-animation", "-o", str(self.runs), *(["--tag", *tags] if tags else [])
        )

    def set(self, **values: str) -> None:
        """Set parameters as a person does: in a copy of the checkout, by editing the parameter file.

        A value that begins with `[` is an expression of Python, which JUBE evaluates.
        """
        copy = self.folder / "checkout"
        shutil.copytree(self.checkout, copy, ignore=shutil.ignore_patterns("nlp_benchmark_run", "reports"))
        path = copy / "jube/parameters.yaml"
        text = path.read_text(encoding="utf-8")
        for name, value in values.items():
            mode = "mode: python, " if value.startswith("[") else ""
            text, count = re.subn(rf'name: {name}, _: "(default|0|1)"', f'name: {name}, {mode}_: "{value}"', text)
            assert count == 1, name
        path.write_text(text, encoding="utf-8")
        self.checkout = copy
        self.environment["NLP_BENCH_ROOT"] = str(copy)

    def status(self) -> str:
        return self("jube", "status", str(self.runs), "--id", "last").split()[-1]

    def continue_until_finished(self, bound_s: float) -> None:
        """Go on whenever all jobs that were submitted have ended: each look of JUBE's takes half a second of a processor."""
        end = time.monotonic() + bound_s
        while self.status() == "RUNNING":
            assert time.monotonic() < end, f"still RUNNING after {bound_s} s\n{self.log()}"
            self.wait_for("end of all jobs", self._jobs_have_ended, bound_s)
            self("jube", "continue", str(self.runs), "--id", "last", "--hide-animation")
        assert self.status() == "FINISHED", self.log()

    def _jobs_have_ended(self) -> bool:
        return all(path.with_name("ready").exists() for path in self.runs.rglob("submit.json"))

    def log(self) -> str:
        return "\n".join(
            f"== {p}\n{p.read_text(errors='replace')[-3000:]}"
            for p in sorted(self.runs.rglob("work/*"))
            if p.suffix in {"", ".err", ".log"} and p.is_file()
        )

    def table(self) -> list[dict[str, str]]:
        """Return the rows of `jube result -a` as the csv result has them; the pretty table must be printed too."""
        printed = self("jube", "result", "-a", str(self.runs), "--id", "last")
        assert "Tokens/sec" in printed
        assert "time_to_report_in_seconds" in printed
        path = next(self.runs.rglob("result/result_csv.dat"))
        return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))

    def run_dir(self) -> Path:
        return next(path for path in self.runs.rglob("*_train/work") if path.is_dir())

    def wait_for(self, what: str, condition: Callable[[], bool], bound_s: float) -> None:
        end = time.monotonic() + bound_s
        while not condition():
            assert time.monotonic() < end, f"no {what} after {bound_s} s\n{self.log()}"
            time.sleep(0.2)
