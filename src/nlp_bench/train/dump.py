"""What the log says before the first iteration: settings as resolved, kernels, versions, device, size of the model."""

import platform
from dataclasses import asdict

from nlp_bench import __version__
from nlp_bench.packages import installed_version
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings


def argument_lines(settings: Settings, layout: Layout) -> list[str]:
    """Return the resolved arguments in Megatron-LM's shape: `  seq_length ....... 2048`, sorted by name."""
    values = (
        asdict(settings)
        | asdict(layout)
        | {
            "ffn_hidden_size": settings.ffn_width,
            "num_query_groups": settings.query_groups,
            "params_dtype": f"torch.{settings.params_dtype}",
            "recompute_granularity": settings.granularity,
            # as Megatron-LM's dump names them
            "fp8": settings.fp8_format,
            "virtual_pipeline_model_parallel_size": layout.virtual_stages if layout.virtual_stages > 1 else None,
        }
    )
    del values["fp8_format"], values["virtual_stages"]
    words = {name: _words(value) for name, value in values.items()}
    lines = [f"  {name} {'.' * max(3, 48 - len(name))} {words[name]}" for name in sorted(words)]
    rule = "-" * 24
    return [f"{rule} arguments {rule}", *lines, f"{rule} end of arguments {rule}"]


def _words(value: object) -> str:
    return " ".join(map(str, value)) or "None" if isinstance(value, tuple) else str(value)


def fact_lines(facts: dict[str, str]) -> list[str]:
    """Return one line per fact, in the order given: ` > device: CPU`."""
    return [f" > {name}: {text}" for name, text in facts.items()]


def versions(cuda: str | None) -> str:
    """Return the versions of everything that moves the number, on one line."""
    names = ("torch", "megatron-core", "apex", "transformer-engine")
    found = [f"{name} {known}" for name in names if (known := installed_version(name))]
    python = f"Python {platform.python_version()}"
    return ", ".join([f"nlp-bench {__version__}", python, *found, f"CUDA {cuda}" if cuda else "no CUDA"])


def data_text(settings: Settings) -> str:
    """Say where the tokens come from."""
    return "mock: random tokens, no file is read" if settings.mock_data else f"{' '.join(settings.data_path)}"
