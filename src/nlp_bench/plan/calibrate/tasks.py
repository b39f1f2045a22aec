"""What is measured, in which order, with which part of the time."""

from nlp_bench.plan.calibrate.attention import attention_tasks
from nlp_bench.plan.calibrate.launch import launch_tasks
from nlp_bench.plan.calibrate.products import product_tasks
from nlp_bench.plan.calibrate.ranks import Ranks
from nlp_bench.plan.calibrate.session import Group
from nlp_bench.plan.calibrate.streams import copy_tasks, layer_tasks, step_tasks

PRECISIONS = {"cuda": ("bf16", "fp16", "fp32"), "cpu": ("fp32", "bf16", "fp16")}
"""By device, the one first that its trainings use; 8- and 4-bit products need Transformer Engine's scaling and are not measured."""


def groups(ranks: Ranks, precisions: tuple[str, ...]) -> list[Group]:
    """Return the groups; the first number format has most of the time."""
    main, *others = precisions
    parts = [
        Group(name=f"matrix products {main}", tasks=product_tasks(main), share=8),
        Group(name=f"attention {main}", tasks=attention_tasks(main), share=4),
        Group(name=f"copy {main}", tasks=copy_tasks(main), share=1),
        Group(name=f"between products {main}", tasks=layer_tasks(main), share=2),
        Group(name="optimizer step fp32", tasks=step_tasks(), share=1),
        Group(name="launch", tasks=launch_tasks("fp32"), share=0.3),
    ]
    if ranks.number > 1:
        parts.append(Group(name=f"all-reduce over {ranks.number} ranks", tasks=ranks.all_reduce_tasks(), share=2))
    for other in others:
        parts.append(Group(name=f"matrix products {other}", tasks=product_tasks(other), share=1.5))
        parts.append(Group(name=f"attention {other}", tasks=attention_tasks(other), share=1))
        parts.append(Group(name=f"between products {other}", tasks=layer_tasks(other), share=0.5))
    return parts
