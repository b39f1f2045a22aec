"""Finds the installed kernel providers without importing them: Transformer Engine, NVIDIA Apex, a C compiler."""

import importlib.metadata
import importlib.util
import os
import shutil
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from nlp_bench.errors import UsageError

NAMES: Mapping[str, str] = {"te": "Transformer Engine", "apex": "Apex", "torch": "torch"}
"""Name of each value of `--kernels`."""
APEX_EXTENSIONS = ("amp_C", "fused_layer_norm_cuda", "fused_weight_gradient_mlp_cuda")
"""Compiled modules of Apex that the trainer calls; `--cpp_ext --cuda_ext` of its setup.py builds them."""
BUILD = "compile it with `src/compile_build.sh"


def missing(provider: str) -> str | None:
    """Return what is missing for `te` or `apex` and the remedy, or None where everything is installed."""
    if provider == "te" and importlib.util.find_spec("transformer_engine") is None:
        return f"Transformer Engine is not installed; {BUILD} --te`, or use --kernels torch"
    return _missing_apex() if provider == "apex" else None


def check_installed(asked: str, *, eight_bit: bool) -> None:
    """Raise UsageError where the provider `asked` for is not installed; `eight_bit` floats need Transformer Engine."""
    check_shadow()
    reason = missing(asked)
    if reason:
        raise UsageError(f"kernels: {asked} asked for, but {reason}")
    reason = missing("te") if eight_bit else None
    if reason:
        raise UsageError(
            f"fp8_format: 8-bit floats need Transformer Engine, but {reason.split(', or')[0]}, or leave it out"
        )


def check_shadow() -> None:
    """Raise UsageError where a folder is importable as Transformer Engine but not installed: megatron-core then fails to start.

    And where another megatron-core would train than the installed one, whose version the log and the records name.
    """
    _check_megatron()
    spec = importlib.util.find_spec("transformer_engine")
    if spec is None:
        return
    try:
        importlib.metadata.version("transformer-engine")
    except importlib.metadata.PackageNotFoundError:
        places = ", ".join(spec.submodule_search_locations or ())
        raise UsageError(
            f"kernels: {places} is found as Transformer Engine but no such package is installed; remove it from the search path "
            f"(PYTHONPATH, or the folder that the ranks start in), or {BUILD} --te`"
        ) from None


def _check_megatron() -> None:
    spec = importlib.util.find_spec("megatron.core") if importlib.util.find_spec("megatron") else None
    try:
        installed = importlib.metadata.distribution("megatron-core")
    except importlib.metadata.PackageNotFoundError:
        return
    own = Path(str(installed.locate_file("megatron/core/__init__.py")))
    if spec and spec.origin and own.exists() and not own.samefile(spec.origin):
        place = Path(spec.origin).parents[2]
        raise UsageError(
            f"megatron-core: {place} would train, not the installed megatron-core {installed.version}, which the log and the records name; "
            f"take {place} out of PYTHONPATH (a checkout of Megatron-LM is measured by --trainer megatron-lm)"
        )


def _missing_apex() -> str | None:
    spec = importlib.util.find_spec("apex")
    if spec is None:
        return f"Apex is not installed; {BUILD} --apex SOURCE`, or use --kernels torch"
    if not spec.origin or not (Path(spec.origin).parent / "optimizers" / "fused_adam.py").is_file():
        return (
            "the installed package `apex` is not NVIDIA's (the one on PyPI is a toolkit for web sites); "
            f"`pip uninstall apex`, then {BUILD} --apex https://github.com/NVIDIA/apex`"
        )
    absent = [name for name in APEX_EXTENSIONS if importlib.util.find_spec(name) is None]
    if absent:
        return (
            f"Apex is installed without its extension {', '.join(absent)} (it was built without --cpp_ext --cuda_ext); "
            f"{BUILD} --apex SOURCE`, or use --kernels torch"
        )
    return None


def has_c_compiler() -> bool:
    """Return whether CC names one, or cc, gcc or clang is on PATH."""
    return "CC" in os.environ or any(shutil.which(name) for name in ("cc", "gcc", "clang"))


def compiler_gap() -> str | None:
    """Return what torch.compile lacks to make kernels for a GPU, None where nothing is missing.

    Triton compiles a C file that includes Python.h before its first kernel (triton/runtime/build.py); the training fails where it cannot.
    """
    if not has_c_compiler():
        return "a C compiler (install gcc)"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return None if header.is_file() else f"{header} (install python3-dev)"
