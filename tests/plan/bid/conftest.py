"""An answer of the planner, and a few published points as the repository's file has them."""

from pathlib import Path

import pytest

from nlp_bench.config import catalog
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.problem import make_problem
from nlp_bench.plan.ranking import Answer, answer

COLUMNS = (
    "id,source_id,grade,model,params_b,seq,gpu,gpus_per_node,internode_gbps_per_node,n_gpus,tp,pp,vpp,cp,mbs,gbs,recompute,"
    "precision,framework,iter_time_s,tokens_per_s_per_gpu,source"
)
ROWS = (
    "J1,JSC,A,GPT3-175B,175,2048,A100-SXM4-40GB,4,800,384,8,8,1,1,1,96,selective,bf16,Megatron-LM,5.4529,93.9,paper a",
    "J2,JSC,C,GPT3-175B,175,2048,A100-SXM4-40GB,4,800,192,8,8,1,1,1,48,selective,bf16,Megatron-LM,6.7236,76.1,paper a",
    "K1,KORTH,A,GPT-22B,22,2048,A100-SXM4-80GB,8,1600,8,8,1,,1,4,4,selective,fp16,Megatron-LM,1.10,931,paper b",
    "K1b,KORTH,A,GPT-22B,22,2048,A100-SXM4-80GB,8,1600,8,8,1,,1,4,4,selective,fp16,Megatron-LM,1.12,914,paper b",
    "H1,NEMO,A,GPT3-175B,175,2048,H100-SXM5-80GB,8,3200,512,4,8,6,1,1,2048,none,bf16,NeMo,15.3,535,paper c",
    "F1,MPT,A,MPT-70B,70,2048,A100-SXM4-40GB,8,1600,384,1,1,1,1,1,96,full,bf16,llm-foundry/Composer,9.0,100,paper d",
    "N1,NONE,A,GPT3-175B,175,2048,A100-SXM4-40GB,4,800,384,8,8,1,1,1,96,selective,bf16,Megatron-LM,,93.9,paper a",
)


@pytest.fixture(scope="session")
def answered() -> Answer:
    problem = make_problem(
        catalog.load_model("175"), catalog.load_system("juwels-booster"), read_constants(), tokens=20_000_000
    )
    return answer(problem, top=3)


@pytest.fixture
def points(tmp_path: Path) -> Path:
    path = tmp_path / "points.csv"
    path.write_text("\n".join((COLUMNS, *ROWS)) + "\n", encoding="utf-8")
    return path
