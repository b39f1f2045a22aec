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


def build_command(options: str) -> str:
    """Return what to do so that what `options` name is there."""
    return f"compile it with `src/compile_build.sh {options}`"


NO_TE = f"Transformer Engine is not installed; {build_command('--te')}"


def missing(provider: str) -> str | None:
    """Return what is missing for `te` or `apex` and the remedy, or None where everything is installed."""
    if provider == "te" and importlib.util.find_spec("transformer_engine") is None:
        return f"{NO_TE}, or use --kernels torch"
    if provider != "apex":
        return None
    spec = importlib.util.find_spec("apex")
    if spec is None:
        return f"Apex is not installed; {build_command('--apex SOURCE')}, or use --kernels torch"
    if not spec.origin or not (Path(spec.origin).parent / "optimizers" / "fused_adam.py").is_file():
        return (
            "the installed package `apex` is not NVIDIA's (the one on PyPI is a toolkit for web sites); "
            f"`pip uninstall apex`, then {build_command('--apex https://github.com/NVIDIA/apex')}"
        )
    absent = [name for name in APEX_EXTENSIONS if importlib.util.find_spec(name) is None]
    if absent:
        return (
            f"Apex is installed without its extension {', '.join(absent)} (it was built without --cpp_ext --cuda_ext); "
            f"{build_command('--apex SOURCE')}, or use --kernels torch"
        )
    return None


def check_installed(asked: str, *, eight_bit: bool) -> None:
    """Raise UsageError where the provider `asked` for is not installed; `eight_bit` floats need Transformer Engine."""
    check_shadow()
    reason = missing(asked)
    if reason:
        raise UsageError(f"kernels: {asked} asked for, but {reason}")
    if eight_bit and missing("te"):
        raise UsageError(f"fp8_format: 8-bit floats need Transformer Engine, but {NO_TE}, or leave it out")


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
            f"(PYTHONPATH, or the folder that the ranks start in), or {build_command('--te')}"
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


def has_c_compiler() -> bool:
    """Return whether the one that CC names is on PATH; without CC whether cc, gcc or clang is."""
    named = os.environ.get("CC")
    return any(shutil.which(name) for name in (("cc", "gcc", "clang") if named is None else (named,)))


def compiler_gap() -> str | None:
    """Return what torch.compile lacks to make kernels for a GPU, None where nothing is missing.

    Triton compiles a C file that includes Python.h before its first kernel (triton/runtime/build.py); the training fails where it cannot.
    """
    if not has_c_compiler():
        named = os.environ.get("CC")
        return "a C compiler (install gcc)" if named is None else f"the C compiler that CC={named} names (or unset CC)"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return None if header.is_file() else f"{header} (install python3-dev)"
