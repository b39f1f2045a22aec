"""Names to addresses within a time limit: the system's resolver may take minutes and has none."""

import socket
from collections.abc import Iterable
from functools import partial

from nlp_bench.immutable import immutable
from nlp_bench.programs import answers


@immutable
class LookUp:
    """The resolver's answer for one name."""

    addresses: tuple[str, ...] = ()  # its addresses, the one to be used first; empty where there is none
    problem: str = ""  # why there is none, in the resolver's words; empty where there is one
    is_silent: bool = False  # whether the resolver has not answered in time


def look_up(names: Iterable[str], within_s: float) -> dict[str, LookUp]:
    """Return the answer for each name after `within_s` seconds for all of them together, in their order."""
    silent = LookUp(problem=f"no answer within {within_s:g} s", is_silent=True)
    lookups = {name: partial(_resolved, name) for name in names}
    return dict.fromkeys(lookups, silent) | answers(lookups, within_s)


def _resolved(name: str) -> LookUp:
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return LookUp(problem=getattr(error, "strerror", None) or str(error))
    return LookUp(addresses=tuple(dict.fromkeys(str(answer[4][0]) for answer in answers)))
