"""Programs of Slurm that answer late, wrongly or not at all: wrappers on PATH around the real ones."""

import os
import shutil
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
