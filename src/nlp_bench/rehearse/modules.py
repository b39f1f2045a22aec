"""Which module's forward pass runs, so that an activation can be told from another."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

OUTSIDE = "between the modules"
"""What no module makes: the tensors that pipeline stages receive, the micro-batch, the loss."""


class Modules:
    """The modules whose forward pass runs, the innermost last."""

    def __init__(self) -> None:
        """Begin outside of all."""
        self._names: dict[int, str] = {}
        self._running: list[str] = []

    def know(self, parts: Sequence[torch.nn.Module]) -> None:
        """Learn the names of a rank's parts; layers of one kind share a name, in which * stands for their number."""
        for part in parts:
            for name, module in part.named_modules():
                self._names[id(module)] = short_name(name) or type(module).__name__

    @property
    def current(self) -> str | None:
        """Name of the innermost one, None outside."""
        return self._running[-1] if self._running else None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Follow all modules."""
        handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, module: torch.nn.Module, _inputs: Any) -> None:
        self._running.append(self._names.get(id(module), type(module).__name__))

    def _leave(self, _module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        self._running.pop()


def short_name(name: str) -> str:
    """Return a module's name without the wrappers around the model, and with * for the number of a layer."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", re.sub(r"^(module(\.|$))+", "", name))
