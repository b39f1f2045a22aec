"""Redirects megatron-core's calls of torch.cuda to the CPU, with a reason per line, and imports megatron-core."""

import functools
import logging
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

from nlp_bench.packages import import_megatron

EXTENSION = "fused_weight_gradient_mlp_cuda"
CPU = torch.device("cpu")
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]  # replacement of torch.compile, as a decorator


@functools.cache
def install(compiler: Compiler = lambda function: function) -> None:
    """Redirect the few names of torch.cuda that megatron-core 0.16.1 uses, and import it; call before megatron is imported.

    `compiler` replaces torch.compile while megatron-core is imported, by default without an effect: decorating its own fusions, which
    no CPU rank uses, imports torch's compiler, 0.8 s of processor time in each rank, measured on two cores with torch 2.13.
    """
    cuda: Any = torch.cuda
    cuda.current_device = lambda: CPU  # every parameter, buffer and receive tensor is placed there
    cuda.synchronize = lambda *_: None  # the pipeline synchronises after each receive; nothing is asynchronous on a CPU
    cuda.manual_seed = torch.manual_seed  # the tracker of random states seeds the tensor-parallel stream
    cuda.get_rng_state = lambda *_: torch.get_rng_state()  # ... and stores its state
    module: Any = torch
    module.tensor = on_cpu(torch.tensor)  # loss scale and gradient statistics are made on device="cuda"
    module.zeros = on_cpu(torch.zeros)  # overflow flag and token count are made on device="cuda"
    extension: Any = ModuleType(EXTENSION)  # lets the matrix product add up gradients: 1 to 2 % faster
    extension.__spec__ = ModuleSpec(EXTENSION, None)
    extension.wgrad_gemm_accum_fp32 = lambda inputs, gradient, total: total.addmm_(gradient.t(), inputs)
    sys.modules[EXTENSION] = extension
    tensor: Any = torch.Tensor
    tensor.cuda = lambda self, *_, **__: self  # the tied embedding is moved before first and last stage compare it
    tensor.type = _cuda_type_names(torch.Tensor.type)  # optimizers sort parameters by "torch.cuda.FloatTensor"
    import_megatron(compiler)
    from megatron.core import jit  # noqa: PLC0415  # after the redirections above
    from megatron.core.tensor_parallel import random  # noqa: PLC0415  # as above

    jit.jit_fuser = compiler  # for its modules that are imported later
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()  # noqa: SLF001  # dropout and full recompute
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)  # noqa: SLF001  # the same
    logging.getLogger(random.__name__).setLevel(logging.ERROR)  # it warns that the CPU's state changed, as it must here
    _make_optimizers_without_compiler()


def _make_optimizers_without_compiler() -> None:
    """Unwrap the methods of torch's AdamW that are excluded from compilation, for which torch imports its compiler.

    It takes 0.5 s of processor time in each rank, measured as above; a CPU rank compiles nothing. torch 2.6 to 2.13 have the plain
    function in `__wrapped__` and cache the excluded one in `__dynamo_disable` (torch/_compile.py, torch/optim/optimizer.py);
    other versions are not changed.
    """
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        plain = getattr(getattr(torch.optim.Optimizer, name), "__wrapped__", None)
        if plain is not None:
            plain.__dynamo_disable = plain  # noqa: SLF001  # see above
    adam: Any = torch.optim.AdamW
    if hasattr(adam.step, "__wrapped__"):
        adam.step = torch.no_grad()(adam.step.__wrapped__)


def on_cpu(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Wrap a tensor factory, such as torch.zeros, to use the CPU in place of a GPU."""

    @functools.wraps(factory)
    def make(*arguments: Any, device: Any = None, **options: Any) -> torch.Tensor:
        is_gpu = isinstance(device, int) or (device is not None and torch.device(device).type == "cuda")
        return factory(*arguments, device=CPU if is_gpu else device, **options)

    return make


def _cuda_type_names(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def type_name(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        answer = original(tensor, *arguments, **options)
        return answer.replace("torch.", "torch.cuda.", 1) if isinstance(answer, str) else answer

    return type_name
