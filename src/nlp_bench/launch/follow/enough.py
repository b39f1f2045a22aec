"""Whether a run that goes on has been measured well enough: each line of its log is read once, however often it is looked at."""

from pathlib import Path

from nlp_bench.config.run import Run
from nlp_bench.launch.follow.progress import LINE
from nlp_bench.measure.anytime import Bound, ConfidenceSequence, percent

BLOCK_BYTES = 1 << 20


class Enough:
    """Reads on in one log with every look."""

    def __init__(self, run: Run, log: Path, until: str | None) -> None:
        """Want the mean time to the share `until`, or to that of run.json where it is None."""
        word = until or run.tuning.until
        self.ends_itself = run.tuning.until is not None
        self._log, self._log_interval = log, run.training.log_interval
        self._within = percent("--until", word) if word else None
        self._begin()

    def _begin(self) -> None:
        self._sequence = ConfidenceSequence(self._within, self._log_interval) if self._within else None
        self._read, self._rest = 0, b""

    def look(self) -> Bound | None:
        """Read what is new; return what is known of the mean time, None where nobody asked or the lines are too few."""
        if self._sequence is None:
            return None
        try:
            with self._log.open("rb") as stream:
                if stream.seek(0, 2) < self._read:  # written anew
                    self._begin()
                stream.seek(self._read)
                while block := stream.read(BLOCK_BYTES):
                    self._take(block)
        except OSError:
            return None
        return self._sequence.bound()

    def _take(self, block: bytes) -> None:
        self._read += len(block)
        whole, newline, self._rest = (self._rest + block).rpartition(b"\n")
        if not newline:
            self._rest = self._rest[-BLOCK_BYTES:]  # no line of ours is so long
            return
        for number, unit, word in LINE.findall(whole):
            if self._sequence:
                self._sequence.add(int(number), float(word) / (1000 if unit == b"ms" else 1))
