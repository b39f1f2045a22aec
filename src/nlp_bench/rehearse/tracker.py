"""Tracks memory, operations and communication of every operator of a training step, on tensors with data or without."""

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from nlp_bench.rehearse.operators import KINDS, Collectives, Count, counters
from nlp_bench.rehearse.storages import Label, Storages

TEMPORARY = ("temporary", "")
OUTSIDE = "between the modules"  # made by no module: tensors received from other stages, the micro-batch, the loss
SCALAR = torch.ops.aten._local_scalar_dense.default  # noqa: SLF001  # of every .item(), int(tensor) and bool(tensor)


Substitute = tuple[Any, str, Any]  # a module or class, the name of an attribute, and the value that replaces it


@contextmanager
def substituted(*substitutes: Substitute) -> Iterator[None]:
    """Replace attributes, and restore them afterwards."""
    own = [(place, name, getattr(place, name)) for place, name, _ in substitutes]
    try:
        for place, name, value in substitutes:
            setattr(place, name, value)
        yield
    finally:
        for place, name, value in own:
            setattr(place, name, value)


class Tracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tracks operators; to be entered before the model is built, so that every storage is counted."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages, self.collectives = Storages(), Collectives()
        self.flops: Counter[str] = Counter()
        self.workspaces: dict[Any, Count] = {}  # operator to the bytes of its workspace, from its arguments
        self._counters = counters()
        self._communication = {
            getattr(getattr(torch.ops.c10d, name), overload): name
            for name in KINDS
            for overload in getattr(torch.ops.c10d, name).overloads()
        }
        self._names: dict[int, str] = {}
        self._running: list[str] = []  # names of the modules whose forward pass is running, the innermost last
        self._paused = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from wrapping the function below, which imports its compiler (0.6 s) and costs 5 us in each call."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator and record it."""
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
        """Run an operator; overridden for tensors without data."""
        return func(*args, **kwargs)

    def communicate(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run a collective; overridden for tensors without data."""
        return func(*args, **kwargs)

    def label(self) -> Label:
        """Return the label of a tensor that is made now.

        A tensor that is made by a forward pass is an activation, also where it is recomputed in the backward pass, and one that
        is made outside of modules while autograd records (received tensors, the loss); all others are temporary: gradients of
        activations, tensors of the optimizer.
        """
        if self._running:
            return "activations", self._running[-1]
        in_backward = torch._C._current_graph_task_id() != -1  # noqa: SLF001  # -1: none runs
        if in_backward or not torch.is_grad_enabled():
            return TEMPORARY
        return "activations", OUTSIDE

    def name_modules(self, parts: Sequence[torch.nn.Module]) -> None:
        """Set the names of a rank's modules, without the wrappers of the model and with * for the numbers of layers."""
        for part in parts:
            for name, module in part.named_modules():
                short = re.sub(r"\.\d+(?=\.|$)", ".*", re.sub(r"^(module(\.|$))+", "", name))
                self._names[id(module)] = short or type(module).__name__

    def begin(self) -> None:
        """Reset the counts and the peak."""
        self.storages.begin()
        self.collectives.begin()
        self.flops.clear()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing inside."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    @contextmanager
    def watching(self) -> Iterator["Tracker"]:
        """Track operators, modules and storages that are resized in place (which is no operator).

        Tensors that gloo allocates while it is waited for do not count.
        """
        resize, wait = torch.UntypedStorage.resize_, dist.Work.wait

        def resized(storage: torch.UntypedStorage, size: int) -> Any:
            answer = resize(storage, size)
            self.storages.resized(storage)
            return answer

        def waited(work: dist.Work, *arguments: Any) -> bool:
            with self.paused():
                return wait(work, *arguments)

        def enter(module: torch.nn.Module, _inputs: Any) -> None:
            self._running.append(self._names.get(id(module), type(module).__name__))

        def leave(_module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
            self._running.pop()

        with substituted((torch.UntypedStorage, "resize_", resized), (dist.Work, "wait", waited)), self:
            hooks = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
            try:
                yield self
            finally:
                for hook in hooks:
                    hook.remove()


class _Done(dist.Work):
    """A completed collective: no data are sent."""

    wait = is_completed = lambda *_: True  # type: ignore[assignment]


_DONE = _Done()


class TrackerWithoutData(Tracker):  # type: ignore[no-untyped-call]
    """Returns 0 for a number that the host reads (the norm of the gradient, the overflow flag), and completes collectives at once."""

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator on tensors without data."""
        if func is SCALAR:
            return 0.0 if args[0].dtype.is_floating_point else 0
        return super().run(func, args, kwargs)

    def communicate(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return a completed collective."""
        del kwargs
        returned = len(func._schema.returns)  # noqa: SLF001  # number of declared results
        if not returned:
            return None
        return (args[0], _DONE.boxed()) if returned > 1 else _DONE.boxed()


class TrackerOfShapes(TrackerWithoutData):  # type: ignore[no-untyped-call]
    """Places all tensors on torch's meta device, whatever device is requested: five times as fast as torch's FakeTensorMode.

    Unlike a meta tensor, a fake tensor has the requested device; but torch without CUDA cannot differentiate fake tensors on a GPU,
    so nothing is lost: gpu.py replaces the choices that depend on the device.
    """

    META = torch.device("meta")

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[Any, tuple[torch.Size, tuple[int, ...], torch.dtype]] = {}
        """Cache of the shapes of results: torch computes many of them in Python, 100 us each."""

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator on shapes; one that only writes into its argument does nothing."""
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


UNSAFE_VIEW = "aten::_unsafe_view"  # returns a view of its argument, although its schema does not say so
SHAPING = tuple(f"aten::{name}_" for name in ("set", "resize", "t", "transpose", "squeeze", "unsqueeze", "detach"))
"""Operators that change the shape or the storage of their argument."""


@cache
def _makes_one(func: Any) -> bool:
    """Return whether an operator returns one new tensor and changes none."""
    schema = func._schema  # noqa: SLF001  # torch's only description of its arguments
    aliases = [one.alias_info for one in (*schema.arguments, *schema.returns) if one.alias_info is not None]
    is_new = not aliases and func.name() != UNSAFE_VIEW
    return is_new and [str(one.type) for one in schema.returns] == ["Tensor"]


@cache
def _written(func: Any) -> bool | None:
    """Return for an operator that only writes into its first argument whether it returns that argument; None for others."""
    schema = func._schema  # noqa: SLF001  # torch's description of its arguments
    first = schema.arguments[0].alias_info if schema.arguments else None
    if first is None or not first.is_write or func.name().split(".")[0] in SHAPING:
        return None
    if not schema.returns:
        return False
    returned = schema.returns[0].alias_info
    return True if len(schema.returns) == 1 and returned is not None and returned.is_write else None


def _key(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return the cache key of a result's shape; None where an argument is a list of tensors."""
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


_COMPILING: list[Tracker] = []  # the tracker of a rank whose kernels are compiled; empty on a CPU rank


def compile_for(tracker: Tracker) -> None:
    """Count each function that `one_kernel` has wrapped as one kernel from now on."""
    _COMPILING[:] = [tracker]


def one_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace torch.compile: only results and saved tensors count as memory, as of one kernel, no intermediate results.

    Autograd decides which tensors are saved for the backward pass, as with the compiler (whose partitioner may save less).
    """

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        if not _COMPILING:
            return function(*arguments, **options)
        with _COMPILING[0].storages.one_kernel():
            return function(*arguments, **options)

    return run
