"""The form of a record that goes on over several lines: a head, then one line for each quantity.

Lines of other processes may stand between them, so each line joins the last record that began with the same prefix.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.forms import is_cut, quantities, take_facts
from nlp_bench.logs.progress_bar import slim
from nlp_bench.logs.quantity import in_unit, number
from nlp_bench.logs.scan import Line


@dataclass
class Open:
    """A record that more lines may join."""

    line: Line
    """Its first line, as `slim` keeps it."""
    prefix: bytes
    """What stood before it on its line."""
    values: dict[str, float]
    """Quantities so far."""
    texts: dict[bytes, bytes] = field(default_factory=dict)
    """Value of each key as it was written."""
    is_whole: bool = True
    """False where a number was cut."""
    is_over: bool = False
    """True where a line of the next record was met, whose head is lost."""


class Gathering:
    """Remembers the open record of every process; made anew for each log.

    `head` is an expression with quantities as group names; `pair` has the groups `key` and `value`. Keys that `keys` does
    not know are passed over; those without a quantity are kept as text only.
    """

    def __init__(
        self,
        head: re.Pattern[bytes],
        pair: re.Pattern[bytes],
        keys: Mapping[bytes, str],
        facts: tuple[re.Pattern[bytes], ...] = (),
    ) -> None:
        """Begin with no record."""
        self.head, self.pair, self.keys, self.facts = head, pair, keys, facts
        self._open: dict[bytes, Open] = {}

    def take(self, line: Line, findings: Findings) -> None:
        """Open a record or add to one."""
        for text in pieces(line.text):
            take_facts(self.facts, text, line, findings)
            head = self.head.search(text)
            if head:
                prefix = text[: head.start()]
                label = label_of(prefix)
                self._close(label, findings)
                values, is_whole = self.begin(head)
                bare = slim(line)
                self._open[label] = Open(bare, prefix, values, is_whole=is_whole)
                continue
            pair = self.pair.search(text)
            if pair:
                self._add(text, pair, line)

    def _add(self, text: bytes, pair: re.Match[bytes], line: Line) -> None:
        prefix = text[: pair.start()].strip()
        record = next((r for r in reversed(self._open.values()) if r.prefix.lstrip().startswith(prefix)), None)
        key = self.rename(pair["key"].strip())
        name = self.keys.get(key)
        if record is None or name is None or record.is_over:
            return
        if key in record.texts:
            record.is_over = record.texts[key] != pair["value"].strip()
            return
        value = number(pair["value"])
        # The last number of a line that was never ended may be cut short.
        if value is None or is_cut(line, text, pair.end()):
            record.is_whole = False
            return
        record.texts[key] = pair["value"].strip()
        if name:
            quantity, converted = in_unit(name, value)
            record.values.setdefault(quantity, converted)

    def _close(self, label: bytes, findings: Findings) -> None:
        record = self._open.pop(label, None)
        if record and (record.texts or not record.is_whole):
            self.complete(record, label, findings)

    def begin(self, head: re.Match[bytes]) -> tuple[dict[str, float], bool]:
        """Return the quantities of the head, and whether all of them are numbers."""
        return quantities(head)

    def rename(self, key: bytes) -> bytes:
        """Return the name that `keys` has for `key`, where versions of a program differ."""
        return key

    def complete(self, record: Open, label: bytes, findings: Findings) -> None:
        """Tell `findings` the record; dialects that derive something from it begin here."""
        findings.record(record.line, record.values, label=label, is_whole=record.is_whole)

    def finish(self, findings: Findings) -> None:
        """Tell the records that are still open."""
        for label in list(self._open):
            self._close(label, findings)
