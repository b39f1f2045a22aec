"""The errors that a user sees: each names the field, the value, the rule and the remedy."""

import contextlib
import errno
import os
import re


class NlpBenchError(Exception):
    """An error that the user can fix; the command line prints it and exits with `exit_code`."""

    exit_code = 1


class UsageError(NlpBenchError):
    """A wrong argument on the command line or a wrong value in a data file: refused before anything is done."""

    exit_code = 2


def require(condition: bool, message: str) -> None:
    """Raise UsageError with `message` unless `condition` holds."""
    if not condition:
        raise UsageError(message)


def nearest(word: str, known: list[str], *, listed: bool = True) -> str:
    """Return the part of a message that suggests the known name closest to `word`, and with `listed` lists all of them, up to 40.

    Punctuation and case do not count, and a name with the same numbers is closer: gpt-175B means 175, not gpt_5b.
    """
    import difflib  # noqa: PLC0415  # only an error needs it, and start-up is measured

    plain = {re.sub(r"[^a-z0-9]", "", one.lower()): one for one in known}
    wanted, numbers = re.sub(r"[^a-z0-9]", "", word[:80].lower()), re.findall(r"[0-9]+", word[:80])
    found = {one: re.findall(r"[0-9]+", name) for one, name in plain.items()}
    same = [one for one in plain if numbers and found[one] == numbers]
    same = same or [one for one in plain if found[one] and {*found[one]} <= {*numbers}]  # gpt3-175b means 175, too
    close = difflib.get_close_matches(wanted, same, n=1, cutoff=0.3) or difflib.get_close_matches(wanted, plain, n=1)
    close = close or sorted((one for one in plain if wanted and one.startswith(wanted)), key=len)
    hint = f"; did you mean {plain[close[0]]}?" if close else ""
    return hint + (f" (known: {', '.join(known)})" if listed and len(known) <= 40 else "")


REMEDIES = {
    errno.ENOSPC: "the file system is full: make room (`df -h`, `df -i`) and repeat",
    errno.EDQUOT: "your quota is used up: make room (`quota -s`, or the site's own command) and repeat",
    errno.EROFS: "the file system can only be read here: name a folder of another one",
    errno.EACCES: "you have no right to it: check the owner and the rights (`ls -ld`)",
    errno.EPERM: "the system forbids it: check the owner and the rights (`ls -ld`)",
    errno.EIO: "the disk or the file server reports an error: ask its operator, and repeat elsewhere",
    errno.ESTALE: "the file server has lost the file: repeat",
    errno.ETIMEDOUT: "its file server does not answer: repeat later",
    errno.EKEYEXPIRED: "your ticket for this file system has expired: get a new one (kinit, aklog) and repeat",
    errno.EXDEV: "a folder of an image's layer cannot be renamed: name another one, or remove the old one first",
    errno.ENOLCK: "this file system has no locks: name a file of another one, a local one for example",
    errno.ENOTSUP: "this file system cannot do that: name a file of another one, a local one for example",
    errno.ENOSYS: "this file system cannot do that (Lustre without `-o flock` has no locks): name a file of another one, a local one for example",
    errno.ENOENT: "check that the folder exists",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EISDIR: "it is a folder; name a file",
    errno.ENAMETOOLONG: "take a shorter name",
    errno.EFBIG: "the file would be larger than allowed: check `ulimit -f`",
    errno.EMFILE: "too many files are open: raise `ulimit -n`",
    errno.ENOMEM: "the memory is used up: check `free -h` and the job's --mem",
}
"""The remedy for each error of the operating system, by errno."""


def with_file(error: NlpBenchError | OSError, place: object) -> str:
    """Return an error in a sentence; one of the operating system with its file, or with `place` where it names none."""
    if isinstance(error, NlpBenchError):
        return str(error)
    return f"{place if error.filename is None else error.filename}: {explained(error)}"


def explained(error: OSError) -> str:
    """Return the operating system's message and the remedy."""
    message = error.strerror or str(error) or type(error).__name__
    if error.errno == errno.ENOENT and _is_nowhere(error.filename):
        return f"{message}; the current folder was deleted: go to one that exists (cd), then repeat"
    if link := next((link for name in (error.filename2, error.filename) if (link := dead_link(name))), ""):
        return f"{message}; {link}"
    remedy = REMEDIES.get(error.errno or 0, "check that the folder exists, is writable and has room")
    return f"{message}; {remedy}"


def _is_nowhere(name: object) -> bool:
    """Return whether a path is one from a current folder that was deleted."""
    if isinstance(name, str | os.PathLike) and os.path.isabs(name):  # noqa: PTH117  # pathlib is not imported here
        return False
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return True
    return False


ADDRESS = re.compile(r"\w+://|[\w.@-]+:/")
"""How an address of the web or of a store begins, or a path of another machine as scp takes it."""


def dead_link(name: object) -> str:
    """Return which link on a file's path is dangling, and the remedy; "" where none is."""
    if not isinstance(name, str | os.PathLike):
        return ""
    try:
        path = os.path.abspath(name)  # noqa: PTH100  # pathlib's own raises for a link to itself
    except FileNotFoundError:  # from a current folder that was deleted
        return ""
    while path != os.path.dirname(path):  # noqa: PTH120
        with contextlib.suppress(OSError):  # it is no link, or vanishes meanwhile
            target = os.readlink(path)  # noqa: PTH115
            try:
                os.stat(path)  # noqa: PTH116
            except OSError as error:
                # Not a folder on the way that this user may not enter.
                if error.errno in {errno.ENOENT, errno.ELOOP}:
                    return f"{path} is a link to {target}, which does not exist: make that, or remove the link (rm)"
        path = os.path.dirname(path)  # noqa: PTH120
    return ""
