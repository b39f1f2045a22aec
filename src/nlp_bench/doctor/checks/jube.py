"""JUBE: there, starting, and of a version that the tests run the workflow with."""

import re
import sys

from nlp_bench.doctor.finding import Finding, failed, ok, warning
from nlp_bench.doctor.place import Place
from nlp_bench.launch.folder import environment_folder
from nlp_bench.programs import ask

TESTED = ("2.5.1", "2.7.1")
"""The versions that the tests run benchmark/jube/nlp_benchmark.yaml with, from `jube run` to the table."""
WITHOUT = "without JUBE: nlp-bench submit, then nlp-bench report"


def check(place: Place) -> Finding:
    """Say whether `jube` starts: 2.5.1 imports distutils, which Python 3.12 no longer has, so it dies there at once."""
    path = environment_folder(place.root) / "bin"
    search = f"{place.variables.get('PATH', '')}:{path}"
    answer = ask("env", f"PATH={search}", "jube", "--version")
    said = f"{answer.out}\n{answer.err}"
    newest = "pip install the source archive of the tag REL-2.7.1 of https://github.com/FZJ-JSC/JUBE (it is not on PyPI), or: module load JUBE"
    if answer.code == 127:
        return failed(
            "jube is not on PATH", remedy=f"{place.bash('benchmark/run.sh installs it; or ', '')}{newest}; {WITHOUT}"
        )
    if not answer.is_good:
        lines = [line for line in said.splitlines() if line.strip()]
        last = lines[-1] if lines else answer.said
        if "distutils" in said:
            return failed(
                "this JUBE needs Python 3.11 or older: it imports distutils, which Python 3.12 does not have",
                last,
                remedy=f"JUBE 2.7.1 runs under Python 3.12 and 3.13: {newest}; {WITHOUT}",
            )
        return failed(f"jube does not start: {last}", remedy=f"{newest}; {WITHOUT}")
    found = re.search(r"version\s+(\d+(?:\.\d+)+)", said)
    if not found:
        return warning("jube starts, but says no version", answer.said, remedy="jube --version")
    tested = f"the tests run the workflow with {' and '.join(TESTED)}"
    if found[1] not in TESTED:
        return warning(f"JUBE {found[1]}; {tested}, not with this one", remedy=f"if it refuses the file: {newest}")
    return ok(f"JUBE {found[1]}; {tested}", f"this Python is {sys.version_info[0]}.{sys.version_info[1]}")
