"""The recipes of the images, as far as they can be checked without an engine: pins, paths, shell."""

import re
import subprocess
from importlib.metadata import requires
from pathlib import Path

import pytest

from nlp_bench.cli.setup import APEX_COMMIT

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmark/containers"
TEXT = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
LINES = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", TEXT, flags=re.MULTILINE)).splitlines()


def instructions(name: str) -> list[str]:
    return [line.removeprefix(f"{name} ").strip() for line in LINES if line.startswith(f"{name} ")]


def pinned() -> dict[str, str]:
    text = (ROOT / "benchmark/env/constraints.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))


def argument(name: str) -> str:
    return next(word.partition("=")[2].strip('"') for word in instructions("ARG") if word.startswith(f"{name}="))


def test_versions_stand_in_one_place() -> None:
    written = {name.lower() for name in re.findall(r"([\w.-]+)==", " ".join(instructions("RUN")))}
    assert written.isdisjoint(pinned())
    for command in instructions("RUN"):
        for part in command.split("&&"):
            if "pip install" in part and "--no-deps" not in part and "--upgrade pip" not in part:
                assert "--constraint /tmp/constraints.txt" in part


def test_the_commit_of_apex_is_that_of_the_build() -> None:
    assert argument("APEX_COMMIT") == APEX_COMMIT


def test_transformer_engine_is_one_that_megatron_core_names() -> None:
    from packaging.requirements import Requirement

    named = [Requirement(text) for text in requires("megatron-core") or [] if text.startswith("transformer-engine")]
    assert all(entry.specifier.contains(argument("TRANSFORMER_ENGINE")) for entry in named)
    assert {"core_cu13", "pytorch"} in [entry.extras for entry in named]
    assert argument("BASE").split(":")[1].startswith("13.")  # the library above is that of CUDA 13


def test_the_base_is_public_and_pinned() -> None:
    name, tag = argument("BASE").split(":")
    assert "." not in name.split("/")[0]  # no registry of a site
    assert tag != "latest"


@pytest.mark.parametrize("words", instructions("COPY"))
def test_what_is_copied_exists_and_reaches_the_engine(words: str) -> None:
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for source in words.split()[:-1]:
        assert (ROOT / source).exists()
        assert f"!{source.split('/')[0]}" in ignored


def test_the_image_sets_nothing_that_would_win_over_the_launcher() -> None:
    assert "NLP_BENCH_" not in " ".join(instructions("ENV"))
    assert "PYTHONPATH" not in " ".join(instructions("ENV"))


@pytest.mark.parametrize("command", instructions("RUN"))
def test_shellcheck_is_content(command: str) -> None:
    names = " ".join(
        f"{name}=x" for name in ("TORCH_CUDA_ARCH_LIST", "MAX_JOBS", "TRANSFORMER_ENGINE", "APEX", "APEX_COMMIT")
    )
    script = f"#!/usr/bin/env bash\nexport {names}\n{command}\n"
    done = subprocess.run(["shellcheck", "-"], input=script, capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_the_definition_for_apptainer_takes_the_image_of_the_dockerfile() -> None:
    text = (FOLDER / "nlp-bench.def").read_text(encoding="utf-8")
    used = set(re.findall(r"{{ (\w+) }}", text))
    given = set(re.findall(r"^    (\w+)=", text.split("%arguments")[1].split("%test")[0], re.MULTILINE))
    assert used == given == {"bootstrap", "image"}
    tag = re.search(r"--tag (\S+)", TEXT)
    assert tag is not None
    assert f"image={tag.group(1)}\n" in text
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    assert tag.group(1) == f"nlp-bench:{version.group(1)}"
