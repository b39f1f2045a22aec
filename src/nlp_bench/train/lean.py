"""Importing megatron-core without a package that it imports in passing and no rank of ours uses through it."""

import sys
from typing import Any

UNUSED = "wandb"


def import_megatron() -> None:
    """Import megatron-core as if Weights & Biases were not installed; `import wandb` works again afterwards.

    megatron-core 0.16.1 imports it for its inference server's log (inference/contexts/dynamic_context.py) where it can: 0.75 s
    of processor time in each rank, measured on two cores with wandb 0.27. A wandb that is imported already stays as it is.
    """
    modules: dict[str, Any] = sys.modules
    hidden = UNUSED not in modules
    if hidden:
        modules[UNUSED] = None  # what the import statement takes for "not there"
    try:
        import megatron.core  # noqa: F401, PLC0415  # imports the rest
    finally:
        if hidden:
            del modules[UNUSED]
