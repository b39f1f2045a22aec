"""`--scaling` and `--sweep`: the same runs seen as curves or as rankings, as text and in the folder of `--output`."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.errors import UsageError
from nlp_bench.packages import is_missing
from nlp_bench.report.table import Report

if TYPE_CHECKING:
    from nlp_bench.show.chart import Chart, HeatMap

FILES = {"csv": "csv", "markdown": "md", "json": "json"}
"""Format to the ending of its file."""
NOTHING = {
    "scaling": "no curve: no workload has a number at two sizes",
    "sweep": "no sweep: no two configurations on equal GPUs, or none with a number",
}
"""What stands in place of a plot."""


@dataclass(frozen=True, kw_only=True)
class View:
    """Another look at a report."""

    name: str
    """How its files are called: scaling or sweep."""
    text: Callable[[str], str]
    """Format to text."""
    plots: Callable[[], "Sequence[Chart | HeatMap]"]
    """Its plots."""

    def write(self, folder: Path) -> list[Path]:
        """Write NAME.csv, .md, .json and, by matplotlib, its plots as .png and .svg, each whole or not at all; return their paths."""
        from nlp_bench.files import write_bytes  # noqa: PLC0415  # most reports write no file

        found = {f"{self.name}.{ending}": self.text(form).encode() for form, ending in FILES.items()}
        found |= {} if is_missing("matplotlib") else self._images()
        for name, content in found.items():
            write_bytes(folder / name, content)
        return [folder / name for name in found]

    def _images(self) -> dict[str, bytes]:
        from nlp_bench.show.image import empty, images  # noqa: PLC0415  # heavy

        found: dict[str, bytes] = {}
        for plot in self.plots():
            found |= images(plot)
        return found if f"{self.name}.png" in found else found | empty(self.name, NOTHING[self.name])


def check(options: argparse.Namespace) -> None:
    """Raise UsageError where the options of the two views contradict each other or the format."""
    if options.scaling and options.sweep:
        raise UsageError("--scaling and --sweep are two views of the same runs; give one of them")
    if (options.scaling or options.sweep) and options.format == "records-csv":
        raise UsageError(
            "--format records-csv gives the lines of each log, without --scaling or --sweep; leave one out"
        )
    if options.baseline_gpus and not options.scaling:
        raise UsageError("--baseline-gpus chooses the baseline of --scaling; add --scaling")


def scaling_view(report: Report) -> View:
    """Return the curves of a report; raises UsageError where no run has the GPUs of the baseline."""
    from nlp_bench.analysis.scaling import scaling_of  # noqa: PLC0415  # only --scaling needs it
    from nlp_bench.analysis.scaling_text import FORMATS, scaling_charts  # noqa: PLC0415

    found = scaling_of(report.entries, report.tokens, report.baseline_gpus, allow_measured=report.allow_measured)

    return View(name="scaling", text=_text(FORMATS, found), plots=lambda: scaling_charts(found))


def sweep_view(report: Report) -> View:
    """Return the rankings of a report."""
    from nlp_bench.analysis.sweep import sweep_of  # noqa: PLC0415  # only --sweep needs it
    from nlp_bench.analysis.sweep_text import FORMATS, sweep_charts  # noqa: PLC0415

    found = sweep_of(report.entries, report.tokens, allow_measured=report.allow_measured)

    return View(name="sweep", text=_text(FORMATS, found), plots=lambda: sweep_charts(found))


def _text(formats: Mapping[str, Callable[[Any], str]], found: object) -> Callable[[str], str]:
    return lambda form: formats[form](found)
