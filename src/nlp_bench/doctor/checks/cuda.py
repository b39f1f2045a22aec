"""torch's CUDA against the driver's, without importing torch.

NVIDIA, "CUDA Compatibility": a program of CUDA 12.x runs on any driver that supports 12.0 or newer (minor version compatibility), not
on one of an older major version.
"""

from nlp_bench.build.environment import Machine, this_machine
from nlp_bench.doctor.finding import Finding, failed, ok, skipped, warning
from nlp_bench.doctor.place import Place

ARCH = "cpu"  # named, so that no driver is asked: NVML has told already


def check(place: Place) -> Finding:
    """Fail for a CPU build of torch where GPUs are asked for, and for a driver of an older major version."""
    machine = this_machine(ARCH)
    name = place.system.name if place.system else "NAME"
    remedy = place.bash(f"benchmark/env/setup_venv.sh --system {name}")
    if machine.torch == "absent":
        return failed("torch is not installed for this Python", remedy=remedy)
    if place.accelerator != "cuda" or (place.system and place.system.container.image):
        return skipped(
            "torch is the container image's" if place.accelerator == "cuda" else f"torch {machine.torch} on the CPU"
        )
    if machine.cuda == "none":
        return failed(f"torch {machine.torch} is a build without CUDA", remedy=remedy)
    return _against_driver(place, machine)


def _against_driver(place: Place, machine: Machine) -> Finding:
    if place.nvml is None:
        return skipped(f"torch {machine.torch} is built for CUDA {machine.cuda}; no driver here to compare with")
    driver = place.nvml.driver()
    known = driver["cuda_driver"]
    facts = (f"driver {driver['driver']}", f"torch {machine.torch}")
    if known is None:
        return warning("the driver does not say which CUDA it supports", *facts, remedy="nvidia-smi")
    if int(known.split(".")[0]) < int(machine.cuda.split(".")[0]):
        return failed(
            f"torch is built for CUDA {machine.cuda}, the driver supports {known}",
            *facts,
            remedy=f"pin a torch for CUDA {known.split('.')[0]} in benchmark/env/constraints.txt, or ask the site for a newer driver",
        )
    return ok(f"torch for CUDA {machine.cuda}, driver for CUDA {known}", *facts)
