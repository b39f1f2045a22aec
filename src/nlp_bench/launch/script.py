"""The job script: a pure function from a run to the text of submit.job, out of the template jube/submit.job.in."""

import re
import shlex
from pathlib import Path

from nlp_bench.config.run import Run
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.launch.container import container_words
from nlp_bench.launch.environment import software_lines

TOKEN = re.compile(r"#([A-Z][A-Z_]*)#")


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
    A `#SBATCH` line whose token has no value disappears, a token with several lines repeats its line.
    Raises NlpBenchError when the template holds a token that is not known.
    """
    tokens = _directives(run) | _commands(run, root, run_dir, python)
    if code:
        tokens["ROOT"], tokens["PYTHONPATH"] = [shlex.quote(str(code))], [shlex.quote(str(code / "src"))]
        tokens["BUILDS"] = [f"export NLP_BENCH_BUILD_DIR={shlex.quote(str(builds or root / 'build'))}"]
    lines: list[str] = []
    for line in template.splitlines():
        lines += _render(line, tokens)
    if run.launch.launcher == "local":
        lines = [line for line in lines if not line.startswith("#SBATCH ")]
    return "\n".join(lines) + "\n"


def _render(line: str, tokens: dict[str, list[str]]) -> list[str]:
    names = TOKEN.findall(line)
    for name in names:
        if name not in tokens:
            raise NlpBenchError(f"submit.job.in: unknown token #{name}# (known: {', '.join(sorted(tokens))})")
    if not names:
        return [line]
    if len(names) == 1 and (line.startswith("#SBATCH ") or line == f"#{names[0]}#"):
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


def _directives(run: Run) -> dict[str, list[str]]:
    slurm, per_node = run.system.slurm, run.parallel.gpus_per_node
    gres = f"{slurm.gres}:{per_node}" if slurm.gres and ":" not in slurm.gres else slurm.gres
    values = {
        "JOB_NAME": run.launch.job_name,
        "QUEUE": run.launch.queue,
        "ACCOUNT": run.launch.account,
        "NODES": run.parallel.nodes,
        "TASKS_PER_NODE": 1,
        "CPUS_PER_TASK": slurm.cpus_per_task,
        "GRES": gres,
        "GPUS_PER_NODE": per_node if slurm.gpus_per_node_option else None,
        "MEM": slurm.mem,
        "HINT": slurm.hint,
        "TIMELIMIT": run.launch.timelimit,
        "DEPENDENCY": slurm.dependency,
        "NOTICE": f"B:USR1@{run.limits.notice_s}" if run.limits.notice_s else None,
    }
    tokens = {
        name: [] if value in {None, ""} else [_directive_word(name, str(value))] for name, value in values.items()
    }
    tokens["EXCLUSIVE"] = ["--exclusive"] if slurm.exclusive else []
    tokens["FURTHER_OPTIONS"] = [_directive_word("sbatch_args", word) for word in slurm.sbatch_args]
    return tokens


def _directive_word(name: str, value: str) -> str:
    if not re.fullmatch(r"[\w.,:;=+@%/\[\]*()-]+", value):
        raise UsageError(
            f"launch.{name.lower()}: {value!r} cannot stand in a #SBATCH line; use letters, digits and . , : = + @ % / [ ] ( ) -"
        )
    return value


def _commands(run: Run, root: Path, run_dir: Path, python: str) -> dict[str, list[str]]:
    slurm, parallel = run.system.slurm, run.parallel
    here = shlex.join([python, "-m", "nlp_bench"])
    inside = run.system.container.python if run.system.container.image else python
    starter = []
    if run.launch.launcher == "slurm":
        starter = [
            "srun",
            "--kill-on-bad-exit=1",
            f"--nodes={parallel.nodes}",
            f"--ntasks={parallel.nodes}",
            "--ntasks-per-node=1",
        ]
        starter += [f"--cpus-per-task={slurm.cpus_per_task}"] if slurm.cpus_per_task else []
        starter += slurm.srun_args
    starter += container_words(run, root, run_dir)
    title = f"model {run.model.name}, tensor {parallel.tensor} x pipeline {parallel.pipeline} x data {parallel.data}, global batch"
    return {
        "TITLE": [f"{title} {run.batch.global_batch_size}"],
        "NLP_BENCH": [here],
        "LAUNCH": [shlex.join([inside, "-m", "nlp_bench"])],
        "STARTER": [shlex.join(starter)] if starter else [],
        "RUN_DIR": [shlex.quote(str(run_dir))],
        "ROOT": [shlex.quote(str(root))],
        "PYTHONPATH": [shlex.quote(str(root / "src"))],
        "BUILDS": [],
        "SOFTWARE": _software(run),
    }
