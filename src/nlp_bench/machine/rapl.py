"""The energy of this node's CPU packages by RAPL, where it may be read.

Source: Linux, Documentation/power/powercap/powercap.rst and the driver intel_rapl (which serves AMD's processors, too): each zone has
`name`, `energy_uj` and `max_energy_range_uj`, at which the counter begins again. Since Linux 5.10 `energy_uj` is for root alone.
"""

from dataclasses import dataclass
from pathlib import Path

ZONES = "sys/class/powercap"


@dataclass(frozen=True)
class Package:
    """One CPU package that can be read."""

    name: str
    """Name of the zone, "package-0"."""
    counter: Path
    """Its file `energy_uj`."""
    range_uj: int
    """The counter begins again after this many microjoules."""

    def energy_uj(self) -> int | None:
        """Return the counter in microjoules, None when it cannot be read just now."""
        return _number(self.counter)


def packages(root: Path) -> tuple[list[Package], str | None]:
    """Return the packages below `root` (/ of the node), and why there are none or why some are left out."""
    zones = root / ZONES
    # Sub-zones (core, uncore, dram) are parts of a package or beside it, psys holds them all: one boundary, no double count.
    names = {path.parent: _text(path) for path in sorted(zones.glob("intel-rapl:*/name"))}
    found = [path for path, name in names.items() if name.startswith("package")]
    if not found:
        return [], "no RAPL on this node (no package in /sys/class/powercap)"
    readable = [
        Package(names[path], path / "energy_uj", _number(path / "max_energy_range_uj") or 0)
        for path in found
        if _number(path / "energy_uj") is not None
    ]
    if len(readable) < len(found):
        return [], "RAPL cannot be read by this user (energy_uj in /sys/class/powercap; an administrator can allow it)"
    return readable, None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None
