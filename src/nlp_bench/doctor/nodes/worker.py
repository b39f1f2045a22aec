"""What runs on each node of a test: the node's own checks, the rates of its devices, the exchange with the others.

Each step is written down when it is done, so that a node that dies leaves how far it came; whatever fails is a line of its record.
"""

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from nlp_bench.clock import now
from nlp_bench.config.request import Request
from nlp_bench.doctor.checks import PER_NODE
from nlp_bench.doctor.examine import examine
from nlp_bench.doctor.nodes import EXPECTED, NODE_SCHEMA, PLAN, PLAN_SCHEMA, RECORDS
from nlp_bench.doctor.nodes.vendor import vendor_tests
from nlp_bench.doctor.place import look_around
from nlp_bench.doctor.record import checks
from nlp_bench.files import read_json, write_json
from nlp_bench.launch.nodes.rendezvous import FIRST_PORT, NUM_PORTS
from nlp_bench.machine.node import node_name

SLOWEST_TURN_S = 30.0
"""Seconds that virtual nodes of one machine wait for each other."""


def test_this_node(folder: Path) -> None:
    """Do what plan.json in `folder` says and leave nodes/NODE.json there."""
    plan = read_json(folder / PLAN, PLAN_SCHEMA)
    name = node_name(os.environ)
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
        "exchange": lambda: _exchange(folder, plan),
        "vendor": lambda: vendor_tests(len(record.get("devices") or []) if plan["accelerator"] == "cuda" else 0),
    }
    for step, make in steps.items():
        begin = time.monotonic()
        try:
            record[step] = make()
        except Exception as error:  # noqa: BLE001  # a sick node is what is looked for: it says what it can
            record[step] = None
            record["errors"][step] = f"{type(error).__name__}: {error}"
        record[f"{step}_s"] = round(time.monotonic() - begin, 3)
        record["step"] = step
        write_json(path, record)
    write_json(path, record | {"step": "finished", "finished": now()})


def _number(folder: Path, name: str) -> int:
    """Return the place of this node in Slurm's order, which NLP_BENCH_NODES has too; SLURM_NODEID counts within a step."""
    path = folder / EXPECTED
    names = path.read_text(encoding="utf-8").split() if path.exists() else []
    return names.index(name) if name in names else 0


def _checks(folder: Path, plan: dict[str, Any]) -> list[dict[str, Any]]:
    place = look_around(Request(system=plan["system"], model=plan["model"], launcher=plan["launcher"]), runs=folder)
    return checks(examine(place, PER_NODE))


def _devices(folder: Path, accelerator: str) -> list[dict[str, Any]]:
    import torch  # noqa: PLC0415  # takes a second or two

    from nlp_bench.doctor.nodes import rates  # noqa: PLC0415

    torch.set_num_threads(
        1
    )  # one core speaks for its CPU: threads that wait for each other measure other people's load
    with _turn(folder):
        return [
            {"device": str(one.place), "gemm": rates.gemm(one), "memory": rates.memory(one)}
            for one in rates.devices(accelerator)
        ]


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Virtual nodes of one machine take turns: two that measure at once would measure each other."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    machine = boot.read_text(encoding="ascii").strip() if boot.exists() else socket.gethostname()
    end = time.monotonic() + SLOWEST_TURN_S
    with (folder / f".turn-{machine}").open("w") as stream:
        while not _is_mine(stream) and time.monotonic() < end:
            time.sleep(0.02)
        yield


def _is_mine(stream: IO[str]) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: they measure at once
        return True
    return True


def _exchange(folder: Path, plan: dict[str, Any]) -> dict[str, Any] | None:
    addresses = os.environ.get("NLP_BENCH_NODES", "").split()
    if len(addresses) < 2:
        return None
    import torch  # noqa: PLC0415

    from nlp_bench.doctor.nodes.collective import Meeting, exchange  # noqa: PLC0415

    job = int(os.environ.get("SLURM_JOB_ID", "0"))
    meeting = Meeting(
        host=addresses[0],
        port=FIRST_PORT + job % NUM_PORTS,
        number=_number(folder, node_name(os.environ)),
        num_nodes=len(addresses),
        join_s=float(plan["join_s"]),
    )
    torch.set_num_threads(1)
    return exchange(meeting, torch.device("cuda", 0) if plan["accelerator"] == "cuda" else torch.device("cpu"))
