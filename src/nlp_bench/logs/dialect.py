"""What a dialect is: its name, the byte strings that select its lines, its pitfall, and the parser of its lines."""

import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from nlp_bench.immutable import immutable
from nlp_bench.logs.clean import pieces

if TYPE_CHECKING:
    from nlp_bench.logs.findings import Findings
    from nlp_bench.logs.scan import Grammar, Line


class Parser:
    """Reads the lines of one log for one dialect. Each log has an instance of its own, which may keep state; this base class reads nothing."""

    reads_each_line: bool = False
    """Whether each line of a record gives a record at once: then a line with the same words and no record is one whose numbers cannot
    be read, and its iteration may be lost. Other parsers buffer lines or thin them out."""

    def take(self, line: "Line", findings: "Findings") -> None:
        """Report what `line` states to `findings`: records, facts, a new start; lines of other programs are skipped."""
        for text in pieces(line.text):
            self.text(text, line, findings)

    def text(self, text: bytes, line: "Line", findings: "Findings") -> None:
        """Read one text of a line as `clean.pieces` splits it."""

    def finish(self, findings: "Findings") -> None:
        """Report to `findings` what is known only at the end of the log."""


@immutable
class Dialect:
    """One format in which programs log their training."""

    name: str  # name in reports: lower case, words joined by hyphens
    title: str = "any program"  # programs that write it
    source: str = "none"  # repository and file of its format string
    example: str = ""  # a line of it, made from the format string; tests read it, `--dialects` shows it
    trap: str = ""  # what is easily misread
    needles: tuple[bytes, ...] = ()
    """Every line that the parser needs holds at least one of these; none for a program whose lines another dialect's parser reads."""
    parser: Callable[[], Parser] = Parser  # makes the parser of one log
    yields_to: tuple[str, ...] = ()
    """Dialects that take precedence when both have records: names, or "*" for every other one that does not itself yield to this one by name."""
    believes_settings: bool = False
    """Whether values of a printed configuration (`seq_length: 8192`), or Lightning's number of processes, are those that ran."""
    tokens_vary: bool = False
    """Whether an iteration has as many tokens as its texts, rather than all of them alike: rates are then averaged as over equal times."""
    counts_from: int = 1  # number of the first iteration of a training
    grammar: "Callable[[], Grammar] | None" = None
    """The strict form of a clean record, for the scanner; the parser must give the same record for such lines."""

    @cached_property
    def prints_commas(self) -> bool:
        """Whether its programs print thousands commas, as its example shows: then its parser reads them."""
        return re.search(r"[ =]\d{1,3}(?:,\d{3})+(?![\d,])", self.example) is not None
