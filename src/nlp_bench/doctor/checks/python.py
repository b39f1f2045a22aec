"""The Python that runs this program."""

import platform
import sys
from importlib.util import find_spec

from nlp_bench.doctor.finding import Finding, failed, ok, warning
from nlp_bench.doctor.place import Place

OLDEST, NEWEST = (3, 10), (3, 13)
"""As pyproject.toml and setup_venv.sh have it."""


def check(place: Place, version: tuple[int, int] = sys.version_info[:2]) -> Finding:
    """Refuse a Python that megatron-core or torch at the pinned versions do not support."""
    what = f"Python {platform.python_version() if version == sys.version_info[:2] else '.'.join(map(str, version))}"
    if not OLDEST <= version <= NEWEST:
        return failed(
            f"{what} is not one of 3.10 to 3.13",
            sys.executable,
            remedy="load another Python module or set NLP_BENCH_PYTHON, then bash benchmark/env/setup_venv.sh",
        )
    if find_spec("nlp_bench.logs._scan") is None:  # built by pip, looked for and not loaded
        return warning(
            f"{what}; the compiled reader of logs is missing, logs are read more slowly",
            sys.executable,
            remedy=place.bash("benchmark/env/setup_venv.sh", "nlp-bench build --scanner"),
        )
    return ok(what, sys.executable)
