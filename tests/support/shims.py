"""Programs on PATH: wrappers around Slurm's that answer late or wrongly, scripts of this Python."""

import os
import shutil
import sys
from pathlib import Path


def shim(folder: Path, name: str, before: str = "", after: str = "") -> str:
    """Put a wrapper of the program `name` into `folder`; return the PATH that finds it.

    `before` and `after` are lines of bash around the real program; `exit` in `before` leaves it out.
    """
    real = shutil.which(name) or f"/nowhere/{name}"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f'#!/bin/bash\n{before}\n"{real}" "$@"\nstatus=$?\n{after}\nexit $status\n')
    path.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def python_script(path: Path, text: str) -> Path:
    """Write a program of this Python and return its path.

    A first line `#!PYTHON` takes no path with a blank. To Python, the line that starts it is a text.
    """
    start = f"''''exec \"{sys.executable}\" \"$0\" \"$@\" # '''"
    path.write_text(f"#!/bin/sh\n{start}\n{text}")
    path.chmod(0o755)
    return path
