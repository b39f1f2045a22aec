"""What every rank measured, known to all of them."""

from collections.abc import Sequence

import torch
import torch.distributed as dist


def gather(numbers: Sequence[float], device: torch.device) -> list[list[float]]:
    """Return the `numbers` of each rank, in the order of the ranks; every rank calls it with as many."""
    own = torch.tensor(numbers, dtype=torch.float64, device=device)
    found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(found, own)
    rows: list[list[float]] = torch.stack(found).tolist()
    return rows
