"""Which other packages are installed, and what to type for one that is not."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nlp_bench.errors import NlpBenchError
from nlp_bench.escape import one_line
from nlp_bench.files import real

EXTRAS = {
    **dict.fromkeys(("numpy", "backports", "shtab", "jinja2", "pynvml"), ""),
    **dict.fromkeys(("torch", "megatron", "tokenizers", "sentencepiece", "tensorboardX"), "train"),
    **dict.fromkeys(("pandas", "matplotlib"), "report"),
    "wandb": "watch",
    "tensorboard": "tables",
    "scipy": "fit",
}
"""Module to the extra of this package that installs it; none for what every installation has."""

COMPILED = frozenset({"_sqlite3", "_lzma", "_bz2", "_ctypes", "zlib"})
"""Modules of Python's own that it is built without where the headers of a library are missing."""
_NAMES = {"backports": "backports.zstd", "pynvml": "nvidia-ml-py"}


def installed_version(package: str) -> str | None:
    """Return the version of `package`, None where it is not installed; nothing is imported.

    Of a torch or numpy that would be imported instead of the installed one, by PYTHONPATH mostly, it is the version in its own files.
    """
    from importlib import metadata  # noqa: PLC0415  # few callers need it, and start-up is measured

    try:
        installed = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return None
    own = real(str(installed.locate_file("")))
    if package in {"torch", "numpy"} and _place_of(package) not in {None, own}:
        return states(package, "(?:__version__|version)") or "unknown"
    return installed.version


def states(module: str, name: str) -> str | None:
    """Return the text `name` of the version.py of the module that would be imported, None where it has none; nothing is imported."""
    found = find_spec(module)
    try:
        text = Path(found.origin or "").with_name("version.py").read_text(encoding="utf-8") if found else ""
    except (OSError, ValueError):
        return None
    known = re.search(rf"^{name}\b.*=\s*['\"](.+)['\"]", text, re.MULTILINE)
    return known[1] if known else None


def is_missing(module: str) -> bool:
    """Return whether `module` cannot be imported; nothing is imported."""
    return find_spec(module) is None


def remedy(module: str) -> str:
    """Return the command that installs a module of EXTRAS."""
    # What every installation has is missing in a checkout alone, where pip knows no package nlp-bench.
    extra = EXTRAS[module]
    return f"pip install 'nlp-bench[{extra}]'" if extra else f"pip install {_NAMES.get(module, module)}"


def lacking(error: ImportError, what: str = "this command") -> NlpBenchError | None:
    """Return the error, of two lines, for a module of EXTRAS, or of Python's own, that is not installed; None for any other failed import."""
    module = (error.name or "").partition(".")[0]
    if module in COMPILED and is_missing(module):
        return NlpBenchError(
            f"{what} needs Python's own module {module.lstrip('_')}, which {sys.executable} was built without\n  take another Python: "
            "NLP_BENCH_PYTHON=/path/to/python3 bash benchmark/env/setup_venv.sh; or build that one again with the library's headers"
        )
    if module not in EXTRAS or not is_missing(module):
        return None
    checkout = (
        "" if EXTRAS[module] in {"fit", "watch", "tables"} else "; in a checkout: bash benchmark/env/setup_venv.sh"
    )
    return NlpBenchError(
        f"{what} needs the Python package {module}, which is not installed here\n  {remedy(module)}{checkout}"
    )


UNUSED = "wandb"


def import_megatron(compiler: Callable[..., Any] | None = None) -> None:
    """Import megatron-core as if Weights & Biases were not installed; `import wandb` works again afterwards.

    megatron-core 0.16.1 imports it for its inference server's log (inference/contexts/dynamic_context.py) where it can: 0.75 s
    of processor time in each rank, measured on two cores with wandb 0.27. A wandb that is imported already stays as it is.
    `compiler` replaces torch.compile meanwhile.
    """
    import torch  # noqa: PLC0415  # slow

    module: Any = torch
    modules: dict[str, Any] = sys.modules
    hidden = UNUSED not in modules
    if hidden:
        modules[UNUSED] = None  # makes the import statement raise ImportError
    compile_, module.compile = module.compile, compiler or module.compile
    try:
        import megatron.core  # noqa: F401, PLC0415  # imports the rest
    finally:
        module.compile = compile_
        if hidden:
            del modules[UNUSED]


def _place_of(module: str) -> Path | None:
    """Return the folder of sys.path that `module` would be imported from; nothing is imported."""
    found = find_spec(module)
    if found is None or found.origin is None:
        return None
    return real(Path(found.origin).parents[1 if found.submodule_search_locations else 0])


def is_of_pythonpath(module: str) -> bool:
    """Return whether PYTHONPATH leads to the `module` that would be imported; nothing is imported."""
    return _place_of(module) in _folders("PYTHONPATH").values()


def hiding(module: str) -> Path | None:
    """Return the folder from which PYTHONPATH brings `module` instead of the installed one, None where it does not; nothing is imported."""
    named = _folders("PYTHONPATH").values()
    others = [entry for entry in sys.path if real(entry) not in named]
    return _place_of(module) if is_of_pythonpath(module) and PathFinder.find_spec(module, others) else None


def _folders(variable: str) -> dict[str, Path]:
    """Return the entries of PYTHONPATH or LD_LIBRARY_PATH as they are written, each with its folder."""
    entries = filter(None, os.environ.get(variable, "").split(os.pathsep))
    return {entry: real(entry) for entry in entries}


TOO_OLD = re.compile(r"(/.+): version .+ not found \(required by (?:.+/site-packages/)?([\w-]+)")
"""The loader's words, for example on libstdc++.so.6. Source: elf/dl-version.c of glibc."""


def not_loadable(error: ImportError) -> NlpBenchError | None:
    """Return the error for a package that this Python cannot load; None for any other failed import.

    PYTHONPATH names it, mostly another Python's, or LD_LIBRARY_PATH a library that is too old for it.
    """
    old = TOO_OLD.search(str(_root(error)))
    if old and real(Path(old[1]).parent) in _folders("LD_LIBRARY_PATH").values():
        return NlpBenchError(
            f"LD_LIBRARY_PATH brings {old[1]}, too old for {old[2]}\n"
            "  unset LD_LIBRARY_PATH, or unload the gcc or conda module that sets it (module list, module unload)"
        )
    own = real(__file__).parent
    files = [file for file in _files_of(error) if not file.is_relative_to(own)]
    for entry, folder in _folders("PYTHONPATH").items():
        found = next((file for file in files if file.is_relative_to(folder)), None)
        if found is not None:
            version = ".".join(map(str, sys.version_info[:2]))
            name = found.relative_to(folder).parts[0].removesuffix(".py")
            why = one_line(" ".join(str(_root(error)).split()))[:160]
            return NlpBenchError(
                f"{name} of {entry} cannot be loaded by this Python ({version}), mostly because it is another Python's: {why}\n"
                f"  PYTHONPATH names {entry}: unset PYTHONPATH, or unload the module that sets it (module list, module unload)"
            )
    return None


def _root(error: BaseException) -> BaseException:
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    return error


def _files_of(error: ImportError) -> Iterator[Path]:
    """Yield the files through which an import went, and the one that lacks what was wanted of it."""
    step = error.__traceback__
    while step:
        yield real(step.tb_frame.f_code.co_filename)
        step = step.tb_next
    if error.path:
        yield real(error.path)
