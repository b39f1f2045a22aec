"""The job script: golden files for 13 and 175, each knob, odd paths, the shell's own check.

To write the golden files anew after a wanted change: NLP_BENCH_GOLDEN=write pytest tests/launch/test_script.py
"""

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.command import Cli
from support.following import offline

from nlp_bench.config import catalog
from nlp_bench.config.run import Run
from nlp_bench.config.system import Container, Software
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.launch.script import job_script

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = (ROOT / "jube/submit.job.in").read_text(encoding="utf-8")
GOLDEN = Path(__file__).parent / "golden"


def text(run: Run, run_dir: str = "/runs/1", template: str = TEMPLATE) -> str:
    root = Path("/nlp-bench")
    found = job_script(run, template=template, root=root, run_dir=Path(run_dir), python="/venv/bin/python")
    for data in ("build/data/corpus_text_document", "build/data/cache"):  # the default's, of this checkout
        found = found.replace(shlex.quote(str(ROOT / data)), f"/nlp-bench/{data}")
    return found


def booster(**choices: Any) -> str:
    """Return the script of the 175B model on JUWELS Booster."""
    return text(offline("175", "juwels-booster", **choices))


def packed(image: str, **choices: Any) -> str:
    """Return that script of a run in a container."""
    return text(in_image(offline("175", "juwels-booster"), Container(image=image, **choices)))


def check_golden(name: str, rendered: str) -> None:
    path = GOLDEN / f"{name}.job"
    if os.environ.get("NLP_BENCH_GOLDEN") == "write":
        path.write_text(rendered)
    assert rendered == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("model", "system"),
    [
        ("13", "slurm-sandbox"),
        *(("175", name) for name in ("slurm-sandbox", "dgx-a100", "jupiter-booster", "aws-p5", "slingshot11-gh200")),
    ],
)
def test_golden(model: str, system: str) -> None:
    """Of those systems that tests/golden has no scripts of; the sandbox's are held against what Slurm has of a job."""
    check_golden(f"{model}_{system}", text(offline(model, system)))


IMAGE = Container(
    image="/images/nlp-bench.sqsh",
    mounts=("/scratch:/scratch:ro", "/fast"),
    writable=True,
    entrypoint=False,
    args=("--container-env=PYTHONPATH",),
)


@pytest.mark.parametrize(
    ("name", "container"),
    [
        ("pyxis", IMAGE),
        (
            "apptainer",
            replace(IMAGE, image="/images/nlp-bench.sif", runtime="apptainer", entrypoint=None, args=("--ipc",)),
        ),
    ],
)
def test_golden_of_containers(name: str, container: Container, tmp_path: Path) -> None:
    run = offline("13", "dgx-h100")
    run = replace(run, data=replace(run.data, path="/data/pile_text_document", cache="/cache"))
    rendered = text(in_image(run, container))
    check_golden(f"13_{name}", rendered)
    script = tmp_path / "submit.job"
    script.write_text(rendered)
    assert subprocess.run(["shellcheck", str(script)], capture_output=True, text=True, check=False).stdout == ""


def in_image(run: Run, container: Container) -> Run:
    return replace(run, system=replace(run.system, container=container))


@pytest.mark.parametrize(
    ("choices", "line"),
    [
        ({"queue": "devel"}, "#SBATCH --partition=devel"),
        ({"account": "project1"}, "#SBATCH --account=project1"),
        ({"timelimit": "1-02:00:00"}, "#SBATCH --time=1-02:00:00"),
        ({"exclusive": True}, "#SBATCH --exclusive"),
        ({"gres": "gpu:a100:4"}, "#SBATCH --gres=gpu:a100:4"),
        ({"gres": "gpu:a100"}, "#SBATCH --gres=gpu:a100:4"),
        ({"gres": "gpu:1g.5gb,nvme:1"}, "#SBATCH --gres=gpu:1g.5gb:4,nvme:1"),
        ({"gres": "nvme:1,gpu"}, "#SBATCH --gres=nvme:1,gpu:4"),
        ({"gres": "gpu:8"}, "#SBATCH --gres=gpu:8"),
        ({"gres": "gpu:a100:2,gpu:h100:2"}, "#SBATCH --gres=gpu:a100:2,gpu:h100:2"),
        ({"mem": "0"}, "#SBATCH --mem=0"),
        ({"cpus_per_task": 12}, "#SBATCH --cpus-per-task=12"),
        ({"dependency": "singleton"}, "#SBATCH --dependency=singleton"),
        ({"job_name_prefix": "acceptance-"}, "#SBATCH --job-name=acceptance-175"),
        ({"sbatch_args": ("--reservation=r1", "--switches=1")}, "#SBATCH --reservation=r1\n#SBATCH --switches=1"),
    ],
)
def test_every_knob_reaches_the_script(choices: dict[str, object], line: str) -> None:
    assert f"\n{line}\n" in booster(**choices)


def test_the_name_of_a_model_file_need_not_fit_a_line_for_slurm(tmp_path: Path) -> None:
    """`submit` refused launch.job_name, which nobody had given."""
    model = shutil.copy(catalog.find("models", "13"), tmp_path / "our 13, v2.toml")
    assert "\n#SBATCH --job-name=nlp-bench-our_13,_v2\n" in text(offline(str(model), "juwels-booster"))


@pytest.mark.parametrize("gres", ["gpu:2", "nvme:4,gpu:a100:3"])
def test_fewer_gpus_than_ranks_are_refused_before_the_queue(gres: str) -> None:
    """The job failed on its node."""
    with pytest.raises(
        UsageError, match=r"gres: .* asks for [23] GPUs of each node, where 4 ranks start .* write gpu:4, or gpu alone"
    ):
        booster(gres=gres)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({}, "refused"),
        ({"srun_args": ("--gres=gpu:4",)}, "refused"),  # a step of a job without GPUs
        ({"system": "slurm-sandbox"}, ""),  # of CPUs
        ({"gres": "nvme:1,shard:4"}, ""),
        ({"sbatch_args": ("--gpus-per-node=4",)}, ""),
        ({"sbatch_args": ("--tres-per-node=gres/gpu:4",)}, ""),
        ({"exclusive": True, "srun_args": ("--gres=gpu:4",)}, ""),
        ({"exclusive": True}, "warned"),  # craynetwork:1, say
        ({"sbatch_args": ("--exclusive",)}, "warned"),
    ],
)
def test_resources_without_a_gpu_are_refused_where_nothing_else_asks_for_gpus(
    choices: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """JUBE cuts "gpu:4,nvme:1" into two points: the second one asked for no GPU."""
    run = offline(**{"model": "175", "system": "juwels-booster", "gres": "nvme:1", **choices})
    if said == "refused":
        with pytest.raises(UsageError, match=r"gres: 'nvme:1' asks for no GPU, where 4 ranks .* two points"):
            text(run)
        return
    assert f"\n#SBATCH --gres={run.system.slurm.gres}\n" in text(run)
    assert ("warning: system.slurm.gres: 'nvme:1' asks for no GPU" in capsys.readouterr().err) is (said == "warned")


def test_srun_arguments_come_before_the_program() -> None:
    line = starter(booster(srun_args=("--cpu-bind=none,v",)))
    assert line.index("--cpu-bind=none,v") < line.index("/venv/bin/python")


def starter(script: str) -> list[str]:
    return shlex.split(next(line for line in script.splitlines() if line.endswith(" &")).removesuffix(" &"))


@pytest.mark.parametrize(
    ("of_the_step", "found"),
    [
        (None, "/nlp-bench/src"),
        ("", "/nlp-bench/src"),
        ("/nlp-bench/src", "/nlp-bench/src"),
        ("/nlp-bench/src:/modules", "/nlp-bench/src:/modules"),
        ("/site/lib", "/nlp-bench/src:/site/lib"),
        ("/nlp-bench/src2", "/nlp-bench/src:/nlp-bench/src2"),
    ],
)
def test_the_code_of_the_job_comes_first_whatever_a_site_sets_in_its_steps(of_the_step: str | None, found: str) -> None:
    """A TaskProlog that prints `export PYTHONPATH=...` replaces the script's: the snapshot of --snapshot-code was not used, without a word."""
    words = starter(booster())
    command = [*words[words.index("sh") : words.index("/venv/bin/python")], "printenv", "PYTHONPATH"]
    environment = {"PATH": os.environ["PATH"], **({} if of_the_step is None else {"PYTHONPATH": of_the_step})}
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == f"{found}\n"


def test_pyxis_image() -> None:
    words = starter(booster(container_image="registry/image:1"))
    assert "--container-image=registry/image:1" in words
    assert words[words.index("python3") :] == ["python3", "-m", "nlp_bench", "launch", "/runs/1"]


@pytest.mark.parametrize(
    ("choices", "word"),
    [
        ({}, "--no-container-mount-home"),
        ({"home": True}, "--container-mount-home"),
        ({"writable": True}, "--container-writable"),
        ({"entrypoint": True}, "--container-entrypoint"),
        ({"entrypoint": False}, "--no-container-entrypoint"),
        ({"args": ("--container-remap-root",)}, "--container-remap-root"),
        ({"runtime": "apptainer"}, "--no-home"),
        ({"runtime": "apptainer", "writable": True}, "--writable-tmpfs"),
        ({"runtime": "apptainer", "args": ("--cleanenv",)}, "--cleanenv"),
        ({"runtime": "singularity"}, "--no-home"),
    ],
)
def test_every_wish_for_a_container_is_a_word(choices: dict[str, object], word: str) -> None:
    words = starter(packed("/image", **choices))
    assert word in words[: words.index("python3")]
    if program := choices.get("runtime"):  # its options stand before the image
        assert words.index(str(program)) < words.index(word) < words.index("/image")


def test_without_a_wish_the_entry_point_is_the_sites_choice() -> None:
    assert "container-entrypoint" not in packed("image")
    assert "--home" not in packed("/i", runtime="apptainer", home=True)


def test_a_blend_and_a_checkout_are_mounted() -> None:
    run = offline("13", "dgx-h100")
    data = replace(run.data, path="/a/x", cache="/a/cache", blend=("0.3", "/a/x", "0.7", "/b/y"))
    tuning = replace(run.tuning, trainer="megatron-lm", megatron_lm_repo="/repo")
    run = in_image(replace(run, data=data, tuning=tuning), Container(image="image"))
    script = text(run, run_dir="/nlp-bench/reports/runs/1")
    assert "--container-mounts=/nlp-bench:/nlp-bench,/a:/a,/b:/b,/repo:/repo" in starter(script)


@pytest.mark.parametrize("is_folder", [False, True])
def test_where_links_of_the_data_lead_is_mounted(tmp_path: Path, *, is_folder: bool) -> None:
    """The files were found at the terminal, and not in the container: each is a link, or lies in a folder that is one (build to a scratch)."""
    if is_folder:
        (tmp_path / "data").symlink_to("archive")
    else:
        (tmp_path / "data").mkdir()
        for end in (".bin", ".idx"):
            (tmp_path / f"data/x{end}").symlink_to(f"../archive/y{end}")
    run = offline("13", "dgx-h100")
    run = replace(run, data=replace(run.data, path=f"{tmp_path}/data/x", cache=f"{tmp_path}/data/cache"))
    folders = [f"{folder}:{folder}" for folder in ("/nlp-bench", tmp_path / "data", tmp_path / "archive")]
    script = text(in_image(run, Container(image="image")), run_dir="/nlp-bench/reports/runs/1")
    assert f"--container-mounts={','.join(folders)}" in starter(script)


@pytest.mark.parametrize(
    ("mounts", "run_dir", "said"),
    [
        ((), "/runs/a,b", "/runs/a,b cannot be mounted: a comma or colon divides mounts"),
        ((), "/runs/12:30", "/runs/12:30 cannot be mounted"),
        (("/a:/a,/b:/b",), "/runs/1", "system.container.mounts: '/a:/a,/b:/b' is no absolute path or outside:inside"),
        (("data:/data",), "/runs/1", "'data:/data' is no absolute path"),
    ],
)
def test_mounts_that_would_be_misread_are_refused(mounts: tuple[str, ...], run_dir: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        text(in_image(offline("175", "juwels-booster"), Container(image="image", mounts=mounts)), run_dir=run_dir)


@pytest.mark.parametrize(
    ("image", "runtime"),
    [("nlp-bench.sqsh", "pyxis"), ("images/nlp-bench.sif", "apptainer"), ("./nlp-bench.sqsh", "pyxis")],
)
def test_an_image_file_needs_its_folder(image: str, runtime: str) -> None:
    said = r"system\.container\.image: .* is no absolute path, and the job starts in the run's folder; write its absolute path"
    with pytest.raises(UsageError, match=said):
        packed(image, runtime=runtime)


def test_pyxis_without_slurm_is_refused() -> None:
    """srun's options stood in the job script as the command: the image was said to be missing."""
    with pytest.raises(
        UsageError, match=r"system\.container\.runtime: pyxis is a part of srun, and this run starts without one"
    ):
        offline("tiny", "local", container_image="/a.sqsh")


@pytest.mark.parametrize(
    "image", ["nvcr.io/nvidia/pytorch:24.05-py3", "nvcr.io#nvidia/pytorch:24.05-py3", "ubuntu:22.04"]
)
def test_an_address_without_its_kind_is_a_file_to_apptainer(image: str) -> None:
    with pytest.raises(UsageError, match=r"a file of the job's folder for apptainer; write .* docker://nvcr\.io"):
        packed(image, runtime="apptainer")
    packed(f"docker://{image}", runtime="apptainer")
    packed(image)


def test_an_entry_point_of_apptainer_is_refused() -> None:
    with pytest.raises(UsageError, match=r"system\.container\.entrypoint: `apptainer exec` runs no entry point"):
        Container(image="image", runtime="apptainer", entrypoint=True)


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
        booster(queue="a b")
    with pytest.raises(
        NlpBenchError, match=r"--mail-user=x' cannot stand in a #SBATCH line \(give two options as two\)"
    ):
        booster(sbatch_args=("--mail-type=END --mail-user=x",))


def test_unknown_token_of_a_template_is_refused() -> None:
    with pytest.raises(NlpBenchError, match="unknown token #NODE#"):
        text(offline("tiny", "local"), template="echo #NODE#\n")


@pytest.mark.parametrize("system", ["juwels-booster", "local"])
def test_shellcheck_is_content(system: str, tmp_path: Path) -> None:
    path = tmp_path / "submit.job"
    path.write_text(text(offline("tiny", system)))
    done = subprocess.run(["shellcheck", "-x", str(path)], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def shown(script: str) -> list[str]:
    """Return the words of torchrun's command, which stand in a comment."""
    lines = [line for line in script.splitlines() if line.startswith("#   ")]
    return shlex.split(" ".join(line.removeprefix("#").removesuffix("\\") for line in lines))


@pytest.mark.parametrize("system", ["slurm-sandbox", "local"])
def test_the_script_shows_the_command_that_launch_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, system: str
) -> None:
    """Who reviewed a job of 96 nodes saw neither torchrun's options nor the trainer's."""
    monkeypatch.setenv("NLP_BENCH_VENV", str(tmp_path / "none"))
    cli("check", "--model", "tiny", "--system", system, "--mock-data", "--offline", "--output", tmp_path)
    words = shown(cli("submit", "--run", tmp_path / "run.json", "--run-dir", tmp_path, "--print").out)
    for name, value in {"JOB_ID": "7", "NODEID": "1"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("NLP_BENCH_NODES", "node1 node2")
    monkeypatch.setenv("NLP_BENCH_PORT", "20007")
    started = shlex.split(cli("launch", tmp_path, "--print").out)
    of_the_node = {
        "FIRST_NODE:PORT": "node1:20007",
        "JOB_ID": "7" if system != "local" else started[started.index("--rdzv_id") + 1],
        "NODE_ADDRESS": "node2",
    }
    assert [of_the_node.get(word, word.replace("IS_FIRST_NODE", "0")) for word in words] == started


def test_the_command_in_the_script_stays_a_comment_and_holds_no_secret() -> None:
    secret = "s3cr3tV4lue9876543210"  # noqa: S105  # made up
    run = replace(offline("tiny", "slurm-sandbox"), nonce=f"api_key={secret}")
    script = text(run, run_dir="/runs/a\n#SBATCH --nodes=9\nexit 1")
    before, _, after = script.partition("set -euo pipefail\n")
    assert [line for line in before.splitlines() if not line.startswith("#")] == []
    assert re.findall("^#SBATCH --nodes.*", before, re.MULTILINE) == ["#SBATCH --nodes=2"]
    assert secret not in before + after
    assert "--nonce 'api_key=[redacted]'" in before or "--nonce api_key=[redacted]" in before


def test_the_command_wraps_at_a_width_that_can_be_read() -> None:
    lines = [line for line in booster().splitlines() if line.startswith("#   ")]
    assert [line for line in lines if len(line) > 100 and len(re.findall(" -", line)) > 1] == []
    assert [line.endswith(" \\") for line in lines] == [True] * (len(lines) - 1) + [False]
