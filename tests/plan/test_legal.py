"""Legal means legal: many configurations are judged by the one table of rules (tests/layout/test_rules.py)."""

from dataclasses import replace

import numpy as np

from nlp_bench.config.catalog import load_model, load_system
from nlp_bench.layout.rules import SHARDING
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.problem import make_problem
from nlp_bench.plan.ranking import configuration
from nlp_bench.plan.search.legal import broken_rules, judge

SYSTEM = "juwels-booster"
BASE = {
    "tp": 8, "pp": 8, "vpp": 1, "cp": 1, "micro_batch_size": 1, "first_layers": 0, "last_layers": 0, "recompute": "selective",
    "sequence_parallel": True, "distributed_optimizer": True, "overlap_grad_reduce": False, "overlap_param_gather": False,
}  # fmt: skip


def test_only_the_optimizer_is_sharded() -> None:
    problem = make_problem(load_model("175"), load_system(SYSTEM), read_constants(), tokens=1000)
    one = configuration(problem, BASE)
    assert broken_rules(one) == []
    sharded = replace(one, spread=replace(one.spread, sharding=np.asarray([SHARDING.index("parameters")])))
    assert [name for name, _ in broken_rules(sharded)] == ["sharding"]


def test_each_illegal_one_is_counted_once_under_its_first_rule() -> None:
    problem = make_problem(load_model("175"), load_system(SYSTEM), read_constants(), tokens=1000)
    columns = {**BASE, "recompute": 0, "tp": np.asarray([8, 5, 6, 64, 8]), "vpp": np.asarray([1, 1, 1, 5, 5])}
    verdicts = judge(problem.configurations(columns))
    assert verdicts.legal.tolist() == [True, False, False, False, False]
    assert verdicts.counts == {"GPUs": 2, "sequence": 1, "virtual stages": 1}
