"""A machine to examine: the real one, with whatever a test replaces."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.examining import Make, Program
from support.native import four_gpus, nvml_library

from nlp_bench.config.request import Request
from nlp_bench.doctor.place import Place, look_around

__all__ = ["four_gpus", "nvml_library"]


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No allocation and no Slurm around the tests, and caches of their own."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("NLP_BENCH_SYSTEM", raising=False)
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "no-slurm.conf"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def place(tmp_path: Path) -> Make:
    """This machine as `system` and `model` see it, with some of its fields replaced."""

    def make(system: str = "local", model: str = "tiny", queue: str | None = None, **fields: Any) -> Place:
        request = Request(system=system, model=model, data_path="mock", queue=queue)
        return replace(look_around(request, runs=tmp_path / "runs"), **fields)

    return make


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """program(name, text): put a shell script of this name before all others on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")

    def put(name: str, text: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)

    return put
