"""Runs the command nlp-bench many times without importing it for each call: every call is a process of its own, forked from this program.

Asked for `[[words], working folder, {variables}]`, it answers `[exit code, standard output, standard error]`. The interpreter's own start,
what is imported from where, and signals are tested elsewhere.
"""

import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PACKAGES = ("cli", "config", "inputs", "logs", "measure", "report", "analysis", "plan", "launch", "evidence", "rules")
HEAVY = ("calibrate", "draw", "frame")
Nlp = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def nlp_bench() -> Iterator[Nlp]:
    """Call nlp-bench with words, here or in the folder `cwd`; it sees the variables of now, and ends without a traceback."""
    from support.forked import program

    with program("forked_commands.py") as calls:

        def called(*words: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
            code, out, err = calls.ask(words, str(cwd or Path.cwd()), dict(os.environ))
            assert "Traceback" not in err, err
            return subprocess.CompletedProcess(words, code, out, err)

        yield called


def call(words: list[str], folder: str, variables: dict[str, str]) -> tuple[int, str, str]:
    with tempfile.TemporaryDirectory() as name:
        streams = [Path(name, "out"), Path(name, "err")]
        child = os.fork()
        if not child:
            code = 1
            try:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                for number, path in enumerate(streams, 1):
                    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
                os.chdir(folder)
                os.environ.clear()
                os.environ.update(variables)
                sys.argv = ["nlp-bench", *words]
                code = main()
            except BaseException:  # noqa: BLE001  # as Python does at its end
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, *(path.read_text(errors="surrogateescape") for path in streams)  # type: ignore[return-value]


if __name__ == "__main__":
    from forked import serve

    import nlp_bench as package
    from nlp_bench.cli.main import main

    for part in PACKAGES:
        for module in pkgutil.walk_packages([f"{package.__path__[0]}/{part}"], f"nlp_bench.{part}."):
            if not any(word in module.name for word in (*HEAVY, "._")):  # ._: the scanner in C, which is no module
                importlib.import_module(module.name)
    serve(call)
