"""Initial weights that depend on the seed and the parameter's name alone, never on the parallel layout."""

import hashlib
import math
from collections.abc import Iterator

import torch
from megatron.core import parallel_state

from nlp_bench.train.settings import Settings

OUTPUT_LAYERS = ("linear_proj.weight", "linear_fc2.weight")


def draw_weights(model: torch.nn.Module, settings: Settings) -> None:
    """Overwrite every parameter of this rank by its share of the weights that one rank alone would have.

    Weights are normal with `init_method_std`, those that write to the residual stream divided by sqrt(2 * layers of the stack);
    biases are 0 and normalisation weights 1 (Radford et al. 2019; Megatron-LM does the same).
    """
    with torch.no_grad():
        for name, parameter in _global_names(model, tied=not settings.untie_embeddings_and_output_weights):
            if parameter.dim() == 1:
                parameter.fill_(float("norm" in name and name.endswith("weight")))
            else:
                scale = 1 / math.sqrt(2 * _depth(name, settings)) if name.endswith(OUTPUT_LAYERS) else 1.0
                parameter.copy_(_share(name, parameter, settings.seed, settings.init_method_std * scale))


def _depth(name: str, settings: Settings) -> int:
    own = settings.decoder_num_layers if name.startswith("decoder.") else settings.encoder_num_layers
    return own or settings.num_layers


def _global_names(model: torch.nn.Module, *, tied: bool) -> Iterator[tuple[str, torch.nn.Parameter]]:
    for name, parameter in model.named_parameters():
        if name.startswith(("decoder.layers.", "encoder.layers.")):
            stack, _, index, rest = name.split(".", 3)
            layer = model.get_submodule(f"{stack}.layers.{index}")
            yield f"{stack}.layers.{int(layer.layer_number) - 1}.{rest}", parameter  # type: ignore[arg-type]
        elif tied and name == "output_layer.weight":
            yield "embedding.word_embeddings.weight", parameter
        else:
            yield name, parameter


def _share(name: str, parameter: torch.nn.Parameter, seed: int, deviation: float) -> torch.Tensor:
    parallel = getattr(parameter, "tensor_model_parallel", False)
    ranks = parallel_state.get_tensor_model_parallel_world_size() if parallel else 1
    dimension, stride = getattr(parameter, "partition_dim", 0), getattr(parameter, "partition_stride", 1)
    shape = list(parameter.shape)
    if ranks > 1:
        shape[dimension] *= ranks
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    whole = torch.empty(shape).normal_(0.0, deviation, generator=generator)
    if ranks == 1:
        return whole
    rank = parallel_state.get_tensor_model_parallel_rank()
    pieces = torch.split(
        whole, parameter.shape[dimension] // stride, dim=dimension
    )  # stride 2: gate and value of SwiGLU
    return torch.cat(pieces[rank::ranks], dim=dimension)
