"""What a dialect is: its name, the evidence that chooses it, the trap in it, and the parser of its lines."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from nlp_bench.logs.clean import pieces

if TYPE_CHECKING:
    from nlp_bench.logs.findings import Findings
    from nlp_bench.logs.scan import Grammar, Line


class Parser:
    """Reads the lines of one log for one dialect; made anew for each log, so it may remember what came before. By itself it reads nothing."""

    reads_each_line: bool = False
    """Whether it makes a record at once of each line of the form of a record: of another line with the same words the numbers cannot be
    read, and its iteration may be lost. Others hold lines back, or thin them out."""

    def take(self, line: "Line", findings: "Findings") -> None:
        """Tell `findings` what `line` says: records, facts, a new start; lines of others are passed over."""
        for text in pieces(line.text):
            self.text(text, line, findings)

    def text(self, text: bytes, line: "Line", findings: "Findings") -> None:
        """Read the text of a line, or what stands between two carriage returns of it, without colours."""

    def finish(self, findings: "Findings") -> None:
        """Tell `findings` what only the end of the log decides."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One way in which programs log their training."""

    name: str  # name in reports: lower case, words joined by hyphens
    title: str = "any program"  # programs that write it
    source: str = "none"  # where its format string stands: repository and file
    example: str = ""  # a line of it, made from the format string; tests read it, `--dialects` shows it
    trap: str = ""  # what a careless reader gets wrong
    needles: tuple[bytes, ...] = ()
    """Every line that the parser wants holds at least one of these; none for a program whose lines another one's parser reads."""
    parser: Callable[[], Parser] = Parser  # makes the parser of one log
    yields_to: tuple[str, ...] = ()
    """Dialects that are believed instead when both have records: names, or "*" for every other one."""
    believes_settings: bool = False
    """Whether a `seq_length: 8192` of a printed configuration, or Lightning's number of processes, is what ran."""
    counts_from: int = 1  # number of the first iteration of a training
    grammar: "Callable[[], Grammar] | None" = None
    """The strict form of a clean record, for the fast road; the parser must read such lines alike."""

    @cached_property
    def prints_commas(self) -> bool:
        """Whether its programs print commas between thousands, as the example shows: then its parser reads them."""
        return re.search(r"[ =]\d{1,3}(?:,\d{3})+(?![\d,])", self.example) is not None
