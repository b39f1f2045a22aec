"""The ranks of one node that measure at the same time, started by torchrun; alone there is one."""

import os
from dataclasses import dataclass
from functools import partial
from typing import Any

from nlp_bench.errors import UsageError
from nlp_bench.plan.calibrate.measurement import Call, Task

MESSAGES = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26)
"""Bytes of the reduced tensor."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among those of the node."""

    rank: int = 0
    """Its number."""
    number: int = 1
    """How many there are."""
    local_rank: int = 0
    """Its number on the node, which picks the GPU."""

    @classmethod
    def join(cls, wanted: str) -> "Ranks":
        """Join the others under torchrun, by NCCL where the `wanted` device is a GPU or one is found, else gloo.

        Alone nothing is joined. Raises UsageError where the ranks are of several nodes: they would measure the fabric as well.
        """
        words = {name: os.environ.get(name) for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
        number = int(words["WORLD_SIZE"] or 1)
        if number == 1:
            return cls()
        if int(words["LOCAL_WORLD_SIZE"] or number) != number:
            raise UsageError(
                f"calibrate: {number} ranks on several nodes; one node is measured at a time: torchrun --standalone --nproc-per-node N"
            )
        import torch  # noqa: PLC0415  # only several ranks need it
        import torch.distributed as dist  # noqa: PLC0415  # as above

        rank, local_rank = int(words["RANK"] or 0), int(words["LOCAL_RANK"] or 0)
        on_gpus = wanted != "cpu" and torch.cuda.is_available()
        if on_gpus:
            torch.cuda.set_device(local_rank)
        dist.init_process_group("nccl" if on_gpus else "gloo", rank=rank, world_size=number)
        return cls(rank=rank, number=number, local_rank=local_rank)

    def wait(self) -> None:
        """Wait until all have come here."""
        self.agree(0)

    def agree(self, value: Any) -> Any:
        """Return what the first rank says, after all have come here."""
        if self.number == 1:
            return value
        import torch.distributed as dist  # noqa: PLC0415  # as above

        holder = [value]
        dist.broadcast_object_list(holder, src=0)
        return holder[0]

    def number_sharing(self, device_kind: str) -> int:
        """Return how many ranks share one memory: all on a CPU, none with another on GPUs."""
        return self.number if device_kind == "cpu" else 1

    def all_can(self, can: bool) -> bool:
        """Return whether every rank can; all have to ask."""
        if self.number == 1:
            return can
        import torch.distributed as dist  # noqa: PLC0415  # as above

        answers: list[bool] = [False] * self.number
        dist.all_gather_object(answers, can)
        return all(answers)

    def leave(self) -> None:
        """Part from the others."""
        if self.number > 1:
            import torch.distributed as dist  # noqa: PLC0415  # as above

            dist.destroy_process_group()

    def all_reduce_tasks(self) -> list[Task]:
        """Return all-reduces of several sizes; their FLOPs are not counted, their bytes are the tensor's."""
        if self.number == 1:
            return []
        return [
            Task(
                kind="all_reduce",
                name="sum",
                precision="fp32",
                sizes={"ranks": self.number, "message_bytes": size},
                num_bytes=float(size),
                needs_bytes=3.0 * size,
                together=True,
                make=partial(_all_reduce, size),
            )
            for size in MESSAGES
        ]


def _all_reduce(size: int, device: Any) -> Call:
    import torch  # noqa: PLC0415  # as above
    import torch.distributed as dist  # noqa: PLC0415  # as above

    message = torch.zeros(size // 4, device=device.place)
    return lambda: dist.all_reduce(message)
