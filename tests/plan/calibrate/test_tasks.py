"""What is timed is what it is counted as, by torch's own counter and its automatic differentiation."""

import pytest

from nlp_bench.machine.timing import Cpu, pick, summary, timed
from nlp_bench.plan.calibrate.work import (
    WAYS,
    Task,
    attention_tasks,
    copy_tasks,
    groups,
    launch_tasks,
    layer_tasks,
    product_tasks,
    step_tasks,
)


def smallest(tasks: list[Task]) -> Task:
    return min(tasks, key=lambda task: task.flops or task.num_bytes)


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("way", WAYS)
def test_products_have_the_flops_they_say(precision: str, way: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    task = smallest([one for one in product_tasks(precision) if one.name == way])
    call = task.make(Cpu())
    with FlopCounterMode(display=False) as counter:
        result = call()
    assert counter.get_total_flops() == task.flops
    tokens, in_width, out_width = task.sizes.values()
    expected = {
        "forward": (tokens, out_width),
        "input gradient": (tokens, in_width),
        "weight gradient": (out_width, in_width),
    }
    assert tuple(result.shape) == expected[way]


@pytest.mark.parametrize("way", ["forward", "both"])
def test_attention_has_the_flops_of_the_full_square(way: str) -> None:
    """Counted where torch makes two products of it: its fused CPU kernel is not counted, and is the one that is timed."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    task = smallest([one for one in attention_tasks("fp32") if one.name == way])
    call = task.make(Cpu())
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        result = call()
    assert counter.get_total_flops() == task.flops
    tensors = result if isinstance(result, tuple) else (result,)
    assert all(torch.isfinite(tensor).all() for tensor in tensors)


def test_a_copy_copies_and_a_step_moves_the_parameters() -> None:
    import torch

    target = smallest(copy_tasks("fp32")).make(Cpu())()
    assert target.count_nonzero() > 0.99 * target.numel()
    step = smallest(step_tasks()).make(Cpu())
    parameter = step.__self__.param_groups[0]["params"][0]
    before = parameter.detach().clone()
    step()
    assert not torch.equal(before, parameter)


@pytest.mark.parametrize(
    "task", [*map(smallest, (layer_tasks("bf16"), launch_tasks("fp32")))], ids=lambda task: task.kind
)
def test_the_rest_runs(task: Task) -> None:
    call = task.make(Cpu())
    call()
    assert timed(call, Cpu(), 0.01).seconds > 0


def test_other_formats_and_ranks_add_groups() -> None:
    names = [group.name for group in groups(2, ("fp32",))]
    assert "matrix products fp32" in names
    assert "all-reduce over 2 ranks" in names
    assert not any("bf16" in name for name in names)


def test_median_and_spread_do_not_follow_one_disturbed_repetition() -> None:
    timing = summary([1.0, 1.0, 1.1, 1.0, 9.0], 1)
    assert timing.seconds == 1.0
    assert timing.spread == pytest.approx(0.05)


def test_the_cpu_is_named_with_its_threads_and_its_memory_is_known() -> None:
    device = pick("cpu")
    assert device.name.startswith("CPU ")
    assert "thread" in device.name
    assert 0 < device.free_bytes() <= device.total_bytes()
    assert "load" in device.state()
