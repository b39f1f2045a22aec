"""What a kernel costs that has nothing to do: the time between two of them."""

from typing import Any

from nlp_bench.plan.calibrate.measurement import Call, Task

KERNELS = 100
"""Of one call."""


def launch_tasks(precision: str) -> list[Task]:
    """Return a row of tiny kernels, and a chain of tiny differentiable operators, forward with backward (two kernels each)."""
    names = {"kernel": (KERNELS, _kernels), "operator": (2 * KERNELS, _operators)}
    return [
        Task(
            kind="launch",
            name=name,
            precision=precision,
            sizes={"kernels": number},
            make=make,
        )
        for name, (number, make) in names.items()
    ]


def _kernels(device: Any) -> Call:
    import torch  # noqa: PLC0415  # only measuring needs it

    one = torch.zeros(8, device=device.place)

    def launch() -> None:
        for _ in range(KERNELS):
            one.add_(1)

    return launch


def _operators(device: Any) -> Call:
    import torch  # noqa: PLC0415  # as above

    leaf = torch.zeros(8, device=device.place, requires_grad=True)

    def launch() -> None:
        chained: torch.Tensor = leaf
        for _ in range(KERNELS):
            chained = chained * 1.5
        chained.sum().backward()  # type: ignore[no-untyped-call]

    return launch
