"""What megatron-core asks of torch.cuda, answered by the CPU: one reason per line. And importing megatron-core at all."""

import functools
import logging
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

EXTENSION = "fused_weight_gradient_mlp_cuda"
CPU = torch.device("cpu")
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]  # from a function to one that does the same


@functools.cache
def install(compiler: Compiler = lambda function: function) -> None:
    """Redirect the few names of torch.cuda that megatron-core 0.16.1 uses, and import it; call before megatron is imported.

    `compiler` stands for torch.compile while megatron-core is imported, by default as if there were none: decorating its own fusions,
    which no CPU rank uses, imports torch's compiler, 0.8 s of processor time in each rank, measured on two cores with torch 2.13.
    """
    cuda: Any = torch.cuda
    cuda.current_device = lambda: CPU  # every parameter, buffer and receive tensor is placed there
    cuda.synchronize = lambda *_: None  # the pipeline synchronises after each receive; the CPU always is
    cuda.manual_seed = torch.manual_seed  # the tracker of random states seeds the tensor-parallel stream
    cuda.get_rng_state = lambda *_: torch.get_rng_state()  # ... and keeps its state
    module: Any = torch
    module.tensor = on_cpu(torch.tensor)  # loss scale and gradient statistics are made on device="cuda"
    module.zeros = on_cpu(torch.zeros)  # overflow flag and token count are made on device="cuda"
    extension: Any = ModuleType(EXTENSION)  # lets the matrix product add up gradients: 1 to 2 % faster
    extension.__spec__ = ModuleSpec(EXTENSION, None)
    extension.wgrad_gemm_accum_fp32 = lambda inputs, gradient, total: total.addmm_(gradient.t(), inputs)
    sys.modules[EXTENSION] = extension
    tensor: Any = torch.Tensor
    tensor.cuda = lambda self, *_, **__: self  # the tied embedding is moved before the pipeline's ends compare it
    tensor.type = _cuda_type_names(torch.Tensor.type)  # optimizers sort parameters by "torch.cuda.FloatTensor"
    compile_, module.compile = module.compile, compiler
    try:
        import_megatron()
    finally:
        module.compile = compile_
    from megatron.core import jit  # noqa: PLC0415  # after the names above
    from megatron.core.tensor_parallel import random  # noqa: PLC0415  # as above

    jit.jit_fuser = compiler  # for those of its modules that are imported later
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()  # noqa: SLF001  # dropout and full recompute
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)  # noqa: SLF001  # the same
    logging.getLogger(random.__name__).setLevel(logging.ERROR)  # it warns that the CPU's generator moved: it must here
    _make_optimizers_without_compiler()


def _make_optimizers_without_compiler() -> None:
    """Let torch's AdamW run as it is, not as functions that the compiler is told to leave alone, for which torch imports it.

    0.5 s of processor time in each rank, measured as above; a CPU rank compiles nothing. torch 2.6 to 2.13 hide the plain function
    behind `__wrapped__` and keep the compiler's answer in `__dynamo_disable` (torch/_compile.py, torch/optim/optimizer.py);
    where they do not, nothing changes.
    """
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        plain = getattr(getattr(torch.optim.Optimizer, name), "__wrapped__", None)
        if plain is not None:
            plain.__dynamo_disable = plain  # noqa: SLF001  # as said
    adam: Any = torch.optim.AdamW
    if hasattr(adam.step, "__wrapped__"):
        adam.step = torch.no_grad()(adam.step.__wrapped__)


def on_cpu(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function that makes a tensor, such as torch.zeros, with the CPU wherever a GPU is asked for."""

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
