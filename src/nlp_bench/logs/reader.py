"""One log, read once from front to back by every dialect whose words stand in it; the evidence chooses between them."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, cached_property

from nlp_bench.logs.attempts import Lookalikes
from nlp_bench.logs.common import EVENTS, MACHINE, SETTINGS
from nlp_bench.logs.dialect import Dialect, Parser
from nlp_bench.logs.dialects import all_dialects
from nlp_bench.logs.end_marks import ENDINGS
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.pattern import pattern_dialect
from nlp_bench.logs.record import Log
from nlp_bench.logs.scan import Line, Scanner
from nlp_bench.logs.separators import Separators, misread_points
from nlp_bench.logs.source import Block, Source, open_log

OURS = "megatron-lm"  # dialect of the logs of this project's own trainer
SURE = 64
"""Records after which a dialect that yields to no other is alone: the rest of the log is searched for its words only."""

MANY_LINES, SHORT_BYTES = 4096, 400
"""Lines that are remembered, and their length: those of one program differ in their digits alone, the arguments of its runs not at all."""
_DIGITS = b"0123456789"
_SHAPE = bytes.maketrans(_DIGITS, b"0" * 10)
_BESIDE = (MACHINE, SETTINGS, EVENTS, ENDINGS)  # what is true of any log, whoever's records are believed
_NUM_SURE = 3
"""Candidates that are left then: the dialect, and the searches for evaluations and checkpoints and for ends."""

Progress = Callable[[Source], None]


def read_log(
    path: str, *, only: str | None = None, pattern: tuple[str, ...] = (), progress: Progress | None = None
) -> Log:
    """Read the log at `path` (plain, gzip, xz, zstd or bzip2; `-` is standard input), streaming.

    `only` names the one dialect that the log is known to have; `pattern` are regular expressions that describe its lines instead
    (`pattern_dialect`); `progress` is called about once per MiB. Raises UsageError when the log cannot be opened. Bytes that are no text never raise: they are no record.
    """
    reading = _Reading(_first_search(only, pattern))
    with open_log(path) as source:
        for block in source.blocks():
            reading.take(block)
            if progress:
                progress(source)
        return reading.result(source.num_bytes, source.damage)


class _Candidate:
    """A dialect with its parser and what it has found so far."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.findings = Findings(dialect)
        self._lookalikes = Lookalikes()
        self._rates: frozenset[str] = frozenset()

    @cached_property
    def parser(self) -> Parser:
        return self.dialect.parser()

    def take(self, line: Line) -> None:
        """Let the parser read a line. One that it cannot bear is left out and said: it must not hide all the others."""
        findings = self.findings
        num_records, num_torn = findings.num_records, findings.num_torn
        try:
            self.parser.take(line, findings)
        except Exception as error:  # noqa: BLE001  # whatever a mutilated line brings about
            findings.fail(f"line {line.number}", error)
            findings.overlook(line)
            return
        if not getattr(self.parser, "reads_each_line", False):
            return
        if findings.num_records > num_records and findings.last_rates >= self._rates:
            self._rates = findings.last_rates
            self._lookalikes.learn(line.text)
        elif findings.num_torn == num_torn and self._lookalikes.has(line.text):
            findings.overlook(line, is_record=findings.num_records > num_records)

    def finish(self) -> None:
        """Let the parser tell what only the end of the log decides, if it has read anything."""
        if "parser" not in vars(self) and not self.findings.num_records:
            return
        try:
            self.parser.finish(self.findings)
        except Exception as error:  # noqa: BLE001  # likewise
            self.findings.fail("the end of the log", error)

    @property
    def is_last_resort(self) -> bool:
        return "*" in self.dialect.yields_to


class _Search:
    """The words of some dialects; making its tables takes longer than reading a short log, so they are made once."""

    def __init__(self, dialects: tuple[Dialect, ...]) -> None:
        self.dialects = dialects
        self.fast = next((index for index, dialect in enumerate(dialects) if dialect.grammar), None)
        """Index of the dialect whose clean records the scanner reads."""
        wanting: dict[bytes, list[int]] = {}
        for index, dialect in enumerate(dialects):
            for needle in dialect.needles:
                wanting.setdefault(needle, []).append(index)
        self._numbered = {needle: wanting.pop(needle) for needle in tuple(wanting) if set(needle) & set(_DIGITS)}
        # A longer needle that holds a shorter one finds nothing more.
        tree: dict[bytes, list[tuple[bytes, list[int]]]] = {}
        for needle in sorted(wanting, key=len):
            for short in [short for short in tree if short in needle] or [needle]:
                tree.setdefault(short, []).append((needle, wanting[needle]))
        self._tree = list(tree.items())
        self._known: dict[bytes, tuple[int, ...]] = {}
        self.reads_commas = {index for index, d in enumerate(dialects) if d.prints_commas or d in _BESIDE}
        """Indices of the dialects to whom commas between thousands, or anywhere, are nothing new."""
        grammar = next((dialect.grammar for dialect in dialects if dialect.grammar), None)
        self.scanner = Scanner((*tree, *self._numbered), grammar() if grammar else None)

    def wanting(self, text: bytes) -> tuple[int, ...]:
        """Return the indices, in order, of the dialects that have a word in `text`."""
        shape = text.translate(_SHAPE)
        wanting = self._known.get(shape)
        if wanting is None:
            found = {
                i for short, group in self._tree if short in text for n, found in group if n in text for i in found
            }
            wanting = tuple(sorted(found))
            if len(self._known) < MANY_LINES and len(text) < SHORT_BYTES:
                self._known[shape] = wanting
        numbered = [found for needle, found in self._numbered.items() if needle in text]
        return tuple(sorted({*wanting}.union(*numbered))) if numbered else wanting


_search = cache(_Search)


@cache
def _first_search(only: str | None, pattern: tuple[str, ...]) -> _Search:
    """Return the search for every dialect, or for the one called `only` or described by `pattern`, and for what is true of any log."""
    if pattern:
        return _Search((pattern_dialect(pattern), *_BESIDE))
    return _Search((*(d for d in all_dialects() if only in {None, d.name}), *_BESIDE))


class _Reading:
    """The candidates of one log, each made for the first line with its words, and the search for these."""

    def __init__(self, search: _Search) -> None:
        self._is_known = False
        self._separators = Separators()
        self._waiting: list[tuple[_Candidate, Line]] = []
        self._search = search
        self._beside = tuple(map(_Candidate, _BESIDE))
        self._machine, self._settings, self._events, self._ends = self._beside
        num_dialects = len(self._search.dialects) - len(self._beside)
        self._made: list[_Candidate | None] = [*([None] * num_dialects), *self._beside]

    def take(self, block: Block) -> None:
        """Read a block; the last resorts have their turn behind it, and only while nobody else has a record.

        The other dialects are left aside once one has spoken often enough and none that it yields to can follow.
        """
        rows, lines = self._search.scanner.scan(block)
        if self._search.fast is not None and len(rows.values):
            self._candidate(self._search.fast).findings.rows(rows)
        for line in lines:
            self._take(line)
        self._is_known = self._is_known or any(
            (c.findings.num_records or c.findings.has_refused) and not c.is_last_resort for c in self.candidates
        )
        for candidate, line in () if self._is_known else self._waiting:
            candidate.take(line)
        self._waiting.clear()
        for candidate in self.candidates if len(self._made) > _NUM_SURE else ():
            if candidate.findings.num_records >= SURE and not candidate.dialect.yields_to:
                self._search = _search((candidate.dialect, EVENTS, ENDINGS))
                self._made = [candidate, self._events, self._ends]
                return

    @property
    def candidates(self) -> list[_Candidate]:
        return [candidate for candidate in self._made if candidate]

    def _candidate(self, index: int) -> _Candidate:
        candidate = self._made[index]
        if candidate is None:
            candidate = self._made[index] = _Candidate(self._search.dialects[index])
        return candidate

    def _take(self, line: Line) -> None:
        """Hand a line to every candidate whose word it holds; the last resorts wait for what the others make of the block."""
        wanting = self._search.wanting(line.text)
        line = self._separators.plain(line, reads_commas=self._search.reads_commas.issuperset(wanting))
        for index in wanting:
            candidate = self._candidate(index)
            if not candidate.is_last_resort:
                candidate.take(line)
            elif not self._is_known:
                self._waiting.append((candidate, line))

    def result(self, num_bytes: int, damage: str | None) -> Log:
        candidates = [candidate for candidate in self.candidates if candidate not in self._beside]
        for candidate in sorted((*candidates, *self._beside), key=lambda each: each.is_last_resort):
            candidate.finish()
        speaking = [candidate.findings for candidate in candidates if not candidate.findings.is_silent]
        names = {findings.dialect.name for findings in speaking if findings.num_records or findings.has_refused}
        believed = [f for f in speaking if not _yields(f, names)] or speaking
        if not believed:
            return Log(
                dialect=None, attempts=(), num_bytes=num_bytes, damage=damage, ends=tuple(self._ends.findings.ends)
            )
        best = max(believed, key=lambda f: (f.num_records > 0, f.has_refused, f.num_records))
        log = best.result(num_bytes=num_bytes, damage=damage, common=self._machine.findings.first_facts())
        # The fast road takes a point for what it is everywhere else.
        if best.dialect.grammar and not log.refusal:
            log = replace(log, refusal=misread_points(log))
        said = self._separators.remarks(log, best.dialect)
        return replace(
            log,
            remarks=(*log.remarks, *said),
            settings=self._settings.findings.settings,
            events=tuple(self._events.findings.events),
            ends=tuple(self._ends.findings.ends),
        )


def _yields(findings: Findings, names: set[str]) -> bool:
    to = findings.dialect.yields_to
    others = names - {findings.dialect.name}
    return bool(others) if "*" in to else not others.isdisjoint(to)
