"""Where the data files are: a user's own first, then those that this package ships.

Models, systems, rules and the two tables are looked for in `benchmark/` of the working folder (a checkout, what `nlp-bench init` made, or
the current folder), then in NLP_BENCH_HOME (default ~/.config/nlp-bench), then in the package. The first file of a name is used.
"""

import contextlib
import functools
import os
import re
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from importlib.resources import files
from pathlib import Path
from typing import Any

from nlp_bench import schemas
from nlp_bench.config.model import Model, RunModel, Training
from nlp_bench.config.system import System, is_inherited
from nlp_bench.config.table import Record, build, read_toml
from nlp_bench.errors import UsageError, nearest
from nlp_bench.files import real
from nlp_bench.terminal import say

MODEL_SCHEMA = "nlp-bench/model/1"
SYSTEM_SCHEMA = "nlp-bench/system/1"
WORKFLOW = Path("benchmark/jube/nlp_benchmark.yaml")  # marks a working folder, a checkout or what `nlp-bench init` made


def shipped() -> Path:
    """Return the folder that holds the shipped files as a checkout does; raises UsageError in an archive, whose files cannot be opened."""
    package = Path(str(files("nlp_bench")))
    if not package.is_dir():
        raise UsageError(
            f"nlp-bench cannot run out of an archive ({package}): install it (pip install nlp_bench-*.whl)"
        )
    inside = package / "shipped"
    return inside if inside.is_dir() else package.parents[1]


def checkout() -> Path | None:
    """Return the checkout that this package is run from; None for an installed one and in what `nlp-bench init` made."""
    return None if shipped().name == "shipped" else shipped()


def root() -> Path:
    """Return the working folder, which holds environment, data, builds and reports.

    It is NLP_BENCH_ROOT, else the current folder if it holds the workflow, else the checkout that this package is run from,
    else the current folder. Raises UsageError for an NLP_BENCH_ROOT that is no folder, and where none of them is there.
    """
    named = os.environ.get("NLP_BENCH_ROOT")
    if not named:
        found = here()
        if own := next((one for one in found if _is_file(one / WORKFLOW)), checkout() or next(iter(found), None)):
            return own
        raise UsageError("the current folder was deleted; go to one that exists (cd), or name one as NLP_BENCH_ROOT")
    if not Path(named).is_dir():
        raise UsageError(f"NLP_BENCH_ROOT: {named} is no folder; name a checkout of nlp-bench, or unset it")
    return real(named)


def here() -> list[Path]:
    """Return the current folder as a list, an empty one where it was deleted."""
    try:
        return [Path.cwd()]
    except FileNotFoundError:
        return []


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113  # false, too, in a folder that is closed


def _is_meant(path: Path) -> bool:
    """Say whether `path` is a file or a link: one that leads nowhere is not passed over for the shipped file, which says something else."""
    return _is_file(path) or os.path.islink(path)  # noqa: PTH114  # false, too, in a folder that is closed


_HERE: ContextVar[list[Path] | None] = ContextVar("here", default=None)


@contextlib.contextmanager
def found_from(folders: list[Path]) -> Iterator[None]:
    """Look data files up from `folders` (`here()`) within the block, whatever the current folder is: an unpacked bundle brings none of its own."""
    token = _HERE.set(folders)
    try:
        yield
    finally:
        _HERE.reset(token)


def places() -> list[Path]:
    """Return the folders that hold models/, systems/, rules/ and the tables, in the order in which they are searched."""
    named = os.environ.get("NLP_BENCH_ROOT")
    looked = _HERE.get()
    current = [Path(named)] if named else here() if looked is None else looked
    own = [real(one) / "benchmark" for one in current]
    set_home = os.environ.get("NLP_BENCH_HOME", "")
    word = os.path.expanduser(set_home or "~/.config/nlp-bench")  # noqa: PTH111  # pathlib raises without a home
    home = [] if word.startswith("~") and not set_home else [Path(word).absolute()]
    every = dict.fromkeys((*own, *home, shipped() / "benchmark"))
    found = [
        one
        for one in every
        if _may_be_read(one, is_current=one in own and not named, variable=set_home if one in home else "")
    ]
    return [one for one in found if one not in own or named or _is_trusted(one)]


@functools.cache
def _may_be_read(place: Path, *, is_current: bool, variable: str) -> bool:
    """Return whether a folder of data files is readable or missing; one that is not readable, or that NLP_BENCH_HOME alone names, is reported once."""
    try:
        (place / "models").stat()
    except PermissionError:
        remedy = "go to another folder (cd)" if is_current else "name another as NLP_BENCH_HOME"
        say(f"{place} may not be read: what lies there is passed over; {remedy}")
        return False
    except OSError:
        if variable and not place.is_dir():
            say(f"NLP_BENCH_HOME={variable} is no folder: nothing is taken from there; correct or unset it")
    return True


@functools.cache
def _is_trusted(place: Path) -> bool:
    """Return whether data files of the current folder are used: not those of another user, unless it is a working folder; said once."""
    try:
        is_own = place.stat().st_uid in {0, os.geteuid()}
    except OSError:  # it is not there
        return True
    if is_own or _is_file(place.parent / WORKFLOW):
        return True
    say(f"{place} belongs to another user: what lies there is passed over; NLP_BENCH_ROOT={place.parent} takes it")
    return False


def names(kind: str) -> list[str]:
    """Return the names of all data files of `kind` ("models", "systems" or "rules"), sorted; what editors and file servers leave is none."""
    found = (path for place in places() for path in (place / kind).glob("*.toml"))
    return sorted({path.stem for path in found if not path.name.startswith(".") and _is_file(path)})


def find(kind: str, name: str) -> Path:
    """Return the file of `kind` that is called `name`, with .toml or without, or whose path it is; raises UsageError naming the places that were searched."""
    bare = name.removesuffix(".toml")
    if name != bare and (_is_meant(Path(name)) or bare not in names(kind)):
        return real(name)
    for place in places():
        if _is_meant(path := place / kind / f"{bare}.toml"):
            return path
    field = kind if kind == "rules" else kind.removesuffix("s")
    variable = f"NLP_BENCH_{field.upper()}"
    named = f" (of {variable})" if os.environ.get(variable) == name else ""
    raise UsageError(
        f"{field}: {name!r}{named} is not a file of benchmark/{kind}{nearest(name, names(kind))}; searched: "
        f"{', '.join(str(place / kind) for place in places())}; a file elsewhere: its path, which ends with .toml"
    )


def table(name: str) -> Path:
    """Return the file that is called `name` ("accelerators.toml" or "plan.toml"); the shipped one where the user has none."""
    found = (place / name for place in places())
    return next((path for path in found if _is_meant(path)), shipped() / "benchmark" / name)


def part(name: str) -> Path:
    """Return another file by its place in a checkout ("jube/submit.job.in"): of the working folder, else the shipped one."""
    own = root() / name
    return own if _is_file(own) else shipped() / name


def has_workflow() -> bool:
    """Return whether the working folder is a checkout or what `nlp-bench init` made, with the scripts that error messages name."""
    return checkout() is not None or _is_file(root() / WORKFLOW)


def load_model(name: str, *, is_shipped: bool = False) -> Model:
    """Read one model by its name, or by the path of its .toml file; with `is_shipped`, the one of that name that the package has."""
    path = shipped() / "benchmark" / "models" / f"{name}.toml" if is_shipped else find("models", name)
    return _built(Model, path, MODEL_SCHEMA, "model")


def load_system(name: str) -> System:
    """Read one system by its name, or by the path of its .toml file."""
    system = _built(System, path := find("systems", name), SYSTEM_SCHEMA, "system")
    _tell_unused(path, tuple(system.layout))
    # Asked of the file, not of each System: a run.json that was made before is still read.
    if several := [one for one in system.software.modules if len(one.split()) != 1]:
        raise UsageError(
            f"system.software.modules: {several[0]!r} is not one module; give each its own quotes (in {path})"
        )
    for one, text in system.environment.items():
        if re.search(r"\$[A-Za-z_{(]|^~", text) and not is_inherited(one, text):
            remedy = f'write what it stands for, or {one} = "${one}" and export {one} before you submit'
            raise UsageError(
                f"system.environment.{one}: {text!r}: nothing replaces the $ or ~ in it; {remedy} (in {path})"
            )
    return system


@functools.cache
def _tell_unused(path: Path, layouts: tuple[str, ...]) -> None:
    """Say once which layouts of a system file are of no model that is known: a run of the model that was meant would not have them."""
    known = names("models") if layouts else []
    for one in layouts:
        if one not in known:
            near = nearest(one, known, listed=False)
            say(f"warning: system.layout.{one} is of no model of benchmark/models and not used{near} (in {path})")


def _built(kind: type[Record], path: Path, schema: str, where: str) -> Record:
    table = read_toml(path, schema)
    try:
        return build(kind, {"name": path.stem, **table}, where)
    except UsageError as error:
        raise UsageError(f"{error} (in {path})") from error


def deviations(model: RunModel, training: Training, chosen: Collection[str] = ()) -> tuple[str, ...]:
    """Return where `model`, trained with `training`, is not as nlp-bench ships it.

    A run may choose the fields `chosen`, and recompute where no rules freeze the model.
    """
    try:
        own = load_model(model.name, is_shipped=True)
    except UsageError:
        return (f"model: {model.name} is a file of your own",)
    shipped_values = {"family": own.family, **vars(own.architecture), **vars(own.training)}
    values = {"family": model.family, **vars(model.architecture), **vars(training)}
    return tuple(
        f"model.{name}: {values[name]} instead of {frozen}"
        for name, frozen in shipped_values.items()
        if values[name] != frozen and name not in chosen and (name != "recompute" or has_rules(model.name))
    )


def rule_files() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the content of each file of benchmark/rules."""
    for name in names("rules"):
        yield name, read_toml(find("rules", name), schemas.RULES)


def has_rules(model: str) -> bool:
    """Whether the rules of a benchmark freeze the training parameters of this model."""
    return any(model in table.get("models", ()) for _, table in rule_files())
