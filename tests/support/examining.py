"""One check of `nlp-bench doctor`, run as the command runs it."""

from collections.abc import Callable

from nlp_bench.doctor.checks import examine
from nlp_bench.doctor.place import Finding, Place

Make = Callable[..., Place]
Program = Callable[[str, str], None]  # puts a shell script of this name before all others on PATH


def finding(name: str, place: Place) -> Finding:
    (one,) = examine(place, [name])
    return one.finding
