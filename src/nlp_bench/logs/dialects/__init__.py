"""One file for each dialect family; the reader uses the `DIALECTS` of every module here."""

import importlib
import pkgutil
from functools import cache

from nlp_bench.logs.dialect import Dialect


@cache
def all_dialects() -> tuple[Dialect, ...]:
    """Return the dialects of all modules of this package, in the order of the module names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return tuple(dialect for module in modules for dialect in getattr(module, "DIALECTS", ()))
