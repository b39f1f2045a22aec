"""What a program inherits from where it is typed, made the same everywhere: encoding of names, three open streams, nothing to import here."""

import os
import sys


def settle() -> None:
    """Go on in Python's UTF-8 mode where the locale has another encoding, and without a closed standard stream.

    In the locale C or a Latin-1 one, Python would read names of files and write results in that encoding: other bytes than
    elsewhere. A file that is opened while a standard stream is closed would get its number, and what a child prints. Replaces
    this process, at most once; the mode is inherited by children. Source: PEP 540.
    """
    os.environ["PYTHONSAFEPATH"] = "1"  # no Python that is started from here imports from its current folder (3.11)
    for number in (0, 1, 2):
        if not _is_open(number):
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number: this one
            if number == 1:
                print("nlp-bench: stdout is closed: what would be printed there is lost", file=sys.stderr)
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  # the same words again, no shell


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
