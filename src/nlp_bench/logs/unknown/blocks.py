"""Evaluations within a log that nobody has described: lines that begin and end one, and the records that belong to it."""

import re

_MAX_BYTES = 200
"""A longer line is no heading."""
_MAX_LINES = 30
"""Lines between a heading and the first record below it."""
_EPOCH = re.compile(rb"\b(?:beginning of|begin|starting|start) (?:training )?epoch\b")
_TELLS = (b"val", b"dev set")
_BEGIN = re.compile(
    rb"\b(?:evaluating|validating|lm[_-]?eval)\b(?![:=\"'])"
    rb"|\b(?:running|starting|beginning|begin|start) (?:[a-z]{1,12} )?(?:evaluation|validation|eval|val)\b(?![:=\"'])"
    rb"|^[^a-z0-9]{0,40}(?:validation|evaluation|eval|validate|evaluate)[^a-z0-9=:]{0,40}$"
    rb"|[=*#>-]{2,} ?(?:running )?(?:validation|evaluation|eval)\b"
)
_END = re.compile(rb"\b(?:done|finished|completed?|ended|resum[a-z]{1,6}|every|interval|train(?:ing)?)\b")
DECORATED = (b"...", b"==", b"**", b"--")
"""Ends of a heading that may hold numbers."""


class Blocks:
    """Tells the records of an evaluation from those of the training, where only the lines around them say which they are."""

    def __init__(self) -> None:
        self._is_open = False
        self._begin = 0
        """Line of its heading."""
        self._form = ""
        """Form of the records of the open block."""
        self._last = 0.0
        """Counter of its last record."""
        self._trained: dict[str, float] = {}
        """Forms of the training so far, and the counter of the last record of each."""

    def heading(self, text: bytes, number: int, *, has_numbers: bool = False) -> None:
        """Take line `number`, which is no record."""
        if len(text) > _MAX_BYTES:
            return
        lower = text.lower()
        if self._is_open and _EPOCH.search(lower):
            self.end()
        if has_numbers and not text.rstrip().endswith(DECORATED):
            return
        if self._is_open and _END.search(lower):
            self.end()
        elif any(word in lower for word in _TELLS) and _BEGIN.search(lower) and not _END.search(lower):
            self._is_open, self._form, self._begin = True, "", number

    def end(self) -> None:
        """End the evaluation: its result is told, or the training goes on."""
        self._is_open = False

    def is_evaluation(self, form: str, counter: float, number: int) -> bool:
        """Say whether a record on line `number` is one of an evaluation.

        A block ends where the form changes, or where the counter goes on from where the training has left it.
        """
        is_far = not self._form and number - self._begin > _MAX_LINES
        if self._is_open and (is_far or self._goes_on(form, counter)):
            self.end()
        if self._is_open:
            self._form, self._last = form, counter
            return True
        self._trained[form] = counter
        return False

    def _goes_on(self, form: str, counter: float) -> bool:
        if self._form and form != self._form:
            return True
        is_next = self._form == form and 0 < counter - self._last <= 1
        return form in self._trained and counter > self._trained[form] and not is_next
