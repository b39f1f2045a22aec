"""One kind of file that the program writes, as the scripts that kill and starve writers see it."""

import contextlib
import importlib
import io
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlp_bench.cli.main import main as nlp_bench

Work = Callable[[Path], object]  # does something in a folder
Check = Callable[[Path], str | None]  # says what is wrong in a folder, or None


def _nothing(_: Path) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Writer:
    name: str  # for the talk
    write: Work  # what is killed; it is also the second try
    prepare: Work = _nothing  # what stands in the folder before
    check: Check = _nothing  # type: ignore[assignment]
    """What is wrong with what a reader finds, beyond files that are neither old nor new."""
    is_command: bool = False  # whether `write` is a whole command
    steps: str = ""  # of a file that is written step by step, each step whole, its path: `check` reads it
    seal: str = ""  # of a folder that readers take only when this file, the last one, is there, the file's name
    recover: str = ""
    """Of a folder that is swapped as a whole, its name: the next call first brings back what a kill had set aside."""


class CommandError(Exception):
    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"exit code {code}: {said}")
        self.code, self.said = code, said


def command(*words: str) -> Work:
    """Return the work of one command; HERE in its words stands for the folder."""

    def run(folder: Path) -> None:
        said = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            code = nlp_bench([word.replace("HERE", str(folder)) for word in words])
        if code:
            raise CommandError(code, said.getvalue())

    return run


def prepared_once(make: Work) -> Work:
    """Return the work that copies what `make` leaves in an empty folder, made at its first call."""
    kept: list[dict[str, bytes]] = []

    def copy(folder: Path) -> None:
        if not kept:
            make(folder)
            files = (path for path in folder.rglob("*") if path.is_file())
            kept.append({path.relative_to(folder).as_posix(): path.read_bytes() for path in files})
            shutil.rmtree(folder)
            folder.mkdir()
        for name, content in kept[0].items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    return copy


def remember(module: str, name: str) -> None:
    """Let a function that computes what is written, and writes nothing, compute it once: the kills are meant for the writing."""
    owner = importlib.import_module(module)
    real, known = getattr(owner, name), dict[str, Any]()

    def remembered(*words: object, **options: object) -> Any:
        key = re.sub(
            r" at 0x[0-9a-f]+", "", repr((words, options))
        )  # an object of the same content is another one each time
        if key not in known:
            known[key] = real(*words, **options)
        return known[key]

    setattr(owner, name, remembered)
