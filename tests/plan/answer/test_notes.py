"""What a prediction takes for granted is said."""

from dataclasses import replace

from nlp_bench.config import catalog
from nlp_bench.plan.constants import read_constants
from nlp_bench.plan.problem import make_problem
from nlp_bench.plan.ranking import notes


def test_the_rates_of_the_gpu_are_named_and_a_peak_that_is_not_used() -> None:
    model, system = catalog.load_model("175"), catalog.load_system("juwels-booster")
    assert system.gpu is not None
    said = "; ".join(notes(make_problem(model, system, read_constants(), tokens=20_000_000)))
    assert "312 TFLOP/s, memory of 1555 GB/s and 300 GB/s to its neighbours" in said
    assert "is not used" not in said
    other = replace(system, gpu=replace(system.gpu, peak_bf16_tflops=989))
    said = "; ".join(notes(make_problem(model, other, read_constants(), tokens=20_000_000)))
    assert "the system file's bf16 peak of 989 TFLOP/s is not used, 312 is: check [gpu] name" in said
