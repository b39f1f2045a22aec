"""Commands of other programs and calls that may never return, bounded in time; what could not be run is distinguished from what failed."""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from nlp_bench.immutable import immutable
from nlp_bench.safe_path import without_ours

ANSWER_S = 12.0  # time limit in seconds; Slurm's commands give up on a silent controller by themselves after about 9
HELD_S = 1.0  # seconds in which the pipes of a program that has ended close, unless another process holds them


@immutable
class Answer:
    """What a program printed and its exit status, or why it could not be run."""

    code: int | None  # exit status; None where there is none: it is missing, did not start or did not end in time
    out: str = ""  # its stdout
    err: str = ""  # its stderr, or why there is no exit status
    elapsed_s: float = 0.0  # seconds until it ended
    is_missing: bool = False  # whether it is not on PATH
    is_late: bool = False  # whether it did not end in time: its server may be there, but does not answer

    @property
    def is_good(self) -> bool:
        """Whether it ended with exit status 0."""
        return self.code == 0

    @property
    def text(self) -> str:
        """Its stderr, else its stdout, in one line of at most 300 characters."""
        return " ".join((self.err.strip() or self.out.strip()).split())[:300]


def ask(
    *command: str, timeout_s: float = ANSWER_S, stdin: str = "", variables: Mapping[str, str] | None = None
) -> Answer:
    """Run `command` and return its answer; nothing is raised. `variables` are its whole environment."""
    start = time.monotonic()

    def failed(why: str, *, is_late: bool = False) -> Answer:
        return Answer(code=None, err=why, elapsed_s=time.monotonic() - start, is_late=is_late)

    if shutil.which(command[0]) is None:
        return Answer(code=None, err=f"{command[0]} is not on PATH", is_missing=True)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=without_ours(os.environ if variables is None else variables),
        )
    except OSError as error:
        return failed(f"{command[0]} does not start: {error.strerror}")
    with process:
        try:
            out, err = printed(process, timeout_s, stdin)
        except subprocess.TimeoutExpired:
            process.kill()
            return failed(f"`{' '.join(command)}` did not answer within {timeout_s:g} s", is_late=True)
        except BaseException:
            process.kill()
            raise
    return Answer(code=process.returncode, out=out, err=err, elapsed_s=time.monotonic() - start)


def printed(process: "subprocess.Popen[bytes]", timeout_s: float, stdin: str = "") -> tuple[str, str]:
    """Return the stdout and stderr of `process` once it has ended. Raises TimeoutExpired where it does not end in time.

    A background process that it leaves behind, as the hook of a site's wrapper, may hold the pipes much longer: not waited for.
    """
    end, given = time.monotonic() + timeout_s, stdin.encode()
    while True:
        has_ended, left_s = process.poll() is not None, max(end - time.monotonic(), 0.0)
        try:
            out, err = process.communicate(given, timeout=HELD_S if has_ended else min(left_s, HELD_S))
        except subprocess.TimeoutExpired as late:
            if not (has_ended or left_s):
                raise
            given, out, err = b"", late.output or b"", late.stderr or b""
            if not has_ended:
                continue
        return out.decode("utf-8", errors="replace"), err.decode("utf-8", errors="replace")


Found = TypeVar("Found")


def answers(questions: Mapping[str, Callable[[], Found]], within_s: float) -> dict[str, Found]:
    """Call all `questions` at once and return, by name and in their order, what they returned within `within_s` seconds in all.

    Each has a daemon thread, which is then left to itself: a name service, file server or driver may never return. A call that raises has no answer.
    """
    found: dict[str, Found] = {}
    threads = [
        threading.Thread(target=lambda name=name, call=call: found.update({name: call()}), daemon=True)
        for name, call in questions.items()
    ]
    end = time.monotonic() + within_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))
    known = dict(found)  # a late answer must not change it
    return {name: known[name] for name in questions if name in known}
