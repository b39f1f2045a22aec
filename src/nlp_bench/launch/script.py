"""The job script: a pure function from a run to the text of submit.job, out of the template jube/submit.job.in."""

import re
import shlex
from pathlib import Path

from nlp_bench.config.run import Run
from nlp_bench.config.scheduler import get_scheduler
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch.container import container_words
from nlp_bench.launch.environment import software_lines

TOKEN = re.compile(r"#([A-Z][A-Z_]*)#")
OPTIONS = "#SBATCH "
"""Beginning of the template's lines of options, which are those of one scheduler."""


def job_script(  # noqa: PLR0913  # one fact each
    run: Run,
    *,
    template: str,
    root: Path,
    run_dir: Path,
    python: str,
    code: Path | None = None,
    builds: Path | None = None,
) -> str:
    """Return the text of the job script; nothing outside the arguments is looked at.

    `code` is what the job imports in place of the checkout, which still holds the compiled kernels, in `builds`.
    A line of options whose token has no value disappears, a token with several values repeats its line; the options of other
    schedulers than the run's are left out.
    Raises NlpBenchError when the template holds a token that is not known.
    """
    scheduler = get_scheduler(run.launch.launcher)
    tokens = scheduler.tokens(run) | _commands(run, root, run_dir, python)
    if code:
        tokens["ROOT"], tokens["PYTHONPATH"] = [shlex.quote(str(code))], [shlex.quote(str(code / "src"))]
        tokens["BUILDS"] = [f"export NLP_BENCH_BUILD_DIR={shlex.quote(str(builds or root / 'build'))}"]
    lines: list[str] = []
    for line in template.splitlines():
        if not line.startswith(OPTIONS) or line.startswith(scheduler.directive or " "):
            lines += _render(line, tokens)
    return "\n".join([*lines[:1], *scheduler.header(run), *lines[1:]]) + "\n"


def _render(line: str, tokens: dict[str, list[str]]) -> list[str]:
    names = TOKEN.findall(line)
    for name in names:
        if name not in tokens:
            raise NlpBenchError(f"submit.job.in: unknown token #{name}# (known: {', '.join(sorted(tokens))})")
    if not names:
        return [line]
    if len(names) == 1 and (line.startswith(OPTIONS) or line == f"#{names[0]}#"):
        return [line.replace(f"#{names[0]}#", value) for value in tokens[names[0]]]
    text = TOKEN.sub(lambda found: " ".join(tokens[found.group(1)]), line)
    return [
        text.replace("   ", "  ", 1) if line.startswith("  #STARTER#") else text
    ]  # without a starter its blank goes too


def _software(run: Run) -> list[str]:
    lines = software_lines(run.system)
    return (
        ["set +u  # the shell functions of environment modules read unset variables", *lines, "set -u"] if lines else []
    )


def _commands(run: Run, root: Path, run_dir: Path, python: str) -> dict[str, list[str]]:
    parallel, scheduler = run.parallel, get_scheduler(run.launch.launcher)
    here = shlex.join([python, "-m", "nlp_bench"])
    inside = run.system.container.python if run.system.container.image else python
    starter = [*scheduler.starter(run), *container_words(run, root, run_dir)]
    title = f"model {run.model.name}, tensor {parallel.tensor} x pipeline {parallel.pipeline} x data {parallel.data}, global batch"
    return {
        "TITLE": [f"{title} {run.batch.global_batch_size}"],
        "NLP_BENCH": [here],
        "LAUNCH": [shlex.join([inside, "-m", "nlp_bench"])],
        "JOB_ID": [scheduler.job_id_variable],
        "RESTARTS": [scheduler.restarts_variable],
        "STARTER": [shlex.join(starter)] if starter else [],
        "RUN_DIR": [shlex.quote(str(run_dir))],
        "ROOT": [shlex.quote(str(root))],
        "PYTHONPATH": [shlex.quote(str(root / "src"))],
        "BUILDS": [],
        "SOFTWARE": _software(run),
    }
