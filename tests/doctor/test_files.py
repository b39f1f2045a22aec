"""Room, rights, clock, limits, data."""

import os
import resource
import signal
import struct
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.command import Cli
from support.examining import Make, finding

from nlp_bench.cli.main import main
from nlp_bench.data import PREFIX
from nlp_bench.doctor import hardware


def room(monkeypatch: pytest.MonkeyPatch, *, free_bytes: int, inodes: int, all_inodes: int = 10**6) -> None:
    found = SimpleNamespace(f_bavail=free_bytes, f_frsize=1, f_favail=inodes, f_files=all_inodes)
    monkeypatch.setattr(os, "statvfs", lambda _: found)


@pytest.mark.parametrize(
    ("free_bytes", "inodes", "all_inodes", "status", "says"),
    [
        (10**12, 10**6, 10**6, "ok", "suffice"),
        (10**12, 0, 0, "ok", "suffice"),  # btrfs and its kin count none
        (10**9, 10**6, 10**6, "warning", "0.9 GiB left"),
        (10**6, 10**6, 10**6, "failed", "1 MiB left"),
        (10**12, 5000, 10**6, "warning", "5000 inodes left"),
        (10**12, 3, 10**6, "failed", "3 inodes left"),
    ],
)
def test_room(
    place: Make, monkeypatch: pytest.MonkeyPatch, free_bytes: int, inodes: int, all_inodes: int, status: str, says: str
) -> None:
    here = place()
    room(monkeypatch, free_bytes=free_bytes, inodes=inodes, all_inodes=all_inodes)
    found = finding("disk", here)
    assert found.status == status
    assert says in found.summary


def test_a_folder_that_cannot_be_written(place: Make, tmp_path: Path) -> None:
    found = finding("writable", place(runs=Path("/proc/nlp-bench")))  # refused to root, too
    assert found.status == "failed"
    assert "/proc: cannot create a file" in found.summary
    runs = tmp_path / "runs"
    runs.mkdir()
    assert finding("writable", place(runs=runs)).status in {"ok", "warning"}
    assert list(runs.iterdir()) == []


@pytest.mark.parametrize("taken", [0, 65536])
def test_a_file_system_without_room_for_1_mib(place: Make, tmp_path: Path, taken: int) -> None:
    """RLIMIT_FSIZE stands for a quota: the file is made, its content is refused (or the first write is a short one), and nothing stays behind."""
    runs = tmp_path / "full"
    runs.mkdir()
    here = place(runs=runs)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (taken, before[1]))
        found = finding("writable", here)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert found.status == "failed"
    assert "cannot write 1 MiB: File too large" in found.summary
    assert list(runs.iterdir()) == []


def test_the_clock_of_the_file_server(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "STA_UNSYNC" in str(finding("clock", place())) or finding("clock", place()).status == "ok"
    here, now = place(), time.time
    monkeypatch.setattr(hardware, "time", SimpleNamespace(time=lambda: now() + 30))
    found = finding("clock", here)
    assert found.status == "warning"
    assert "30.0 s off" in found.summary or "29.9" in found.summary


def test_limits(place: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = dict.fromkeys((resource.RLIMIT_CPU, resource.RLIMIT_AS), (resource.RLIM_INFINITY,) * 2)
    values = none | {resource.RLIMIT_MEMLOCK: (65536, 65536), resource.RLIMIT_NOFILE: (256, 256)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: values[which])
    found = finding("limits", place(files=tmp_path))
    assert (found.status, found.summary) == ("warning", "only 256 open files are allowed")
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE")
    assert "InfiniBand cannot register" in finding("limits", place(files=tmp_path)).summary
    (tmp_path / "dev/shm").mkdir(parents=True)
    room(monkeypatch, free_bytes=2**20, inodes=9)
    assert "dev/shm has 1 MiB for" in finding("limits", place(files=tmp_path)).summary
    # A login node's limit, and Grid Engine's h_vmem.
    values |= {resource.RLIMIT_CPU: (3600, 3600), resource.RLIMIT_AS: (2**32, 2**32)}
    said = finding("limits", place(files=tmp_path)).summary
    assert "may use 3600 s of CPU time" in said
    assert "may have 4.0 GiB of address space" in said


@pytest.mark.parametrize(
    "quota",
    [
        {"cpu.max": "50000 100000\n"},
        {"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"},
        {"cpu.max": "max 100000\n"},
    ],
)
def test_a_container_that_may_use_fewer_cpus_than_it_sees(place: Make, tmp_path: Path, quota: dict[str, str]) -> None:
    for name, text in quota.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    is_told = "CPUs are seen here, but 0.5 of them may be used" in finding("limits", place(files=tmp_path)).summary
    assert is_told is not (quota.get("cpu.max", "").startswith("max"))


def test_data(place: Make, tmp_path: Path) -> None:
    assert finding("data", place()).status == "skipped"
    here = place()
    prefix = tmp_path / "text"
    given = replace(here, run=replace(here.run, data=replace(here.run.data, path=str(prefix), cache=str(tmp_path))))
    found = finding("data", given)
    assert found.status == "failed"
    assert "text.bin does not exist" in found.summary
    for end in ("bin", "idx"):
        prefix.with_suffix(f".{end}").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n")
    assert "git-lfs pointer" in finding("data", given).summary
    prefix.with_suffix(".bin").write_bytes(bytes(100))
    prefix.with_suffix(".idx").write_bytes(b"MMIDIDX\x00\x00" + bytes(3))
    assert "is not a Megatron index" in finding("data", given).summary


def test_doctor_sees_a_wrong_length_in_the_midst_of_an_index(tmp_path: Path, cli: Cli) -> None:
    assert main(["data", "--documents", "20", "--vocab-size", "300", "--output", str(tmp_path / "data")]) == 0
    prefix = tmp_path / "data" / PREFIX
    words = ["doctor", "--checks", "data", "--model", "tiny", "--system", "local", "--data-path", str(prefix)]
    assert "1 pair(s) of .bin and .idx are whole" in cli(*words).out
    blend = f"1234567 {prefix} 7654321 {prefix}"  # recorded as 1.23457e+06, which was taken for a prefix
    assert "2 pair(s) of .bin and .idx are whole" in cli(*words[:-1], blend).out
    content = bytearray(Path(f"{prefix}.idx").read_bytes())
    content[34 + 4 * 7 : 34 + 4 * 8] = struct.pack("<i", 2**30)
    Path(f"{prefix}.idx").write_bytes(content)
    said = " ".join(cli(*words, code=1).out.split())
    assert "is damaged: sequence 7 or the one behind it has a wrong length or place" in said
