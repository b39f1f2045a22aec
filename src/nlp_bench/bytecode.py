"""A .pyc that was cut short: Python writes what there is room for, believes it whole, and cannot load it ever after.

Shorter than a block of a file system, so that the .pyc of this module is whole or not there.
"""

import os


def cut_bytecode(error: BaseException) -> str:
    """Return what to say where `error` is of the import of a cut .pyc; "" for any other. Source: marshal's errors in importlib's get_code."""
    step = error.__traceback__
    while step:
        code, names = step.tb_frame.f_code, step.tb_frame.f_locals
        if (code.co_name, code.co_filename) == ("_compile_bytecode", "<frozen importlib._bootstrap_external>"):
            file, package = names["bytecode_path"], names["name"].partition(".")[0]
            above, inside, _ = file.rpartition(f"/{package}/")
            folder = above + inside.rstrip("/") or os.path.dirname(file)  # noqa: PTH120  # no import that could be cut as well
            return (
                f"{file} was cut short when it was written (a full disk, a quota, ulimit -f), and Python cannot load it; with room: "
                f"find '{folder}' -name '*.pyc' -delete, then repeat the same command"
            )
        step = step.tb_next
    return ""
