"""Why not this one, how many nodes, how large a model, what to expect of one run; and what a prediction takes for granted."""

from dataclasses import replace

import pytest
from support.planning import constants, problem

from nlp_bench.config.catalog import load_model, load_system
from nlp_bench.config.model import Model
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.config.run import Run
from nlp_bench.immutable import immutable
from nlp_bench.plan import prediction as module
from nlp_bench.plan.capacity import batch_for, candidates, fewest_nodes, parameters_of, recommend, smallest
from nlp_bench.plan.prediction import Prediction, prediction, prediction_or_reason
from nlp_bench.plan.problem import AXES, SWITCHES, Axis, Fixed, Problem, Setting, make_problem
from nlp_bench.plan.ranking import Answer, answer, notes
from nlp_bench.plan.search import search
from nlp_bench.plan.text import columns, why_lines
from nlp_bench.plan.why import explain
from nlp_bench.show.table import TEXT


def test_the_published_one_loses_to_its_bubble() -> None:
    why = explain(problem())
    assert why.best.report_s <= why.row.report_s
    assert sum(why.costs.values()) == pytest.approx(why.row.report_s - why.best.report_s, rel=1e-6)
    assert any(change.text.startswith("vpp 1 -> ") for change in why.changes)


def test_the_rank_is_that_of_the_plan() -> None:
    """A layout that is ranked because the model file proposes it counts there too: it was rank 24 of 178 and of 177."""
    why, plan = explain(problem("13")), answer(problem("13"), top=1)
    assert plan.published
    assert (why.rank, why.num_ranked) == (plan.published.rank, len(plan.search.ranked))


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
        assert change.row.report_s < why.row.report_s


def test_one_that_does_not_fit_says_what_makes_it_fit() -> None:
    why = explain(problem(fixed=Fixed(tp=1, pp=8)))
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
    assert why.best.sizes.recompute == "selective"


def test_the_smallest_is_within_and_the_next_smaller_is_not() -> None:
    asked, limit = problem("13", nodes=32), 400.0
    found = smallest(asked, limit)
    assert found.within.report_s <= limit
    assert found.margin == pytest.approx(1 - found.within.report_s / limit)
    assert found.within.sizes.global_batch_size == 1024
    assert all(n >= found.fewest for n in found.usable)
    factor = asked.tokens / asked.tokens_per_iteration
    for nodes in (n for n in found.usable if n < found.within.nodes):
        smaller = search(replace(asked, nodes=nodes))
        times = smaller.figures.iteration_s[smaller.figures.fits]
        assert not len(times) or times.min() * factor > limit
    if found.surely is not None:
        assert found.surely.high_s <= limit
        assert found.surely.nodes >= found.within.nodes


def test_below_the_peak_nothing_is_tried() -> None:
    asked = problem("13")
    flops = 6 * 12.9e9 * 20e6  # 6 N per token, a little less than with attention and the head
    assert fewest_nodes(asked, 100) >= flops / 100 / (4 * 312e12)
    assert fewest_nodes(asked, 1e9) == 1


def make(model: Model, nodes: int = 20) -> Problem:
    asked = make_problem(model, load_system("dgx-a100"), constants(), tokens=300 * 10**9, nodes=nodes)
    return Problem(**{**vars(asked), "global_batch_size": batch_for(asked.global_batch_size, asked.num_gpus)})


def test_sizes_are_sorted_and_sound() -> None:
    sizes = candidates()
    counts = [parameters_of(model) for model, _ in sizes]
    assert counts == sorted(counts)
    assert sum(published for _, published in sizes) == 7
    for model, published in sizes:
        shape = model.architecture
        assert shape.hidden_size % shape.num_attention_heads == 0
        if not published:
            assert shape.num_layers % 4 == 0
            assert shape.ffn_hidden_size == 4 * shape.hidden_size
            assert shape.hidden_size // shape.num_attention_heads in {64, 128}
            assert model.parameters_billion == pytest.approx(parameters_of(model) / 1e9, rel=0.01)


@pytest.mark.slow
def test_the_chosen_one_finishes_and_the_next_does_not() -> None:
    found = recommend(5, make)
    assert found.chosen.days <= 5
    larger = [size for size in found.looked_at if parameters_of(size.model) > parameters_of(found.chosen.model)]
    assert larger
    assert all(size.days is None or size.days > 5 for size in larger)
    names = [model.name for model, _ in candidates()]
    assert names[names.index(found.chosen.model.name) + 1] == larger[0].model.name
    assert recommend(1e-6, make).chosen is None, "too little time has no size"


def test_the_batch_is_a_multiple_of_the_gpus() -> None:
    assert [batch_for(256, num_gpus) for num_gpus in (160, 1000, 64)] == [320, 1000, 256]


def test_the_rates_of_the_gpu_are_named_and_a_peak_that_is_not_used() -> None:
    model, system = load_model("175"), load_system("juwels-booster")
    said = "; ".join(notes(problem()))
    assert "312 TFLOP/s, memory of 1555 GB/s and 300 GB/s to its neighbours" in said
    assert "is not used" not in said
    other = replace(system, gpu=replace(system.gpu, peak_bf16_tflops=989))
    said = "; ".join(notes(make_problem(model, other, constants(), tokens=20_000_000)))
    assert "the system file's bf16 peak of 989 TFLOP/s is not used, 312 is: check [gpu] name" in said


@pytest.fixture(scope="module")
def run() -> Run:
    return resolve(Request(model="175", system="juwels-booster"), ask_scheduler=False)


def test_it_is_the_row_of_the_plan(run: Run, answered: Answer) -> None:
    row, found = answered.published, prediction(run, 20_000_000)
    assert (found.report_s, found.low_s, found.high_s) == pytest.approx((row.report_s, row.low_s, row.high_s))
    assert found.record()["memory_bytes"] / 2**30 == pytest.approx(row.memory_gib)
    assert found.fits == row.fits
    assert "not measured" in found.record()["what"]


def test_a_run_without_a_prediction_has_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = replace(run, system=replace(run.system, accelerator="cpu"))
    assert str(prediction_or_reason(cpu, 20_000_000)).startswith("no prediction: a CPU run")

    def broken(*_: object) -> None:
        raise ZeroDivisionError("nothing")

    monkeypatch.setattr(module, "predicted", broken)
    assert "the planner failed (ZeroDivisionError: nothing)" in str(prediction_or_reason(run, 20_000_000))


def test_one_that_is_too_large_does_not_fit() -> None:
    run = resolve(Request(model="13", system="juwels-booster", tensor=1, pipeline=1), ask_scheduler=False)
    found = prediction_or_reason(run, 20_000_000)
    assert isinstance(found, Prediction)
    assert found.fits == "no"


@immutable
class Longer(Setting):
    """A configuration with one more size and one more switch."""

    halo: int
    late_norm: bool


def test_a_new_size_or_switch_is_said_everywhere_by_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took words in four more places: without them --why said "legal with : 420.3 s", and rows of the table looked alike."""
    plain, *_ = answer(problem("13"), top=1).rows
    before = plain.sizes.layout
    size = Axis(array="context", option="context", text="halo {}")
    switch = Axis(array="sharding", option="overlap_grad_reduce", text="late normalisation", values=(False, True))
    monkeypatch.setitem(AXES, "halo", size)
    monkeypatch.setitem(SWITCHES, "late_norm", switch)
    row = replace(plain, sizes=Longer(**vars(plain.sizes), halo=3, late_norm=True))
    assert row.sizes.layout == f"{before}, halo 3"
    assert row.sizes.switches["late_norm"] == "late normalisation"
    (apart,) = columns([row])[-1].cells
    assert apart == "halo 3"
    other = replace(row, sizes=replace(row.sizes, late_norm=False))
    assert [cell.split(", ")[-1] for cell in columns([row, other])[-1].cells] == [
        "late normalisation",
        "no late normalisation",
    ]


def test_a_change_is_said_in_the_words_of_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AXES, "vpp", replace(AXES["vpp"], text="Turns {}"))
    why = explain(problem())
    assert any(change.text.startswith("turns 1 -> ") for change in why.changes)
    assert "Turns 6" in explain(problem(fixed=Fixed(vpp=6))).sizes.layout
