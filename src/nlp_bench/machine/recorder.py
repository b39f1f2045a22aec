"""The recorder of one node: what it is, once; energy, power, clocks and throttle reasons, once per second.

`nlp-bench launch` starts it beside torchrun as `python -m nlp_bench.machine.recorder RUN_DIR --parent PID ...`. It ends with the
process of that number, writes into RUN_DIR/machine alone, and nobody waits for it or asks for its exit status.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlp_bench.clock import unix_s
from nlp_bench.errors import UsageError
from nlp_bench.files import write_json, write_text
from nlp_bench.immutable import immutable
from nlp_bench.machine.form import ERROR, FACTS, SAMPLES, SCHEMA, TIME, header
from nlp_bench.machine.node import host_facts, load_1min, node_name, text_of
from nlp_bench.machine.nvml import MIG, Nvml, NvmlError, visible_gpus
from nlp_bench.walk import MACHINE

if TYPE_CHECKING:
    from nlp_bench.config.run import Run

INTERVAL = "NLP_BENCH_SAMPLE_S"  # variable: seconds between two samples (default 1); 0 records nothing
FASTEST_S, SLOWEST_S = 0.05, 60.0
POLL_S = 0.1  # seconds between two checks whether the launcher is still running
LAST_S = 2.0  # seconds for the last sample; then the process ends, whatever a driver does


@immutable(kw_only=False)
class Package:
    """One CPU package whose counter can be read."""

    name: str  # name of the zone, "package-0"
    counter: Path  # its file `energy_uj`
    range_uj: int  # the counter wraps around after this many microjoules

    def energy_uj(self) -> int | None:
        """Return the counter in microjoules, None when it cannot be read at present."""
        return _number(self.counter)


def packages(root: Path) -> tuple[list[Package], str | None]:
    """Return the CPU packages of the node whose file system begins at `root`, and why there are none.

    RAPL: Linux, Documentation/power/powercap/powercap.rst and the driver intel_rapl (which serves AMD's processors, too): each zone has
    `name`, `energy_uj` and `max_energy_range_uj`, at which the counter wraps around. Since Linux 5.10 `energy_uj` is for root alone.
    """
    # Sub-zones (core, uncore, dram) are parts of a package or next to it, psys covers them all: one boundary, no double count.
    zones = sorted((root / "sys/class/powercap").glob("intel-rapl:*/name"))
    found = {path.parent: name for path in zones if (name := text_of(path).strip()).startswith("package")}
    if not found:
        return [], "no RAPL on this node (no package in /sys/class/powercap)"
    if any(_number(zone / "energy_uj") is None for zone in found):
        return [], "RAPL cannot be read by this user (energy_uj in /sys/class/powercap; an administrator can allow it)"
    read = [
        Package(name, zone / "energy_uj", _number(zone / "max_energy_range_uj") or 0) for zone, name in found.items()
    ]
    return read, None


def _number(path: Path) -> int | None:
    text = text_of(path).strip()
    return int(text) if text.isdecimal() else None


class Meters:
    """What can be read on this node while the ranks run."""

    def __init__(self, root: Path, *, num_gpus: int, visible: str | None) -> None:
        """Find the GPUs of `num_gpus` ranks (0: none) among those of CUDA_VISIBLE_DEVICES, `visible`, and the CPU packages below `root`."""
        self._root = root
        self._nvml: Nvml | None = None
        self.gpus: list[dict[str, Any]] = []
        self.reasons: list[str] = []
        if num_gpus:
            self._find_gpus(num_gpus, visible)
        else:
            self.reasons.append("the run uses no GPU")
        self._packages, why = packages(root)
        if why:
            self.reasons.append(why)

    def _find_gpus(self, num_gpus: int, visible: str | None) -> None:
        try:
            self._nvml = nvml = Nvml()
        except NvmlError as error:
            # A meter of AMD's GPUs (amdsmi) is not implemented: their nodes are recognised by their driver.
            is_amd = (self._root / "dev/kfd").exists()
            self.reasons.append("AMD GPUs: their meter (amdsmi) is not implemented" if is_amd else str(error))
            return
        every = [nvml.gpu(index) for index in range(len(nvml.handles))]
        is_part = (visible or "").lstrip().startswith(MIG)  # of a board, which has no meter of its own
        used = [] if is_part else (visible_gpus(visible, nvml) or [])[:num_gpus]
        self.gpus = [{**gpu, "is_used": gpu["index"] in used} for gpu in every]
        if len(used) < num_gpus:
            self.reasons.append(f"NVML shows {len(used)} of the {num_gpus} GPUs of the ranks")
        for gpu in self._used:
            if gpu["no_energy_counter"]:
                self.reasons.append(f"GPU {gpu['index']} has no energy counter ({gpu['no_energy_counter']})")

    @property
    def _used(self) -> list[dict[str, Any]]:
        return [gpu for gpu in self.gpus if gpu["is_used"]]

    @property
    def columns(self) -> list[str]:
        """The names of the values of `sample`, after the time."""
        return header([gpu["index"] for gpu in self._used], len(self._packages))[1:]

    def sample(self) -> list[float | None]:
        """Return the values of this moment."""
        values = [load_1min(self._root)]
        if self._nvml:
            for gpu in self._used:
                values += self._nvml.sample(self._nvml.handles[gpu["index"]])
        return values + [package.energy_uj() for package in self._packages]

    def to_json(self) -> dict[str, Any]:
        """Return versions of the driver and the objects `gpus`, `cpu_packages` and `no_meter` of nlp-bench/machine/1."""
        has_meter = bool(self._packages) or any(not gpu["no_energy_counter"] for gpu in self._used)
        return {
            **(self._nvml.driver() if self._nvml else {}),
            "gpus": self.gpus,
            "cpu_packages": [{"name": p.name, "range_uj": p.range_uj} for p in self._packages],
            "no_meter": None if has_meter else f"no meter: {'; '.join(self.reasons)}",
            "meter_remarks": self.reasons if has_meter else [],
        }


def interval_s() -> float:
    """Return the seconds between two samples; raises UsageError for a value that is neither 0 nor a number from 0.05 to 60."""
    text = os.environ.get(INTERVAL) or "1"  # an empty one is meant as unset
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value != 0 and not FASTEST_S <= value <= SLOWEST_S:
        raise UsageError(
            f"{INTERVAL}: {text!r} is no number of seconds from {FASTEST_S:g} to {SLOWEST_S:g}; leave it out for 1, or set 0 to record nothing"
        )
    return value


def recorder_command(run: "Run", run_dir: Path, parent: int, every_s: float) -> list[str]:
    """Return the command that starts the recorder for the process `parent`."""
    gpus = run.parallel.gpus_per_node if run.system.accelerator == "cuda" else 0
    return [
        sys.executable, "-m", "nlp_bench.machine.recorder", str(run_dir),
        "--parent", str(parent), "--gpus", str(gpus), "--interval-s", f"{every_s:g}",
    ]  # fmt: skip


def start_recorder(run: "Run", run_dir: Path) -> None:
    """Start it as a child of this process, the launcher, which watches over torchrun; a node where it cannot start runs without.

    It inherits no stream: the log must end with the ranks. Raises UsageError for a wrong NLP_BENCH_SAMPLE_S.
    """
    every_s = interval_s()
    if not every_s:
        return
    nothing = subprocess.DEVNULL
    try:
        subprocess.Popen(
            recorder_command(run, run_dir, os.getpid(), every_s), stdin=nothing, stdout=nothing, stderr=nothing
        )
    except OSError as error:
        print(f"nlp-bench: the recorder of this node cannot start: {error.strerror}", file=sys.stderr)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="python -m nlp_bench.machine.recorder", description=__doc__)
    parser.add_argument("run_dir", type=Path, help="folder of the run")
    parser.add_argument("--parent", type=int, required=True, help="end when the process of this number has ended")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs that the ranks of this node use")
    parser.add_argument("--interval-s", type=float, default=1.0, help="seconds between two samples")
    parser.add_argument("--root", type=Path, default=Path("/"), help="where sys, proc, etc and dev are")
    return parser.parse_args(arguments)


def record(options: argparse.Namespace, stem: Path, stop: threading.Event) -> None:
    """Write `stem`.json, then a line of `stem`.samples.csv every `interval_s` until `stop` is set, and one more."""
    meters = Meters(options.root, num_gpus=options.gpus, visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
    facts = {
        "schema": SCHEMA,
        "node": stem.name,
        "began_unix_s": unix_s(),
        "interval_s": options.interval_s,
        **host_facts(options.root, os.environ),
        **meters.to_json(),
    }
    write_json(stem.with_name(stem.name + FACTS), facts)
    with stem.with_name(stem.name + SAMPLES).open("wb", buffering=0) as stream:
        stream.write(",".join([TIME, *meters.columns]).encode() + b"\n")
        next_s = time.monotonic()
        while not stop.is_set():
            stream.write(_line(meters))
            next_s = max(next_s + options.interval_s, time.monotonic())  # no catching up after a late sample
            stop.wait(next_s - time.monotonic())
        stream.write(_line(meters))


def _line(meters: Meters) -> bytes:
    """Return one line; its time is the middle of the reading."""
    before_s = unix_s()
    values = meters.sample()
    cells = ["" if value is None else f"{value:.12g}" if isinstance(value, float) else str(value) for value in values]
    return ",".join([f"{(before_s + unix_s()) / 2:.3f}", *cells]).encode() + b"\n"


def _end_with(parent: int, signals: list[int], stop: threading.Event) -> None:
    """Set `stop` when `parent` has ended or a signal came, and end this process soon after, whatever a driver does.

    It has a thread of its own, which notices the end of the launcher even by SIGKILL, while NVML hangs, and in time for the last sample.
    """
    while os.getppid() == parent and not signals:
        time.sleep(POLL_S)
    stop.set()
    time.sleep(LAST_S)
    os._exit(0)


def main(arguments: list[str] | None = None) -> int:
    """Record until the parent ends; return 0, or 1 when recording failed, with the reason in machine/NODE.error.txt."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    stop, signals = threading.Event(), list[int]()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # setting `stop` in a handler could deadlock
        signal.signal(number, lambda caught, _frame: signals.append(caught))
    threading.Thread(target=_end_with, args=(options.parent, signals, stop), daemon=True).start()
    stem = options.run_dir / MACHINE / node_name(os.environ)
    try:
        stem.parent.mkdir(exist_ok=True)
        record(options, stem, stop)
    except Exception:  # noqa: BLE001  # whatever it is, the run goes on and its record says what is missing
        with contextlib.suppress(Exception):  # a full disk, say
            write_text(stem.with_name(stem.name + ERROR), traceback.format_exc())
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
