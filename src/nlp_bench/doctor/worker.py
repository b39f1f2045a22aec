"""What runs on each node of a test: the node's own checks, the rates of its devices, the exchange with the others, the vendors' tests.

Each step is recorded when it is done, so that a node that dies leaves how far it came; whatever fails is a line of its record.
"""

import contextlib
import fcntl
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from nlp_bench.clock import now
from nlp_bench.config.request import Request
from nlp_bench.doctor.checks import PER_NODE, examine
from nlp_bench.doctor.nodes import EXPECTED, NODE_SCHEMA, PLAN, PLAN_SCHEMA, RECORDS
from nlp_bench.doctor.place import look_around
from nlp_bench.files import read_json, write_json
from nlp_bench.launch.nodes.torchrun import port_of
from nlp_bench.machine.node import node_name, text_of
from nlp_bench.programs import ask

SLOWEST_TURN_S = 30.0  # seconds that virtual nodes of one machine wait for each other
LIMIT_S = 240.0  # seconds for each of the vendors' tests
LEVEL = "1"  # DCGM's level 1 takes seconds: deployment, permissions, retired pages, NVLink


def test_this_node(folder: Path) -> None:
    """Run the tests of plan.json in `folder` and write nodes/NODE.json there."""
    plan = read_json(folder / PLAN, PLAN_SCHEMA)
    name, on_gpus = node_name(os.environ), plan["accelerator"] == "cuda"
    path = folder / RECORDS / f"{name}.json"
    record: dict[str, Any] = {
        "schema": NODE_SCHEMA,
        "node": name,
        "number": _number(folder, name),
        "host": socket.gethostname(),
        "began": now(),
        "step": "began",
        "errors": {},
    }
    write_json(path, record)
    steps: dict[str, Callable[[], Any]] = {
        "checks": lambda: _checks(folder, plan),
        "devices": lambda: _devices(folder, plan["accelerator"]),
        "exchange": lambda: _exchange(record["number"], plan),
        "vendor": lambda: vendor_tests(len(record.get("devices") or []) if on_gpus else 0),
    }
    for step, make in steps.items():
        start = time.monotonic()
        try:
            record[step] = make()
        except Exception as error:  # noqa: BLE001  # a sick node is what is looked for: it says what it can
            record[step] = None
            record["errors"][step] = f"{type(error).__name__}: {error}"
        record[f"{step}_s"] = round(time.monotonic() - start, 3)
        record["step"] = step
        write_json(path, record)
    write_json(path, record | {"step": "finished", "finished": now()})


def _number(folder: Path, name: str) -> int:
    """Return the index of this node in Slurm's order, which NLP_BENCH_NODES has too; SLURM_NODEID counts within a step."""
    names = text_of(folder / EXPECTED).split()
    return names.index(name) if name in names else 0


def _checks(folder: Path, plan: dict[str, Any]) -> list[dict[str, Any]]:
    place = look_around(Request(system=plan["system"], model=plan["model"], launcher=plan["launcher"]), runs=folder)
    return [one.to_json() for one in examine(place, PER_NODE)]


def _devices(folder: Path, accelerator: str) -> list[dict[str, Any]]:
    from nlp_bench.doctor import rates  # noqa: PLC0415  # torch takes a second or two

    with _turn(folder):
        return rates.measure_devices(accelerator)


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Let the virtual nodes of one machine take turns: two that measure at once would disturb each other."""
    machine = text_of(Path("/proc/sys/kernel/random/boot_id")).strip() or socket.gethostname()
    end = time.monotonic() + SLOWEST_TURN_S
    with (folder / f".turn-{machine}").open("w") as stream:
        while not _has_lock(stream) and time.monotonic() < end:
            time.sleep(0.02)
        yield


def _has_lock(stream: IO[str]) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: they measure at once
        return True
    return True


def _exchange(number: int, plan: dict[str, Any]) -> dict[str, Any] | None:
    addresses = os.environ.get("NLP_BENCH_NODES", "").split()
    if len(addresses) < 2:
        return None
    from nlp_bench.doctor.rates import exchange  # noqa: PLC0415  # as above

    port = port_of(os.environ.get("SLURM_JOB_ID", "0"))
    return exchange(addresses, port, number, accelerator=plan["accelerator"], join_s=float(plan["join_s"]))


def vendor_tests(num_gpus: int) -> list[dict[str, Any]]:
    """Return the results of the vendors' tests that are installed: name, whether it passed, a value, the end of the output.

    `dcgmi diag -r LEVEL` (NVIDIA DCGM user guide, "DCGM Diagnostics"): exit status 0 where every test passed. `all_reduce_perf` of
    github.com/NVIDIA/nccl-tests: "# Avg bus bandwidth    : X" in GB/s; one process drives all GPUs of the node.
    """
    found: list[dict[str, Any]] = []
    if num_gpus and shutil.which("dcgmi"):
        answer = ask("dcgmi", "diag", "-r", LEVEL, timeout_s=LIMIT_S)
        failures = [line.strip() for line in answer.out.splitlines() if re.search(r"\bFail", line)]
        output = "; ".join(failures)[:500] or ("" if answer.is_good else answer.text)
        found.append({"name": "dcgmi diag", "is_passed": answer.is_good and not failures, "said": output})
    if num_gpus > 1 and shutil.which("all_reduce_perf"):
        words = ("all_reduce_perf", "-b", "8M", "-e", "256M", "-f", "2", "-g", str(num_gpus))
        answer = ask(*words, timeout_s=LIMIT_S)
        value = re.search(r"Avg bus bandwidth\s*:\s*([\d.]+)", answer.out)
        is_passed = answer.is_good and "FAILED" not in answer.out
        output = "" if answer.is_good else answer.text
        rate = float(value.group(1)) if value else None
        found.append({"name": "all_reduce_perf", "is_passed": is_passed, "said": output, "bus_gb_per_s": rate})
    return found
