"""Which other packages are installed, and what to type for one that is not."""

from importlib.util import find_spec

from nlp_bench.errors import NlpBenchError

EXTRAS = {
    "numpy": "",
    "backports": "",
    "shtab": "",
    "jinja2": "",
    "pynvml": "",
    "torch": "train",
    "megatron": "train",
    "tokenizers": "train",
    "sentencepiece": "train",
    "tensorboardX": "train",
    "wandb": "watch",
    "pandas": "report",
    "matplotlib": "report",
    "scipy": "fit",
}
"""Module to the extra of this package that installs it; none for what every installation has."""

_NAMES = {"backports": "backports.zstd", "pynvml": "nvidia-ml-py"}


def installed_version(package: str) -> str | None:
    """Return the version of `package`, None where it is not installed; nothing is imported."""
    from importlib import metadata  # noqa: PLC0415  # few callers need it, and start-up is measured

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def is_missing(module: str) -> bool:
    """Return whether `module` cannot be imported; nothing is imported."""
    return find_spec(module) is None


def remedy(module: str) -> str:
    """Return the command that installs a module of EXTRAS."""
    # What every installation has is missing in a checkout alone, where pip knows no package nlp-bench.
    return (
        f"pip install 'nlp-bench[{EXTRAS[module]}]'" if EXTRAS[module] else f"pip install {_NAMES.get(module, module)}"
    )


def lacking(error: ImportError, what: str = "this command") -> NlpBenchError | None:
    """Return the error, of two lines, for a module of EXTRAS that is not installed; None for any other failed import."""
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS or not is_missing(module):
        return None
    checkout = "" if EXTRAS[module] in {"fit", "watch"} else "; in a checkout: bash benchmark/env/setup_venv.sh"
    return NlpBenchError(
        f"{what} needs the Python package {module}, which is not installed here\n  {remedy(module)}{checkout}"
    )
