"""NVIDIA's library through its C types."""

import sys
from unittest.mock import Mock

import pytest
from support.native import load_nvml

from nlp_bench.machine.nvml import Nvml, NvmlError


@pytest.mark.usefixtures("four_gpus")
def test_a_gpu_says_what_it_is() -> None:
    nvml = Nvml()
    assert len(nvml.handles) == 4
    assert nvml.gpu(1) == {
        "index": 1,
        "name": "NVIDIA Fake-40GB",
        "uuid": "GPU-1-fake",
        "power_limit_w": 300.0,
        "default_power_limit_w": 400.0,
        "sm_clock_mhz": 1410,
        "application_sm_clock_mhz": None,  # a function that this library does not have
        "max_sm_clock_mhz": 1980,
        "max_memory_clock_mhz": 2619,
        "persistence_mode": True,
        "ecc_mode": True,
        "no_energy_counter": None,
    }
    assert nvml.driver() == {"driver": "535.104.05", "cuda_driver": "12.2", "nvml": "12.535.104.05"}


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize("is_old", [False, True])
def test_a_sample(monkeypatch: pytest.MonkeyPatch, is_old: bool) -> None:
    if is_old:
        monkeypatch.setenv("FAKE_OLD", "1")
    nvml = Nvml()
    energy, *others = nvml.sample(nvml.handles[2])
    assert others == [120.0, 1410, 4, 61]
    assert (energy is None) == is_old
    assert (nvml.gpu(2)["no_energy_counter"] is None) != is_old
    if is_old:
        assert nvml.gpu(2)["no_energy_counter"] == "nvmlDeviceGetTotalEnergyConsumption: Not Supported"
    else:
        assert nvml.sample(nvml.handles[2])[0] >= energy > 2**32  # a counter of 64 bits


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    load_nvml(monkeypatch, None)
    monkeypatch.setattr("ctypes.CDLL.__init__", Mock(side_effect=OSError("cannot open shared object file")))
    with pytest.raises(NvmlError, match=r"no NVIDIA driver on this node \(libnvidia-ml.so.1 cannot be loaded\)"):
        Nvml()


def test_a_binding_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlError, match="nvidia-ml-py is not installed: pip install nvidia-ml-py"):
        Nvml()
