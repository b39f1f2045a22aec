"""Sees every operator of a training step, on tensors with data or without: memory, operations, communication."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from nlp_bench.rehearse import flops
from nlp_bench.rehearse.collectives import KINDS, Collectives
from nlp_bench.rehearse.modules import OUTSIDE, Modules
from nlp_bench.rehearse.storages import Label, Storages

TEMPORARY = ("temporary", "")


class Tracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Enter it before the model is built, so that it knows everything that lives."""

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages, self.collectives, self.modules = Storages(), Collectives(), Modules()
        self.flops: Counter[str] = Counter()
        self.workspaces: dict[Any, flops.Count] = {}
        """Of operators whose kernels take memory of their own: its bytes, from the operator's arguments."""
        self._counters = flops.counters()
        self._communication = {
            getattr(getattr(torch.ops.c10d, name), overload): name
            for name in KINDS
            for overload in getattr(torch.ops.c10d, name).overloads()
        }
        self._paused = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from wrapping the function below, for which it imports its compiler (0.6 s) and 5 us go by in each call."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator, and take note of it."""
        if self._paused:
            return self.run(func, args, kwargs or {})
        name = self._communication.get(func)
        if name is not None:
            self.collectives.add(name, args)
            return self.communicate(func, args, kwargs or {})
        counter = self._counters.get(func)
        if counter is not None:
            self.flops[counter[0]] += counter[1](args)
        result = self.run(func, args, kwargs or {})
        if isinstance(result, torch.Tensor):
            self.storages.add(result, self.label)
        elif isinstance(result, (tuple, list)):
            for one in result:
                if isinstance(one, torch.Tensor):
                    self.storages.add(one, self.label)
        if func in self.workspaces:
            self.storages.briefly(self.workspaces[func](args), TEMPORARY)
        return result

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator; a world without data answers some of them by itself."""
        return func(*args, **kwargs)

    def communicate(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run a collective."""
        return func(*args, **kwargs)

    def label(self) -> Label:
        """Return what a tensor that is made now is for.

        What a forward pass makes is an activation, in the backward pass too, where it is computed again; what is made outside of
        modules while autograd records (received tensors, the loss) as well; all else is temporary: gradients of activations,
        and what the optimizer needs.
        """
        module = self.modules.current
        if module is not None:
            return "activations", module
        in_backward = torch._C._current_graph_task_id() != -1  # noqa: SLF001  # -1: none runs
        if in_backward or not torch.is_grad_enabled():
            return TEMPORARY
        return "activations", OUTSIDE

    def begin(self) -> None:
        """Count from now on."""
        self.storages.begin()
        self.collectives.begin()
        self.flops.clear()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Take no note of what happens inside."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    @contextmanager
    def watching(self) -> Iterator["Tracker"]:
        """Follow operators, modules and storages that are resized in place (which is no operator).

        What gloo does in tensors of its own while it is waited for is no memory of the training.
        """
        resize, wait = torch.UntypedStorage.resize_, dist.Work.wait

        def resized(storage: torch.UntypedStorage, size: int) -> Any:
            answer = resize(storage, size)
            self.storages.resized(storage)
            return answer

        def waited(work: dist.Work, *arguments: Any) -> bool:
            with self.paused():
                return wait(work, *arguments)

        with (
            patch.object(torch.UntypedStorage, "resize_", resized),
            patch.object(dist.Work, "wait", waited),
            self,
            self.modules.watched(),
        ):
            yield self
