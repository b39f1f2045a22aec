"""Rules on how it is trained: number format, real data, released software, stated versions."""

import fnmatch
import re
from dataclasses import dataclass

from nlp_bench.measure.findings import Evidence
from nlp_bench.measure.workload import Setting, lookup
from nlp_bench.rules.rule import Rule, decided, missing
from nlp_bench.rules.subject import Subject

RELEASE = re.compile(r"\d+(\.\d+)*(\.post\d+)?(?:\+(?P<local>[A-Za-z0-9._-]+))?")
"""A final release with an optional local label, in the words of PEP 440: no .dev, a, b or rc."""
COMMIT = "nlp_bench_commit"


@dataclass(frozen=True, kw_only=True)
class Precision(Rule):
    """The number format is at least as accurate as the model file's."""

    order: tuple[tuple[str, ...], ...]
    """Formats from the most to the least accurate; those in one list count as equal."""

    def look(self, subject: Subject) -> list[Evidence]:
        """Look at what was asked for and at what ran."""
        if subject.model is None:
            return [missing("precision", "at least the model's", "the model is not known")]
        baseline = subject.model.training.precision
        rank = {word: index for index, words in enumerate(self.order) for word in words}
        if baseline not in rank:
            return [missing("precision", f"{baseline} or better", f"{baseline} is not in the rule's order")]
        better = [word for words in self.order[: rank[baseline] + 1] for word in words]
        expected = f"one of {', '.join(better)}"
        stated = subject.stated("precision")
        if not stated:
            return [missing("precision", expected)]
        return [decided("precision", one.value, expected, one.source, passes=one.value in better) for one in stated]


@dataclass(frozen=True, kw_only=True)
class Released(Rule):
    """Packages are released versions, no development builds."""

    packages: tuple[str, ...]
    """Names as the log's `versions` line has them."""
    local: tuple[str, ...] = ()
    """Labels behind a + that releases are published with; * stands for anything."""

    def look(self, subject: Subject) -> list[Evidence]:
        """Look at the version of each package."""
        return [self._of(name, subject) for name in self.packages]

    def _of(self, package: str, subject: Subject) -> Evidence:
        name = version_of(package)
        expected = f"a released version of {package}"
        found = subject.logged(name)
        if found is None:
            return missing(name, expected)
        version = RELEASE.fullmatch(str(found.value))
        label = version["local"] if version else None
        passes = version is not None and (label is None or any(fnmatch.fnmatch(label, one) for one in self.local))
        return decided(name, str(found.value), expected, found.source, passes=passes)


def version_of(package: str) -> str:
    """Return the name of a package's version among the settings: torch_version."""
    return f"{package.lower().replace('-', '_')}_version"


@dataclass(frozen=True, kw_only=True)
class Stated(Rule):
    """Versions and commits are stated, so that others can build the same."""

    packages: tuple[str, ...] = ()
    """Packages whose version the log must state."""
    commit: bool = False
    """Whether run.json must state the commit of nlp-bench, without changes."""

    def look(self, subject: Subject) -> list[Evidence]:
        """Look at each version, and at the commit."""
        found = [self._version(name, subject) for name in self.packages]
        return [*found, self._commit(subject)] if self.commit else found

    def _version(self, package: str, subject: Subject) -> Evidence:
        setting = subject.logged(version_of(package))
        expected = "a version"
        if setting is None:
            return missing(version_of(package), expected)
        return decided(version_of(package), str(setting.value), expected, setting.source, passes=True)

    def _commit(self, subject: Subject) -> Evidence:
        expected = "a commit without changes"
        if subject.run is None:
            return missing(COMMIT, expected)
        commit = lookup(subject.run, "nlp_bench.commit")
        if commit is None or str(commit) == "unknown":
            return missing(COMMIT, expected, "run.json states none")
        return decided(COMMIT, str(commit), expected, "run.json", passes="+" not in str(commit))


@dataclass(frozen=True, kw_only=True)
class RealData(Rule):
    """The training reads data: random tokens cost no reading."""

    def look(self, subject: Subject) -> list[Evidence]:
        """Look at the log's arguments and at run.json."""
        expected = "data that is read, no mock data"
        stated = [*self._of_log(subject), *self._of_run(subject)]
        if not stated:
            return [missing("data", expected)]
        return [decided("data", one.value, expected, one.source, passes=one.value != "mock data") for one in stated]

    @staticmethod
    def _of_log(subject: Subject) -> list[Setting]:
        mock, path = subject.logged("mock_data"), subject.logged("data_path")
        if mock and mock.value is True:
            return [Setting("mock data", mock.source)]
        return [path] if path else []

    @staticmethod
    def _of_run(subject: Subject) -> list[Setting]:
        path = lookup(subject.run, "data.path") if subject.run else None
        return [] if path is None else [Setting(str(path) or "mock data", "run.json")]
