"""How often a run that stops by --until misses the truth, and what looking again and again at a fixed interval would have given.

python tests/measure/until_calibration.py [--runs 1000] [--within 1%] [--noise real_steps_ms.npz]     prints the table of docs/until.md

`--noise` names a file of step times of real runs, one array per run; windows of it begin anywhere and go round at its end, and the truth
is the mean of all its steps. Each run has at most 6000 iterations; counting begins behind the warm-up that the rule leaves out.
"""

import argparse
import sys
from pathlib import Path
from zlib import crc32

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.stopping import SIMULATED, WITH_STATES, Draw, anytime, fixed, real, reported, simulated

from nlp_bench.measure.anytime import percent


def row(draw: Draw, runs: int, dice: np.random.Generator, within: float, log_interval: int) -> list[str]:
    """Return the cells of one kind: for each rule median iterations, misses when it stopped and at any look, in percent of runs."""
    cells = []
    drawn = [draw(dice) for _ in range(runs)]
    for rule in (anytime, fixed):
        stops = [rule(seconds, within, log_interval) for seconds in drawn]
        reached = [stop.iterations for stop in stops if stop.iterations is not None]
        missed, ever = (100 * np.mean([getattr(stop, name) for stop in stops]) for name in ("missed", "ever"))
        share = "" if len(reached) == runs else f" ({100 * len(reached) / runs:.0f} % of runs)"
        cells += [f"{np.median(reached):.0f}{share}" if reached else "never", f"{missed:.1f} %", f"{ever:.1f} %"]
    return cells


def row_of_report(draw: Draw, runs: int, dice: np.random.Generator, within: float, log_interval: int) -> list[str]:
    """Return the cells of one kind: what the report's own interval is worth for runs that stopped by the confidence sequence."""
    found = []
    for seconds in (draw(dice) for _ in range(runs)):
        stop = anytime(seconds, within, log_interval)
        if stop.iterations is not None:
            found.append(reported(seconds, stop.iterations, log_interval))
    if not found:
        return ["0", "", "", ""]
    missed, too_fast, half = (np.array(column) for column in zip(*found, strict=True))
    shares = [f"{100 * np.mean(column):.1f} %" for column in (missed, too_fast)]
    return [str(len(found)), *shares, f"{100 * np.median(half):.2f} %"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="runs of each kind")
    parser.add_argument("--within", default="1%", help="the wanted half width")
    parser.add_argument("--log-interval", type=int, default=1)
    parser.add_argument("--noise", type=Path, help="step times of real runs (.npz)")
    parser.add_argument(
        "--report", action="store_true", help="the table of the report's own interval at the stop instead"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="kinds with this word")
    options = parser.parse_args()
    kinds = {name: simulated(name) for name in (*SIMULATED, *WITH_STATES)}
    if options.noise:
        with np.load(options.noise) as arrays:
            kinds |= {f"real: {name}": real(arrays[name].astype(float)) for name in arrays}
    heading = "stops after | misses | at any look | fixed: stops after | misses | at any look"
    if options.report:
        heading = "runs that stopped | misses | wholly too fast | half width"
    print(f"| kind of run | {heading} |")
    print("|---|" + "---:|" * (heading.count("|") + 1))
    for name, draw in kinds.items():
        if options.only in name:
            dice = np.random.default_rng([options.seed, crc32(name.encode())])
            cells = (row_of_report if options.report else row)(
                draw, options.runs, dice, percent("--within", options.within), options.log_interval
            )
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
