"""Why not this one."""

import pytest
from support.planning import problem

from nlp_bench.plan.problem import Fixed
from nlp_bench.plan.text import why_lines
from nlp_bench.plan.why import explain
from nlp_bench.show.table import TEXT


def test_an_illegal_one_names_its_rules_and_a_legal_neighbour() -> None:
    why = explain(problem(fixed=Fixed(tp=3, pp=5)))
    assert {name for name, _ in why.broken} == {"GPUs", "sequence", "pipeline stages"}
    assert why.row is None
    assert why.rank is None
    assert all(change.row.fits == "yes" for change in why.changes)
    text = "\n".join(why_lines(why, TEXT))
    assert "illegal, GPUs: nodes*gpus_per_node = 384 is not a multiple of tp*pp = 15 (remainder 9)" in text


def test_the_published_one_loses_to_its_bubble() -> None:
    why = explain(problem())
    assert why.row is not None
    assert why.best is not None
    assert why.best.report_s <= why.row.report_s
    assert sum(why.costs.values()) == pytest.approx(why.row.report_s - why.best.report_s, rel=1e-6)
    assert any(change.text.startswith("vpp 1 -> ") for change in why.changes)


def test_a_single_change_is_one() -> None:
    why = explain(problem("13"))
    for change in why.changes:
        one, other = why.sizes, change.row.sizes
        aspects = {
            "sizes": (one.tp, one.pp, one.vpp, one.cp, one.micro_batch_size)
            != (other.tp, other.pp, other.vpp, other.cp, other.micro_batch_size),
            "ends": (one.first_layers, one.last_layers) != (other.first_layers, other.last_layers),
            **{name: one.switches[name] != word for name, word in other.switches.items() if name in one.switches},
        }
        assert sum(aspects.values()) == 1, change.text
        assert ", " not in change.text
        assert why.row is not None
        assert change.row.report_s < why.row.report_s


def test_one_that_does_not_fit_says_what_makes_it_fit() -> None:
    why = explain(problem(fixed=Fixed(tp=1, pp=8)))
    assert why.row is not None
    assert why.row.fits == "no"
    assert why.rank is None
    assert "does not fit" in "\n".join(why_lines(why, TEXT))
    assert all(change.row.fits == "yes" for change in why.changes)


def test_gas_that_contradicts_the_batch_is_named() -> None:
    why = explain(problem(fixed=Fixed(micro_batch_size=1, gas=15)))
    assert why.broken == (
        ("GAS", "global_batch_size = 96 is not dp*micro_batch_size*gas = 6*1*15 = 90; leave --gas out"),
    )
    assert explain(problem(fixed=Fixed(gas=8))).sizes.micro_batch_size == 2


def test_full_recompute_is_held_against_what_the_rules_allow() -> None:
    why = explain(problem(fixed=Fixed(recompute="full")))
    assert why.sizes.recompute == "full"
    assert why.best is not None
    assert why.best.sizes.recompute == "selective"
