"""The tracker of a world without data and without other ranks: what cannot be computed is answered here."""

from functools import cache
from typing import Any

import torch
from torch._C._distributed_c10d import FakeWork

from nlp_bench.rehearse.tracker import Tracker

SCALAR = torch.ops.aten._local_scalar_dense.default  # noqa: SLF001  # what every .item(), int(tensor) and bool(tensor) ends in


class TrackerWithoutData(Tracker):  # type: ignore[no-untyped-call]
    """Answers a number that the host reads (the norm of the gradient, the overflow flag) by 0, and a collective at once."""

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator on tensors without data."""
        if func is SCALAR:
            return 0.0 if args[0].dtype.is_floating_point else 0
        return func(*args, **kwargs)

    def communicate(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Say that the collective is done: nobody sends, and there are no data to send."""
        del kwargs
        if not func._schema.returns:  # noqa: SLF001  # what the operator promises to return
            return None
        done = FakeWork().boxed()
        return (args[0], done) if len(func._schema.returns) > 1 else done  # noqa: SLF001


class TrackerOfShapes(TrackerWithoutData):  # type: ignore[no-untyped-call]
    """Uses torch's meta tensors, wherever the trainer asks for a GPU or the CPU: five times as fast as torch's FakeTensorMode.

    What FakeTensorMode adds is that a tensor knows on which device it pretends to be; torch without CUDA cannot differentiate
    tensors that pretend to be on a GPU, so that nothing is lost here: like_gpu.py makes the choices that depend on the device.
    """

    META = torch.device("meta")

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self._known: dict[Any, tuple[torch.Size, tuple[int, ...], torch.dtype]] = {}
        """Shapes of results by operator and shapes of arguments: torch computes many of them in Python, 100 us each."""

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator on shapes; one that writes into its argument has nothing to do."""
        if func is SCALAR:
            return 0.0 if args[0].dtype.is_floating_point else 0
        written = _written(func)
        if written is not None:
            return args[0] if written else None
        if "device" in kwargs:
            kwargs = {**kwargs, "device": self.META}
        key = _key(func, args, kwargs) if _makes_one(func) else None
        known = self._known.get(key) if key is not None else None
        if known is not None:
            return torch.empty_strided(*known[:2], dtype=known[2], device=self.META)
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.device.type == "cpu":  # made of numbers: torch.tensor([1.0])
            result = result.to(self.META)
        if key is not None:
            self._known[key] = result.shape, result.stride(), result.dtype
        return result


@cache
def _makes_one(func: Any) -> bool:
    """Return whether an operator returns one new tensor and changes nothing."""
    schema = func._schema  # noqa: SLF001  # torch's description of its arguments
    aliases = [one.alias_info for one in (*schema.arguments, *schema.returns) if one.alias_info is not None]
    is_new = not aliases and func.name() != UNSAFE_VIEW
    return is_new and [str(one.type) for one in schema.returns] == ["Tensor"]


def _key(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what the shape of a result depends on; None where an argument is a list of tensors."""
    key: list[Any] = [func, *kwargs.items()]
    for one in args:
        if isinstance(one, torch.Tensor):
            key.append((one.shape, one.stride(), one.dtype))
        elif isinstance(one, list):
            if any(isinstance(item, torch.Tensor) for item in one):
                return None
            key.append(tuple(one))
        else:
            key.append((type(one), one))
    return tuple(key) if not any(isinstance(value, (torch.Tensor, list)) for value in kwargs.values()) else None


@cache
def _written(func: Any) -> bool | None:
    """Return whether an operator only writes into its first argument and returns it (True) or returns nothing (False); else None."""
    schema = func._schema  # noqa: SLF001  # torch's description of its arguments
    first = schema.arguments[0].alias_info if schema.arguments else None
    if first is None or not first.is_write or func.name().split(".")[0] in SHAPING:
        return None
    if not schema.returns:
        return False
    only = (
        len(schema.returns) == 1 and schema.returns[0].alias_info is not None and schema.returns[0].alias_info.is_write
    )
    return True if only else None


UNSAFE_VIEW = "aten::_unsafe_view"
"""Returns a view of its argument, which torch's description of it does not say."""
SHAPING = {
    "aten::set_",
    "aten::resize_",
    "aten::t_",
    "aten::transpose_",
    "aten::squeeze_",
    "aten::unsqueeze_",
    "aten::detach_",
}
"""Operators that change the shape or the storage of their argument."""
