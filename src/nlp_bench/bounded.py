"""Questions that may never be answered, asked within a bound: no system call to a name service, file server or driver has one."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Answer = TypeVar("Answer")


def answers(questions: Mapping[str, Callable[[], Answer]], within_s: float) -> dict[str, Answer]:
    """Ask all `questions` at once and return, by name and in their order, what was answered within `within_s` seconds in all.

    Each has a thread that nobody waits for any longer, and which ends with the process. A question that raises has no answer.
    """
    found: dict[str, Answer] = {}
    threads = [
        threading.Thread(target=lambda name=name, ask=ask: found.update({name: ask()}), daemon=True)
        for name, ask in questions.items()
    ]
    end = time.monotonic() + within_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))
    known = dict(found)  # what comes later is too late
    return {name: known[name] for name in questions if name in known}
