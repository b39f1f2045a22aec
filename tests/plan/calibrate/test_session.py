"""The time that was asked for is kept, whatever the speed of the device, and what does not fit is told."""

from typing import Any

import pytest

from nlp_bench.plan.calibrate.session import Ranks, Session, spread_out
from nlp_bench.plan.calibrate.work import Call, Group, Task


class Simulated:
    """A device with its own clock: work takes FLOPs / rate and a fixed cost."""

    kind, name, place = "cpu", "simulated", None

    def __init__(self, rate: float, free: int = 1 << 34) -> None:
        self.rate, self.free, self.now, self.cost = rate, free, 0.0, 0.0

    def elapsed(self, call: Call, calls: int, *, waits: bool = False) -> float:
        assert not waits
        begin = self.now
        for _ in range(calls):
            call()
        return self.now - begin

    def free_bytes(self) -> int:
        return self.free

    def total_bytes(self) -> int:
        return self.free

    def release(self) -> None:
        pass

    def state(self) -> str:
        return "simulated"


def task(flops: float, *, needs: float = 0.0, failing: Exception | None = None) -> Task:
    def make(device: Any) -> Call:
        if failing:
            raise failing

        def call() -> None:
            device.now += 1e-6 + flops / device.rate

        return call

    return Task(
        kind="product",
        name="forward",
        precision="bf16",
        sizes={"f": int(flops)},
        flops=flops,
        needs_bytes=needs,
        make=make,
    )


def session(device: Simulated) -> Session:
    return Session(device=device, ranks=Ranks(), say=lambda _: None, clock=lambda: device.now)


def ladder(number: int = 60) -> list[Task]:
    return [task(1e6 * 1.4**step) for step in range(number)]


@pytest.mark.parametrize("rate", [1e9, 1e12, 1e15])
@pytest.mark.parametrize("seconds", [2.0, 60.0])
def test_the_time_is_kept_and_used(rate: float, seconds: float) -> None:
    device = Simulated(rate)
    measuring = session(device)
    measuring.measure([Group(name=name, tasks=ladder(), share=share) for name, share in (("a", 2), ("b", 1))], seconds)
    assert 0.3 * seconds < device.now < 1.25 * seconds
    assert len(measuring.measurements) >= 12
    for measured in measuring.measurements:
        assert measured.seconds == pytest.approx(1e-6 + measured.flops / rate, rel=1e-6)
        assert measured.repeats >= 3


def test_shapes_that_take_too_long_are_told() -> None:
    measuring = session(Simulated(1e9))
    measuring.measure([Group(name="products", tasks=ladder(), share=1)], 1.0)
    assert any("large shapes take too long for the time" in line for line in measuring.skipped)
    assert max(m.seconds for m in measuring.measurements) < 0.1


def test_what_needs_more_memory_is_left_out_and_told() -> None:
    measuring = session(Simulated(1e12, free=10 << 30))
    tasks = [task(1e9), task(2e9, needs=9 * 2.0**30), task(3e9)]
    measuring.measure([Group(name="products", tasks=tasks, share=1)], 5.0)
    assert sorted(m.flops for m in measuring.measurements) == [1e9, 3e9]
    assert measuring.skipped == ["product forward bf16 2000000000: needs 9.0 GiB of 10.0 GiB free"]


def test_running_out_of_memory_is_no_end() -> None:
    measuring = session(Simulated(1e12))
    failing = task(2e9, failing=RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"))
    measuring.measure([Group(name="products", tasks=[task(1e9), failing, task(3e9)], share=1)], 5.0)
    assert sorted(m.flops for m in measuring.measurements) == [1e9, 3e9]
    assert measuring.skipped == ["product forward bf16 2000000000: out of memory"]


def test_another_error_is_an_end() -> None:
    measuring = session(Simulated(1e12))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        measuring.measure(
            [Group(name="products", tasks=[task(1e9, failing=RuntimeError("mat1 and mat2"))], share=1)], 1.0
        )


@pytest.mark.parametrize("number", [1, 2, 7, 64, 100])
def test_every_beginning_covers_all_sizes(number: int) -> None:
    tasks = [task(float(index)) for index in range(number)]
    order = [int(one.flops) for one in spread_out(tasks)]
    assert sorted(order) == list(range(number))
    if number >= 64:
        first = sorted(order[:8])
        assert max(b - a for a, b in zip(first, [*first[1:], number], strict=True)) <= number / 4 + 1
