"""The shortlist as a JUBE sweep: the real JUBE makes a work package of each point, and `check` accepts each."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from support.jube_versions import both_jubes
from support.planning import constants
from support.yaml_rules import problems

from nlp_bench.config.catalog import load_model, load_system
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.plan.problem import Fixed, Problem, make_problem
from nlp_bench.plan.ranking import Answer, answer
from nlp_bench.plan.sweep import shortlist, sweep_text

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = """schema = "nlp-bench/system/1"
description = "one node with GPUs, without a scheduler"
launcher = "local"
accelerator = "cuda"
gpus_per_node = 4
[gpu]
name = "NVIDIA A100-SXM4-40GB"
memory_gib = 40
peak_bf16_tflops = 312
[network]
links_per_node = 4
link_gbit_per_s = 200
"""


def small(system: Path) -> Problem:
    system.write_text(SYSTEM, encoding="utf-8")
    return make_problem(
        load_model("tiny"), load_system(str(system)), constants(), tokens=20_000_000, fixed=Fixed(recompute="any")
    )


def test_the_shortlist_ends_with_the_published_one(answered: Answer) -> None:
    rows = shortlist(answered, 3)
    assert [row.rank for row in rows[:3]] == [1, 2, 3]
    assert rows[-1].published
    assert len(rows) == 4
    assert len(shortlist(replace(answered, rows=(answered.published,)))) == 1


def test_nothing_that_does_not_fit_is_run(answered: Answer) -> None:
    with pytest.raises(NlpBenchError, match="nothing to run"):
        shortlist(replace(answered, rows=()))
    heavy = replace(answered, published=replace(answered.published, fits="no"))
    assert not any(row.published for row in shortlist(heavy))


def test_a_sweep_is_the_workflow_with_its_parameters(answered: Answer, tmp_path: Path) -> None:
    rows = shortlist(answered)
    text = sweep_text(rows, answered.problem, model="175", system="juwels-booster")
    (tmp_path / "sweep.yaml").write_text(text, encoding="utf-8")
    assert problems(tmp_path / "sweep.yaml") == [], "it keeps the rules of our YAML"
    theirs = yaml.safe_load((ROOT / "benchmark/jube/nlp_benchmark.yaml").read_text(encoding="utf-8"))
    ours = yaml.safe_load(text)
    assert ours["result"] == theirs["result"]
    assert "jube_benchmark_home" not in text
    sets = {one["name"]: {p["name"]: p["_"] for p in one.get("parameter", ())} for one in ours["parameterset"]}
    assert sets["modelParameter"]["point"] == ",".join(map(str, range(len(rows))))
    values = {**sets["modelParameter"], **sets["tuningParameter"], **sets["systemParameter"]}
    for point, row in enumerate(rows):
        for name, field in (("tp_size", "tp"), ("pp_size", "pp"), ("micro_batch_size", "micro_batch_size")):
            listed = json.loads(re.sub(r"\[\$point\]$", "", values[name]))
            assert (listed[point] if isinstance(listed, list) else listed) == getattr(row.sizes, field)
    assert (values["nodes"], values["global_batch_size"]) == ("96", "96")


def test_another_number_format_has_no_parameter(answered: Answer) -> None:
    other = replace(answered.problem, precision="fp16")
    with pytest.raises(UsageError, match="--emit-jube: planned in fp16"):
        sweep_text(shortlist(answered), other, model="175", system="juwels-booster")


@both_jubes
@pytest.mark.jube
def test_jube_makes_a_work_package_of_each_point(tmp_path: Path) -> None:
    asked = small(tmp_path / "node.toml")
    found = answer(asked, top=2)
    rows = shortlist(found)
    text = sweep_text(rows, asked, model="tiny", system=str(tmp_path / "node.toml"))
    file = tmp_path / "sweep.yaml"
    file.write_text(_only_check(text), encoding="utf-8")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("NLP_BENCH_SYSTEM", None)
    done = subprocess.run(
        ["jube", "run", str(file), "--hide-animation", "-o", str(tmp_path / "runs")],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    logs = "\n".join(path.read_text(encoding="utf-8")[-2000:] for path in sorted(tmp_path.rglob("*_check/std*")))
    assert done.returncode == 0, done.stdout + done.stderr
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(tmp_path.rglob("*_check/work/run.json"))]
    assert len(runs) == len(rows), done.stdout + logs
    for run, row in zip(runs, rows, strict=True):
        sizes, tuning = row.sizes, run["tuning"]
        assert [run["parallel"][name] for name in ("tensor", "pipeline", "data")] == [sizes.tp, sizes.pp, sizes.dp]
        assert run["batch"]["micro_batch_size"] == sizes.micro_batch_size
        assert run["batch"]["gradient_accumulation_steps"] == sizes.gas
        assert run["training"]["recompute"] == sizes.recompute
        assert (tuning["num_virtual_stages_per_pipeline_rank"] or 1) == sizes.vpp
        assert (tuning["decoder_last_pipeline_num_layers"] or 0) == sizes.last_layers
        assert tuning["use_distributed_optimizer"] == sizes.distributed_optimizer
        assert tuning["overlap_param_gather"] == sizes.overlap_param_gather
        assert run["parallel"]["tensor"] == 1 or tuning["sequence_parallel"] == sizes.sequence_parallel


def _only_check(text: str) -> str:
    """Return the workflow up to its first step: nothing is installed and no job is started."""
    return text[: text.index("  - name: setup_venv")]
