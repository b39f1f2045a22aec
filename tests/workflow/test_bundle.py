"""A run on a real Slurm, bundled, verified, then with one digit of its log changed: it is caught with the line."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.jube import Jube

from nlp_bench.evidence.archive import EXTRACT_FILTER

pytestmark = [pytest.mark.slurm, pytest.mark.torchrun]


def verified(jube: Jube, bundle: Path) -> "subprocess.CompletedProcess[str]":
    command = [str(jube.checkout / "benchmark/env/nlp-bench"), "verify", str(bundle)]
    return subprocess.run(command, env=jube.environment, capture_output=True, text=True, timeout=60, check=False)


def test_one_changed_digit_of_a_run_on_slurm_is_caught_with_its_line(slurm_jube: Jube) -> None:
    nlp_bench = str(slurm_jube.checkout / "benchmark/env/nlp-bench")
    run_dir, archive = slurm_jube.folder / "a run", slurm_jube.folder / "evidence.tar.gz"
    words = "--model tiny --launcher slurm --iterations 12 --nodes 1 --gpus-per-node 1 --tp 1 --pp 1 --nhidden 64 --sequence-length 64"
    slurm_jube(nlp_bench, "submit", *words.split(), "--run-dir", str(run_dir))
    slurm_jube(nlp_bench, "sync", "--wait", "--poll", "0.5", str(run_dir))
    slurm_jube(nlp_bench, "bundle", str(run_dir), "--output", str(archive))
    good = verified(slurm_jube, archive)
    assert good.returncode == 0, good.stdout + good.stderr
    assert "VERIFIED" in good.stdout
    assert re.search(r"runs/001 .*: VALID; steady \d+\.\d\d tokens/s", good.stdout)

    shutil.unpack_archive(archive, slurm_jube.folder, **EXTRACT_FILTER)
    log = slurm_jube.folder / "evidence/runs/001/job.out"
    text = log.read_text()
    found = list(re.finditer(r"elapsed time per iteration \(s\): (\d)", text))[3]
    line = text.count("\n", 0, found.start()) + 1
    digit = (int(found[1]) + 1) % 10
    log.write_text(f"{text[: found.start(1)]}{digit}{text[found.end(1) :]}")
    bad = verified(slurm_jube, slurm_jube.folder / "evidence")
    assert bad.returncode == 1
    assert "DIFFERS" in bad.stdout
    assert "chain      is broken:" in bad.stdout
    assert f"runs/001/job.out line {line} was changed; it reads: " in bad.stdout
    assert "runs[0].tokens_per_second.reference: bundle says" in bad.stdout
    assert f"runs/001/job.out: line {line} contradicts itself: the time per iteration is {digit}." in bad.stdout
