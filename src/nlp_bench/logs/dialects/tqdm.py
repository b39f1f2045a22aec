"""Progress bars of programs that print nothing else about their speed."""

from nlp_bench.logs.dialect import Dialect, Parser
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.progress_bar import NEEDLES, BarBook, tell
from nlp_bench.logs.scan import Line

_OWN_TIMES = (b"SamplesPerSec=", b"train_runtime", b":::MLLOG")
"""Words of programs that state their own times: their bars are not asked."""


class _Parser(Parser):
    """Keeps every bar that may be a training's; the longest is believed in the end."""

    def __init__(self) -> None:
        self.book = BarBook()
        self.is_silent = False

    def take(self, line: Line, _findings: Findings) -> None:
        """Remember the bars of the line."""
        self.is_silent = self.is_silent or any(words in line.text for words in _OWN_TIMES)
        if any(needle in line.text for needle in NEEDLES):
            self.book.take(line, "train")

    def finish(self, findings: Findings) -> None:
        """Tell the times of the bar that ran longest."""
        series = self.book.longest()
        if series and not self.is_silent and tell(series, findings):
            findings.remark(
                "an iteration is one unit of the bar: a micro-batch where the program accumulates gradients"
            )


DIALECTS = (
    Dialect(
        name="tqdm",
        title="any program with a tqdm bar around its training steps",
        source="tqdm/tqdm tqdm/std.py, format_meter",
        example="Training:  41%|####      | 41/100 [01:22<01:58,  2.01s/it, loss=3.1]",
        trap="s/it below one iteration per second, it/s above; rates are smoothed, the clock has whole seconds, n is cut to "
        "micro-batches in many programs, and downloads and evaluations have bars too",
        needles=(*NEEDLES, *_OWN_TIMES),
        parser=_Parser,
        yields_to=("*", "unknown", "deepspeed", "nemo-1", "lightning"),
    ),
)
