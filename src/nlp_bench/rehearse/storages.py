"""Allocated tensors: every storage once, however many views it has, with what it is for."""

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

Label = tuple[str, str]  # what a storage is for (weights, activations, …), and the module that made it


@dataclass
class _Living:
    """One allocated storage."""

    reference: "weakref.ref[Any]"
    num_bytes: int
    label: Label
    counted: bool


class Storages:
    """Adds up the bytes of all allocated storages, and remembers those at the peak.

    A storage is a block of memory that several tensors may view (a parameter and the flat buffer that it is part of). torch keeps
    the Python object of a storage as long as the storage itself, so that a weak reference shows when it is freed.
    """

    def __init__(self) -> None:
        self.total = self.peak = 0
        self._living: dict[int, _Living] = {}
        self._now: Counter[Label] = Counter()
        self._at_peak: dict[Label, int] | None = None
        self._inside: list[int] | None = None

    def add(self, tensor: torch.Tensor, label: Callable[[], Label]) -> None:
        """Count the storage of `tensor`, if it is not counted yet, with the label that `label` returns."""
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001  # the address, which is unique while the storage exists
        if key in self._living:
            return
        counted = self._inside is None
        reference = weakref.ref(storage, lambda _, key=key: self._free(key))  # type: ignore[misc]
        self._living[key] = living = _Living(reference, storage.nbytes(), label(), counted)
        if counted:
            self._grow(living.label, living.num_bytes)
        elif self._inside is not None:
            self._inside.append(key)

    def label(self, tensor: torch.Tensor, label: Label) -> None:
        """Set or replace the label of the storage of `tensor`."""
        self.add(tensor, lambda: label)
        living = self._living[tensor.untyped_storage()._cdata]  # noqa: SLF001  # as above
        self._now[living.label] -= living.num_bytes
        living.label = label
        self._now[label] += living.num_bytes

    def relabel(self, label: Label) -> None:
        """Give every allocated storage this label."""
        self._now = Counter()
        for living in self._living.values():
            living.label = label
            self._now[label] += living.num_bytes

    def resized(self, storage: torch.UntypedStorage) -> None:
        """Record that torch has resized a storage in place."""
        living = self._living.get(storage._cdata)  # noqa: SLF001  # as above
        if living is None:
            return
        change, living.num_bytes = storage.nbytes() - living.num_bytes, storage.nbytes()
        if not living.counted:
            return
        if change < 0:
            self._shrink(living.label, -change)
        else:
            self._grow(living.label, change)

    def briefly(self, num_bytes: int, label: Label) -> None:
        """Count the workspace of a kernel, which is allocated and freed again."""
        self._grow(label, num_bytes)
        self._shrink(label, num_bytes)

    @contextmanager
    def one_kernel(self) -> Iterator[None]:
        """Count storages that are made inside only if they outlive it: a compiled kernel has intermediate results in registers."""
        if self._inside is not None:
            yield
            return
        self._inside = []
        try:
            yield
        finally:
            made, self._inside = self._inside, None
            for living in filter(None, map(self._living.get, set(made))):  # an address may have been reused
                living.counted = True
                self._grow(living.label, living.num_bytes)

    def begin(self) -> None:
        """Reset the peak."""
        self.peak, self._at_peak = self.total, None

    def now(self) -> dict[Label, int]:
        """Return the allocated bytes, by label."""
        return {label: count for label, count in self._now.items() if count}

    def at_peak(self) -> dict[Label, int]:
        """Return the allocated bytes at the peak, by label."""
        return self.now() if self._at_peak is None else self._at_peak

    def _grow(self, label: Label, num_bytes: int) -> None:
        self._now[label] += num_bytes
        self.total += num_bytes
        if self.total > self.peak:
            self.peak, self._at_peak = self.total, None  # copied by _shrink when the first of it is freed

    def _shrink(self, label: Label, num_bytes: int) -> None:
        if self._at_peak is None and self.total == self.peak:
            self._at_peak = self.now()
        self._now[label] -= num_bytes
        self.total -= num_bytes

    def _free(self, key: int) -> None:
        living = self._living.pop(key)
        if living.counted:
            self._shrink(living.label, living.num_bytes)
