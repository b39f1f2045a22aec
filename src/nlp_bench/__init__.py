"""nlp-bench: how fast a machine trains large language models, as one number that can be defended.

    import nlp_bench

    log = nlp_bench.read_log("job.out", sequence_length=2048)      # a log of any dialect, or a run folder
    result = nlp_bench.measure(log, limit=560)                     # the numbers of `nlp-bench report`
    result.time_to_report_s.steady                                 # seconds; result.outcome and .reasons where there is none
    log.to_frame()                                                 # a row for each logged line
    nlp_bench.to_frame([result])                                   # a row for each run

`read_logs` reads folders and patterns, `compare` holds runs against each other, `plan` ranks configurations before any job. A log that
cannot give a number is a result with the outcome REFUSED and its reasons; wrong arguments raise NlpBenchError. Example: docs/api.md.
"""
# ruff: noqa: TC004  # the names of __all__ are imported when they are used

import sys
from types import ModuleType

if sys.version_info < (3, 10):  # noqa: UP036  # by `python -m`, in an image mostly: pip installs it nowhere else
    sys.exit(f"nlp-bench: error: it needs Python 3.10 to 3.13; {sys.executable} is {sys.version.split()[0]}")

# As in typing, which takes 10 ms to import, in which Ctrl-C would end `python -m nlp_bench` with a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from nlp_bench.api import Comparison, Log, Plan, Result, compare, measure, plan, read_log, read_logs, to_frame
    from nlp_bench.errors import NlpBenchError
    from nlp_bench.measure.rows import Record
    from nlp_bench.outcome import Outcome

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "Log",
    "NlpBenchError",
    "Outcome",
    "Plan",
    "Record",
    "Result",
    "compare",
    "measure",
    "plan",
    "read_log",
    "read_logs",
    "to_frame",
]
_ELSEWHERE = {"NlpBenchError": "nlp_bench.errors", "Outcome": "nlp_bench.outcome", "Record": "nlp_bench.measure.rows"}
"""Where what is not in `nlp_bench.api` is defined."""


class _Package(ModuleType):
    # The package: its public names are imported when they are first used, and three of them are those of packages below it.
    # Importing `nlp_bench.measure.result` would make the attribute `measure` the package `nlp_bench.measure`; it stays the function.
    # `from nlp_bench.measure import result` finds the package all the same; `import nlp_bench.measure.result as …` does not.
    # A comment, so that this module's .pyc is less than a block of a file system: a full disk cuts it nowhere (bytecode.py).

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in __all__):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> "Any":
        if name not in __all__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        import importlib  # noqa: PLC0415  # as above

        found = getattr(importlib.import_module(_ELSEWHERE.get(name, "nlp_bench.api")), name)
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return sorted([*__all__, "__version__"])


sys.modules[__name__].__class__ = _Package
