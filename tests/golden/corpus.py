"""What users see, kept: the output of many commands at one commit, to be compared after every change of the inside.

python tests/golden/corpus.py            say what differs; exit code 1 where anything does
python tests/golden/corpus.py --write    take the outputs of now as the expected ones (a commit that does so says why)
python tests/golden/corpus.py NAME ...   these cases only
"""

import argparse
import contextlib
import difflib
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = Path(__file__).parent / "expected"
sys.path[:0] = [path for path in (str(ROOT / "tests"), str(ROOT / "src")) if path not in sys.path]

from support.fixtures import fixtures  # noqa: E402
from support.published import write_run  # noqa: E402
from support.repeated import write_runs  # noqa: E402
from support.samples import OPTION, samples  # noqa: E402
from support.series import write_series_run  # noqa: E402

from nlp_bench.cli.main import main  # noqa: E402

CHANGES = (
    (re.compile(r"\b[0-9a-f]{64}\b|\b[0-9a-f]{40}\b(?:\+changes)?"), "HASH"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)"), "TIME"),
    (re.compile(r"\d+ files, \d+ bytes|\d+ hashes"), "FILES"),
    (re.compile(r"(?<=bundle says )[{\[].*\.\.\.(?=, the log gives)"), "..."),  # cut in mid-number
    (re.compile(r".*checkout has uncommitted changes.*\n"), ""),
    (re.compile(r"'([^' ]*CHECKOUT[^' ]*)'"), r"\1"),
    (re.compile(r"CHECKOUT/\.venv[^/ ]*/bin/python\b|'PYTHON'"), "PYTHON"),
    (re.compile(r"(?<=--job-name=nlp-bench-13-)[0-9a-f]{6}\b"), "RANDOM"),
    (re.compile(r"^(files\[\d+\]\.size)=\d+$", re.MULTILINE), r"\1=SIZE"),
    (re.compile(r'(?<=src=")data:image/svg\+xml,[^"]+'), "PLOT"),  # which another version of matplotlib draws otherwise
)
"""What differs from run to run, or between two commits that print the same."""
LONG_NUMBER = re.compile(r"(?<![\w.])\d+\.\d{9,}(?:e[+-]?\d+)?(?![\w.])")
"""A number with digits that depend on the processor."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One file of expected output."""

    name: str
    """Its name, which is that of the file."""
    make: Callable[[Path], Iterator[str]]
    """Yields its text, working in a new folder."""
    needs: Callable[[], bool] = lambda: True
    """Whether it can be made here."""


def ask(folder: Path, *words: str) -> str:
    """Return the command, its exit code and both streams, without what differs from run to run."""
    out, err = io.StringIO(), io.StringIO()
    here = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status: object = main([*words])
            except SystemExit as end:
                status = end.code
    finally:
        os.chdir(here)
    said = [f"$ nlp-bench {' '.join(words)}", f"exit code {status}", out.getvalue().rstrip(), *_marked(err.getvalue())]
    return still("\n".join(line for line in said if line), folder)


def _marked(stderr: str) -> list[str]:
    return [f"! {line}" for line in stderr.rstrip().splitlines()]


def still(text: str, folder: Path) -> str:
    """Return `text` without folders of this machine, hashes and times."""
    for path, word in ((folder, "FOLDER"), (ROOT, "CHECKOUT"), (samples_folder(), "SAMPLES")):
        text = text.replace(str(path), word)
    text = text.replace(sys.executable, "PYTHON")
    for pattern, word in CHANGES:
        text = pattern.sub(word, text)
    return LONG_NUMBER.sub(lambda found: f"{float(found[0]):.9g}", text)


def samples_folder() -> Path:
    """Return the folder of the real logs."""
    found = samples()
    return found[0].path.parent if found else ROOT / "no samples"


def flat(value: object, name: str = "") -> Iterator[str]:
    """Yield a line `path=value` for each number and word of JSON that is there; what is missing has no line."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from flat(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from flat(part, f"{name}[{number}]")
    elif value is not None:
        yield f"{name}={json.dumps(value)}"


def of_json(folder: Path, *words: str) -> str:
    """Return what a command prints as JSON, a line for each value."""
    printed = ask(folder, *words)
    command, status, rest = printed.split("\n", 2)
    said = [line for line in rest.splitlines() if line.startswith("! ")]
    value = json.loads("\n".join(line for line in rest.splitlines() if not line.startswith("! ")))
    return "\n".join([command, status, *flat(value), *said])


def fixture_logs(folder: Path) -> Iterator[str]:
    """Yield the record of each fixture of a dialect, as it is and with each set of options of its cases."""
    for name, fixture in fixtures():
        (folder / f"{name}.log").write_text(fixture["log"], encoding="utf-8")
        asked: list[dict[str, object]] = [{}, *(case.get("options", {}) for case in fixture["case"])]
        for options in [one for number, one in enumerate(asked) if one not in asked[:number]]:
            words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", str(value))]
            yield of_json(folder, "report", f"{name}.log", *words, "--format", "json")


EVIDENCE = re.compile(r"^(\S*\.evidence=)(.*)$", re.MULTILINE)


def sample_logs(folder: Path) -> Iterator[str]:
    """Yield the record of each real log, with the options that it lacks."""
    for sample in samples():
        given = sample.overrides()
        values = {
            "seq_length": given.sequence_length,
            "global_batch_size": given.global_batch_size,
            "gpu_count": given.num_gpus,
        }
        words = [word for key, value in values.items() if value for word in (OPTION[key], str(value))]
        shown = of_json(folder, "report", str(sample.path), *words, "--format", "json")
        yield EVIDENCE.sub(lambda found: found[1] + hashlib.sha256(found[2].encode()).hexdigest()[:12], shown)


def sample_forms(folder: Path) -> Iterator[str]:
    """Yield all real logs together in each form; by a short name, because a long path breaks lines elsewhere."""
    (folder / "samples").symlink_to(samples_folder())
    for form in ("table", "csv"):
        yield ask(folder, "report", "samples", "--format", form)


def runs_of_ours(folder: Path) -> Iterator[str]:
    """Yield the measurement and the reports of finished, failed and cut runs."""
    write_run(folder / "published")
    write_run(folder / "failed", outcome="FAILED", reasons=["rank 3: ValueError"], exit_status=1)
    write_run(folder / "cut")
    log = folder / "cut/job.out"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:3]))
    write_series_run(folder / "long")
    write_series_run(folder / "memory", outcome="OUT_OF_MEMORY", reasons=("CUDA out of memory on rank 3",))
    for name in ("published", "failed", "cut", "long", "memory"):
        yield ask(folder, "measure", name)
        for made in ("metrics.txt", "result.json"):
            yield f"{name}/{made}\n" + still((folder / name / made).read_text(), folder)
    for form in ("table", "csv", "markdown", "html"):
        yield ask(folder, "report", ".", "--format", form)
    yield ask(folder, "report", "published", "--explain", "--limit", "560", "--rules", "jupiter-nlp")
    for limit in ("540", "560", "590"):
        yield ask(folder, "report", ".", "--limit", limit)


def judged(folder: Path) -> Iterator[str]:
    """Yield comparisons, the history, sweeps and scaling of runs with known rates."""
    rates = (65000.0, 65600.0, 64700.0, 65300.0, 65100.0)
    write_runs(folder / "a", *rates)
    write_runs(folder / "b", *(1.03 * rate for rate in rates), seed=10, tensor_model_parallel_size=2)
    write_runs(folder / "c", *(0.93 * rate for rate in rates), seed=20)
    write_runs(folder / "other", *rates, seed=30, hidden_size=5120)
    for b in ("b", "c", "other", "a"):
        for form in ("table", "json", "markdown"):
            yield ask(folder, "compare", "a", b, "--allow-measured", "--format", form)
    yield ask(folder, "compare", "a", "c", "--allow-measured", "--gate", "3")
    for number in range(12):
        tp, pp = 2 ** (number // 4), 1 + number // 2 % 2
        write_series_run(folder / f"sweep/{number}", nodes=2, tp=tp, pp=pp, mean_s=1 + 0.1 * (tp % 3), seed=number)
    for nodes in (1, 2, 4, 8):
        write_series_run(folder / f"sizes/{nodes}", nodes=nodes, mean_s=1.1**nodes / nodes, seed=nodes)
    for form in ("table", "json", "csv", "markdown"):
        yield ask(folder, "report", "sweep", "--sweep", "--format", form)
        yield ask(folder, "report", "sizes", "--scaling", "--format", form)
    yield ask(folder, "history", "--file", "h.sqlite3", "add", "sweep", "--name", "sweep")
    for action in ("list", "trend", "variance", "export"):
        yield ask(folder, "history", "--file", "h.sqlite3", action)


OF_THE_CHECKOUT = re.compile(r"^(?:nlp_bench|made_by)\.(?:patch|untracked)=|^num_files=|^remarks\[")
"""What a manifest says of uncommitted changes of nlp-bench itself."""


def bundles(folder: Path) -> Iterator[str]:
    """Yield the manifest of a bundle and what is found in a whole and in a changed one."""
    write_run(folder / "run")
    yield ask(folder, "bundle", "run", "--output", "evidence")
    manifest = json.loads((folder / "evidence/manifest.json").read_text())
    manifest["files"] = [file for file in manifest["files"] if "software/" not in file["path"]]
    yield still("\n".join(line for line in flat(manifest) if not OF_THE_CHECKOUT.search(line)), folder)
    yield ask(folder, "verify", "evidence")
    log = folder / "evidence/runs/001/job.out"
    log.write_text(log.read_text().replace("5.3551", "4.3551"))
    yield ask(folder, "verify", "evidence")
    found = of_json(folder, "verify", "evidence", "--format", "json").splitlines()
    yield "\n".join(line for line in found if not OF_THE_CHECKOUT.search(line))


def stems(kind: str) -> list[str]:
    """Return the names of benchmark/KIND."""
    return sorted(path.stem for path in (ROOT / "benchmark" / kind).glob("*.toml"))


def resolved(folder: Path) -> Iterator[str]:
    """Yield run.json of every model and every system."""
    for model in stems("models"):
        yield from _run_json(folder, model, "dgx-h100")
    for system in stems("systems"):
        yield from _run_json(folder, "175", system)
        yield from _run_json(folder, "13", system, "--tp", "1", "--recompute", "full", "--nodes", "4")


def _run_json(folder: Path, model: str, system: str, *words: str) -> Iterator[str]:
    yield ask(
        folder, "check", "--model", model, "--system", system, "--offline", "--mock-data", *words, "--output", "out"
    )
    path = folder / "out/run.json"
    if path.exists():
        yield "\n".join(flat(json.loads(still(path.read_text(), folder))))
        path.unlink()


def scripts(folder: Path) -> Iterator[str]:
    """Yield job scripts."""
    knobs = (
        [], ["--queue", "devel", "--account", "p", "--timelimit", "90min", "--exclusive"],
        ["--chain", "3", "--save", "/ckpt"], ["--retries", "2", "--notice", "120", "--max-pending", "600"],
        ["--container-image", "/images/a.sqsh"], ["--trainer", "megatron-lm"], ["--sbatch-arg=--wckey=w", "--srun-arg=--cpu-bind=none"],
    )  # fmt: skip
    for system in ("juwels-booster", "dgx-h100", "slurm-sandbox"):
        for words in knobs:
            yield ask(folder, "submit", "--model", "13", "--system", system, "--mock-data", *words, "--print")


REFUSED = (
    ["--tp", "3"], ["--pp", "7"], ["--nodes", "0"], ["--tp", "-1"], ["--gas", "0"], ["--micro-batch-size", "x"], ["--tp", "8", "--pp", "16"],
    ["--global-batch-size", "97"], ["--model", "14"], ["--model", "175", "--tp", "16"], ["--system", "nowhere"], ["--vpp", "3"], ["--cp", "3"],
    ["--iterations", "0"], ["--log-interval", "-5"], ["--timelimit", "soon"], ["--recompute", "most"], ["--nonsense"], ["--kernels", "fast"],
    ["--first-layers", "40"], ["--sequence-length", "2k"], ["--nheads", "7"], ["--until", "200%"], ["--tags", "175", "13"],
    ["--sbatch-arg=--array=0-2"], ["--chain", "2"], ["--data-path", "/nowhere"], ["--gpus-per-node", "3"], ["--repeats", "0"], ["--launcher", "pbs"],
)  # fmt: skip
"""Options that `check` refuses, most of them one by one."""


def refused(folder: Path) -> Iterator[str]:
    """Yield the words that refuse a run, a log and a page of points."""
    for words in REFUSED:
        given = [] if "--model" in words or "--tags" in words else ["--model", "13"]
        system = [] if "--system" in words else ["--system", "juwels-booster"]
        yield ask(folder, "check", *given, *system, "--offline", *words)
    (folder / "empty.log").write_text("")
    (folder / "text.log").write_text("nothing of a training\n" * 20)
    for words in (
        ["report"],
        ["report", "nowhere.log"],
        ["report", "empty.log"],
        ["report", "text.log"],
        ["report", "--format", "pdf", "text.log"],
        ["compare", "text.log", "empty.log"],
        ["verify", "text.log"],
        ["measure", "nowhere"],
        ["plan", "--model", "nothing"],
        ["plan", "predict", "text.log"],
        ["history", "show", "1", "--file", "none.sqlite3"],
        ["sumbit"],
    ):
        yield ask(folder, *words)


def plans(folder: Path) -> Iterator[str]:
    """Yield rankings, a solved size and the predictions of the published points."""
    for model, system, nodes in (
        ("175", "juwels-booster", 96), ("13", "juwels-booster", 8), ("llama_8b", "dgx-h100", 4), ("gpt_20b", "aws-p5", 8),
        ("t5_11b", "dgx-a100", 4), ("mt5_3b", "jupiter-booster", 4), ("bert_large", "dgx-h100", 1),
    ):  # fmt: skip
        yield ask(folder, "plan", "--model", model, "--system", system, "--nodes", str(nodes))
    for form in ("json", "csv", "markdown"):
        yield ask(folder, "plan", "--model", "175", "--system", "juwels-booster", "--nodes", "96", "--format", form)
    yield ask(folder, "plan", "--model", "175", "--system", "juwels-booster", "--nodes", "512", "--time", "560")
    yield ask(folder, "plan", "--model", "13", "--system", "juwels-booster", "--nodes", "8", "--tp", "2", "--explain")
    points = ROOT / "reports/reference/published_points/points.csv"
    yield ask(folder, "plan", "predict", str(points))


def rehearsals(folder: Path) -> Iterator[str]:
    """Yield rehearsals of the first and the last rank."""
    for words in (
        ["--model", "llama_8b", "--system", "dgx-h100", "--nodes", "2", "--tp", "4", "--pp", "2", "--vpp", "2", "--gas", "4"],
        ["--model", "t5_220m", "--system", "dgx-a100", "--nodes", "1", "--tp", "2"],
        ["--model", "bert_large", "--system", "dgx-a100", "--nodes", "1"],
    ):  # fmt: skip
        found = of_json(folder, "rehearse", *words, "--ranks", "0,last", "--mock-data", "--format", "json")
        yield re.sub(
            r"(?m)\n! nlp-bench: rehears(?:ing|ed) .*$", "", found
        )  # said where a busy machine takes 3 s and more


OPTION_NAME = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def options(folder: Path) -> Iterator[str]:
    """Yield the names of every option of every command."""
    for command in [
        "init",
        "check",
        "build",
        "data",
        "submit",
        "launch",
        "sync",
        "watch",
        "measure",
        "report",
        "compare",
        "history",
        "bundle",
        "verify",
        "export",
        "plan",
        "rehearse",
        "doctor",
        "completion",
    ]:
        text = ask(folder, command, "--help")
        yield f"{command}: {' '.join(sorted(set(OPTION_NAME.findall(text))))}"


CASES = (
    Case(name="options", make=options),
    Case(name="fixtures", make=fixture_logs),
    Case(name="samples", make=sample_logs, needs=lambda: bool(samples())),
    Case(name="samples_forms", make=sample_forms, needs=lambda: bool(samples())),
    Case(name="runs", make=runs_of_ours),
    Case(name="judged", make=judged),
    Case(name="bundles", make=bundles),
    Case(name="run_json", make=resolved),
    Case(name="scripts", make=scripts),
    Case(name="refused", make=refused),
    Case(name="plans", make=plans),
    Case(name="rehearsals", make=rehearsals),
)


def made(case: Case) -> str:
    """Return the output of a case as it is now."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        variables = {"HOME": str(folder), "TZ": "UTC", "NO_COLOR": "1", "COLUMNS": "200", "NLP_BENCH_ROOT": str(ROOT)}
        variables["NLP_BENCH_VENV"] = str(folder)
        before = dict(os.environ)
        os.environ.update(variables)
        try:
            return "\n\n".join(case.make(folder)) + "\n"
        finally:
            os.environ.clear()
            os.environ.update(before)


def difference(case: Case, now: str) -> str:
    """Return how the output differs from the expected one, at most 200 lines of it; empty where it does not."""
    path = EXPECTED / f"{case.name}.txt"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), "expected", "now", lineterm="", n=1)
    return "\n".join(line for line, _ in zip(lines, range(200), strict=False))


def run() -> int:
    """Compare, or write, the cases that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    status = 0
    for case in CASES:
        if (asked.names and case.name not in asked.names) or not case.needs():
            continue
        now = made(case)
        if asked.write:
            (EXPECTED / f"{case.name}.txt").write_text(now, encoding="utf-8")
        elif found := difference(case, now):
            status = 1
            print(f"== {case.name}\n{found}")
    return status


if __name__ == "__main__":
    sys.exit(run())
