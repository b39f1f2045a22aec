"""The job script: golden files for 13 and 175, each knob, odd paths, the shell's own check.

To write the golden files anew after a wanted change: NLP_BENCH_GOLDEN=write pytest tests/launch/test_script.py
"""

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run
from nlp_bench.config.system import Container, Software
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch.script import job_script

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = (ROOT / "jube/submit.job.in").read_text(encoding="utf-8")
GOLDEN = Path(__file__).parent / "golden"


def offline(model: str, system: str, **choices: object) -> Run:
    return resolve(Request(model=model, system=system, **choices), ask_scheduler=False)  # type: ignore[arg-type]


def text(run: Run, run_dir: str = "/runs/1", template: str = TEMPLATE) -> str:
    return job_script(run, template=template, root=Path("/nlp-bench"), run_dir=Path(run_dir), python="/venv/bin/python")


@pytest.mark.parametrize("system", ["juwels-booster", "slurm-sandbox"])
@pytest.mark.parametrize("model", ["13", "175"])
def test_golden(model: str, system: str) -> None:
    path = GOLDEN / f"{model}_{system}.job"
    rendered = text(offline(model, system))
    if os.environ.get("NLP_BENCH_GOLDEN") == "write":
        path.write_text(rendered)
    assert rendered == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("choices", "line"),
    [
        ({"queue": "devel"}, "#SBATCH --partition=devel"),
        ({"account": "project1"}, "#SBATCH --account=project1"),
        ({"timelimit": "1-02:00:00"}, "#SBATCH --time=1-02:00:00"),
        ({"exclusive": True}, "#SBATCH --exclusive"),
        ({"gres": "gpu:a100:4"}, "#SBATCH --gres=gpu:a100:4"),
        ({"mem": "0"}, "#SBATCH --mem=0"),
        ({"cpus_per_task": 12}, "#SBATCH --cpus-per-task=12"),
        ({"dependency": "singleton"}, "#SBATCH --dependency=singleton"),
        ({"job_name_prefix": "acceptance-"}, "#SBATCH --job-name=acceptance-175"),
        ({"sbatch_args": ("--reservation=r1", "--switches=1")}, "#SBATCH --reservation=r1\n#SBATCH --switches=1"),
    ],
)
def test_every_knob_reaches_the_script(choices: dict[str, object], line: str) -> None:
    assert f"\n{line}\n" in text(offline("175", "juwels-booster", **choices))


def test_srun_arguments_come_before_the_program() -> None:
    line = starter(text(offline("175", "juwels-booster", srun_args=("--cpu-bind=none,v",))))
    assert line.index("--cpu-bind=none,v") < line.index("/venv/bin/python")


def starter(script: str) -> list[str]:
    return shlex.split(next(line for line in script.splitlines() if line.endswith(" &")).removesuffix(" &"))


def test_pyxis_image() -> None:
    run = offline("175", "juwels-booster", container_image="registry/image:1")
    words = starter(text(run))
    assert "--container-image=registry/image:1" in words
    assert words[words.index("python3") :] == ["python3", "-m", "nlp_bench", "launch", "/runs/1"]


def test_apptainer_image() -> None:
    run = offline("175", "juwels-booster")
    container = Container(image="/images/nlp.sif", runtime="apptainer", mounts=("/scratch:/scratch",))
    words = starter(text(replace(run, system=replace(run.system, container=container))))
    begin = words.index("apptainer")
    assert words[begin : begin + 4] == ["apptainer", "exec", "--nv", "--bind"]
    assert words[begin + 4].endswith(",/scratch:/scratch")


def test_modules_are_quoted() -> None:
    run = offline("tiny", "local")
    odd = replace(run.system, software=Software(modules=("GCC/12; rm -rf x",)), environment={"A": "b 'c' $(d)"})
    lines = text(replace(run, system=odd)).splitlines()
    assert "module load 'GCC/12; rm -rf x'" in lines
    assert shlex.split(next(line for line in lines if line.startswith("export A=")))[1] == "A=b 'c' $(d)"


@pytest.mark.parametrize("name", ["a 0", "a'; echo foo", 'a"=0"', "a$(b)", "ä", "a\\b"])
def test_odd_run_folder_stays_one_word(name: str) -> None:
    script = text(offline("tiny", "local"), run_dir=f"/runs/{name}")
    assert starter(script)[-1] == f"/runs/{name}"
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_odd_word_in_a_directive_is_refused() -> None:
    with pytest.raises(NlpBenchError, match=r"launch\.queue: 'a b' cannot stand in a #SBATCH line"):
        text(offline("175", "juwels-booster", queue="a b"))


def test_unknown_token_of_a_template_is_refused() -> None:
    with pytest.raises(NlpBenchError, match="unknown token #NODE#"):
        text(offline("tiny", "local"), template="echo #NODE#\n")


@pytest.mark.parametrize("system", ["juwels-booster", "local"])
def test_shellcheck_is_content(system: str, tmp_path: Path) -> None:
    path = tmp_path / "submit.job"
    path.write_text(text(offline("tiny", system)))
    done = subprocess.run(["shellcheck", "-x", str(path)], capture_output=True, text=True, check=False)
    assert done.stdout == ""
