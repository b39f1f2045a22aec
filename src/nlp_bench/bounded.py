"""Calls that may never return, under a time limit: calls to a name service, file server or driver have none of their own."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Answer = TypeVar("Answer")


def answers(questions: Mapping[str, Callable[[], Answer]], within_s: float) -> dict[str, Answer]:
    """Call all `questions` at once and return, by name and in their order, what they returned within `within_s` seconds in all.

    Each has a daemon thread, which is then left to itself. A call that raises has no answer.
    """
    found: dict[str, Answer] = {}
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
