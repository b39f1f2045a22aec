"""Where the data files lie: models and systems by name."""

import os
from pathlib import Path

from nlp_bench.config.model import Model
from nlp_bench.config.system import System
from nlp_bench.config.table import build, read_toml
from nlp_bench.errors import UsageError, nearest

MODEL_SCHEMA = "nlp-bench/model/1"
SYSTEM_SCHEMA = "nlp-bench/system/1"


def root() -> Path:
    """Return the repository's folder: NLP_BENCH_ROOT, else the checkout that this package is run from."""
    named = os.environ.get("NLP_BENCH_ROOT")
    path = Path(named).resolve() if named else Path(__file__).resolve().parents[3]
    if not (path / "benchmark" / "models").is_dir():
        raise UsageError(f"{path} holds no benchmark/models; set NLP_BENCH_ROOT to a checkout of nlp-bench")
    return path


def names(kind: str) -> list[str]:
    """Return the names of all data files of `kind` ("models" or "systems"), sorted."""
    return sorted(path.stem for path in (root() / "benchmark" / kind).glob("*.toml"))


def _find(kind: str, name: str) -> Path:
    if name.endswith(".toml"):
        return Path(name).resolve()
    known = names(kind)
    if name not in known:
        raise UsageError(f"{kind[:-1]}: {name!r} is not a file of benchmark/{kind}{nearest(name, known)}")
    return root() / "benchmark" / kind / f"{name}.toml"


def load_model(name: str) -> Model:
    """Read one model by its name, or by the path of its .toml file."""
    path = _find("models", name)
    return build(Model, {"name": path.stem, **read_toml(path, MODEL_SCHEMA)}, "model")


def load_system(name: str) -> System:
    """Read one system by its name, or by the path of its .toml file."""
    path = _find("systems", name)
    return build(System, {"name": path.stem, **read_toml(path, SYSTEM_SCHEMA)}, "system")
