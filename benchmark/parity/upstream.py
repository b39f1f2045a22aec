# ruff: noqa: INP001  # a script, not a package
"""Run one of Megatron-LM's own pretrain_*.py on CPU ranks, from the initial weights that our trainer draws.

    MEGATRON_LM_REPO=CHECKOUT torchrun --nproc-per-node N benchmark/parity/upstream.py pretrain_gpt.py ARGUMENTS

What megatron-core asks of torch.cuda is answered as for our own CPU ranks (nlp_bench.train.cpu); the rest here is what Megatron-LM's
training loop asks on top: streams, events, memory counters. Written for core_v0.16.1. No arithmetic is replaced, except that
its norm for CPU ranks, which refuses sequence parallelism, becomes PyTorch's, as in our trainer.
"""

import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import resource
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

REPOSITORY = Path(os.environ["MEGATRON_LM_REPO"])
sys.path[0:1] = [str(REPOSITORY), str(Path(__file__).resolve().parents[2] / "src")]

import torch  # noqa: E402  # the checkout's packages come first

from nlp_bench.train import cpu  # noqa: E402

CPU = torch.device("cpu")


class Stream:
    """A stream or an event of a device that does everything at once."""

    def __init__(self, *_: Any, **__: Any) -> None: ...
    def __getattr__(self, _name: str) -> Any:
        return lambda *_, **__: 0.0


def _redirect_cuda() -> None:
    cuda: Any = torch.cuda
    cuda.Stream = cuda.Event = Stream
    cuda.current_stream = lambda *_: Stream()
    cuda.stream = lambda _: contextlib.nullcontext()
    cuda.device_count = lambda: 8
    cuda.set_stream = cuda.set_device = cuda.empty_cache = cuda.reset_peak_memory_stats = lambda *_: None
    for name in (
        "memory_allocated",
        "max_memory_allocated",
        "memory_reserved",
        "max_memory_reserved",
        "device_memory_used",
    ):
        setattr(cuda, name, lambda *_: 0)
    cuda.memory_stats = lambda *_: {}
    cuda.get_device_capability = lambda *_: (8, 0)
    cuda.get_device_properties = lambda *_: SimpleNamespace(
        major=8, minor=0, name="cpu", multi_processor_count=1, total_memory=2**33
    )
    factories: Any = torch
    for name in ("tensor", "zeros", "empty", "ones", "full", "arange", "randn", "rand", "randint"):
        setattr(factories, name, cpu.on_cpu(getattr(torch, name)))
    factories.compile = lambda function=None, *_, **__: function if function is not None else (lambda one: one)


class Norm:
    """PyTorch's own norm; a class, for megatron-core would take a function as the layer itself."""

    def __new__(cls, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> Any:
        """Make one."""
        kind = torch.nn.LayerNorm if config.normalization == "LayerNorm" else torch.nn.RMSNorm
        made = kind(hidden_size, eps)
        for parameter in made.parameters():
            parameter.sequence_parallel = config.sequence_parallel
        return made


def _use_plain_norm() -> None:
    for name in (
        "models.gpt.gpt_layer_specs.LNImpl",
        "models.bert.bert_layer_specs.LNImpl",
        "models.bert.bert_lm_head.LNImpl",
        "models.T5.t5_spec.LNImpl",
        "models.T5.t5_spec.TENorm",  # behind its last layers also where all else is local: without Transformer Engine None
        "models.backends.LNImpl",
        "models.backends.WrappedTorchNorm",
        "transformer.transformer_block.LayerNormImpl",
    ):
        module, _, attribute = name.rpartition(".")
        setattr(importlib.import_module(f"megatron.core.{module}"), attribute, Norm)


def _use_compiled_helpers() -> None:
    """Load the sample index's compiled helpers from the installed megatron-core: a checkout would compile its own."""
    name = "megatron.core.datasets.helpers_cpp"
    installed = importlib.metadata.distribution("megatron-core")
    (file,) = (file for file in installed.files or () if str(file).startswith(name.replace(".", "/")))
    spec: Any = importlib.util.spec_from_file_location(name, installed.locate_file(file))
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


def _prepare() -> None:
    cpu.install()
    _redirect_cuda()
    datasets: Any = importlib.import_module("megatron.core.datasets.utils")
    datasets.compile_helpers = lambda: None
    _use_compiled_helpers()
    _use_plain_norm()
    specs: Any = importlib.import_module("megatron.core.models.bert.bert_layer_specs")
    specs.bert_layer_with_transformer_engine_spec = None  # imported by the script, which is told to use the local one
    kernels: Any = ModuleType("megatron.core.transformer.custom_layers.batch_invariant_kernels")  # imports Triton
    kernels.enable_batch_invariant_mode = lambda: None
    kernels.is_batch_invariant_mode_enabled = lambda: False
    sys.modules[kernels.__name__] = kernels
    start: Any = importlib.import_module("megatron.training.initialize")
    start.compile_dependencies = start._compile_dependencies = lambda: None  # noqa: SLF001
    training: Any = importlib.import_module("megatron.training.training")
    training.initialize_megatron = functools.partial(start.initialize_megatron, allow_no_cuda=True)
    _draw_our_weights(training)
    if words := os.environ.get("NLP_BENCH_PARITY_WORDS"):
        _read_our_samples(training, shlex.split(words))


NAMES = {
    "t5": {"text_enc": "encoder_tokens", "text_dec": "decoder_tokens", "labels": "labels", "loss_mask": "loss_mask"},
    "bert": {
        "text": "tokens",
        "types": "types",
        "labels": "labels",
        "is_random": "is_random",
        "loss_mask": "loss_mask",
    },
}
"""Megatron-LM's names of what is in a batch, and ours."""


def _read_our_samples(training: Any, words: list[str]) -> None:
    """Let Megatron-LM train on our samples of T5 and BERT: its own data sets want a WordPiece vocabulary."""
    from megatron.core.rerun_state_machine import RerunDataIterator  # noqa: PLC0415

    from nlp_bench.train.arguments import parse  # noqa: PLC0415  # megatron is imported by now
    from nlp_bench.train.families import family_of  # noqa: PLC0415
    from nlp_bench.train.layout import Layout  # noqa: PLC0415
    from nlp_bench.train.samples import microbatches  # noqa: PLC0415

    settings = parse(words)

    def batches() -> Iterator[dict[str, torch.Tensor]]:
        layout = Layout.of(settings, int(os.environ["WORLD_SIZE"]))
        job: Any = SimpleNamespace(settings=settings, layout=layout, device=CPU)
        for batch in microbatches(family_of(settings).open_samples(job), settings, layout, CPU):
            named = {name: batch[ours].long() for name, ours in NAMES[settings.model_family].items()}
            if settings.model_family == "bert":
                named["padding_mask"] = batch.get("mask", torch.ones_like(batch["tokens"])).long()
            else:
                encoder = batch.get("encoder_mask", torch.ones_like(batch["encoder_tokens"])).long()
                named |= {"enc_mask": encoder, "dec_mask": torch.ones_like(batch["decoder_tokens"])}
            yield named

    def iterators(*_: Any, **__: Any) -> tuple[Any, None, None]:
        given = training.get_args()
        given.do_train, given.do_valid, given.do_test = True, False, False
        return RerunDataIterator(batches()), None, None

    training.build_train_valid_test_data_iterators = iterators
    if settings.model_family == "t5":
        _mask_what_is_padding()


def _mask_what_is_padding() -> None:
    """Its masks without Transformer Engine take every token 0 for padding, and T5's decoder starts with one."""
    from megatron.core.datasets.t5_dataset import T5MaskedWordPieceDataset  # noqa: PLC0415  # as above

    def masks(_encoder: Any, decoder: torch.Tensor, padding: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
        length, keys = decoder.shape[1], padding[:, None, None, :]
        later = torch.ones(length, length).triu(1).bool()[None, None]
        return keys.expand(-1, 1, padding.shape[1], -1), later, keys.expand(-1, 1, length, -1)

    T5MaskedWordPieceDataset.config_attention_mask = staticmethod(masks)


class Renamed:
    """Megatron-LM's BERT under the names that our own gives its heads, by which weights are drawn."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model, self.get_submodule = model, model.get_submodule

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield the parameters."""
        for name, parameter in self._model.named_parameters():
            head = name.replace("binary_head.", "binary_head.logits.").replace("pooler.dense.", "binary_head.pooler.")
            yield head, parameter


def _draw_our_weights(training: Any) -> None:
    """Let every model begin with the weights that our trainer draws by name and seed."""
    from nlp_bench.train.model import draw_weights  # noqa: PLC0415  # megatron is imported by now

    made = training.get_model

    def get_model(provider: Any, *arguments: Any, **options: Any) -> Any:
        def provide(*provided: Any, **named: Any) -> Any:
            model, given = provider(*provided, **named), training.get_args()
            settings: Any = SimpleNamespace(
                seed=given.seed,
                init_method_std=given.init_method_std,
                num_layers=given.num_layers,
                encoder_num_layers=given.encoder_num_layers,
                decoder_num_layers=given.decoder_num_layers,
                untie_embeddings_and_output_weights=given.untie_embeddings_and_output_weights,
            )
            drawn: Any = Renamed(model)
            draw_weights(drawn, settings)
            for (
                name,
                parameter,
            ) in model.named_parameters():  # of T5's logits, which neither the paper nor ours has: stays 0
                if name == "lm_head.output_layer.bias":
                    parameter.requires_grad_(False)
            return model

        return made(provide, *arguments, **options)

    training.get_model = get_model


MOST_BYTES = 16 * 2**30
"""Address space of a rank: what runs away ends, and not the machine."""

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    script = str(REPOSITORY / sys.argv.pop(1))
    sys.argv[0] = script
    _prepare()
    runpy.run_path(script, run_name="__main__")
