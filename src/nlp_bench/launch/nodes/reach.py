"""Whether the ranks will be able to meet, asked before torchrun is started: it does not bound the look-up of a name."""

import contextlib
import socket
from pathlib import Path

from nlp_bench.errors import NlpBenchError
from nlp_bench.launch.nodes.rendezvous import Rendezvous
from nlp_bench.machine.addresses import look_up

NAME_TIMEOUT_S = 20.0
NUM_PORTS_TRIED, STRIDE = 8, 1009


def check_meeting(rendezvous: Rendezvous) -> None:
    """Raise NlpBenchError ("rendezvous: ...") where a name has no address, or the meeting point's port is taken on its node."""
    host, _, port = rendezvous.endpoint.rpartition(":")
    for name, found in look_up((host, rendezvous.local_address), NAME_TIMEOUT_S).items():
        if found.problem:
            raise NlpBenchError(
                f"rendezvous: {socket.gethostname()} finds no address of node {name!r}: {found.problem}; look at the name service, "
                "NodeAddr in slurm.conf and network.master_addr_suffix of the system file"
            )
    if rendezvous.is_host and port != "0" and not is_free(int(port)):
        raise NlpBenchError(
            f"rendezvous: port {port} of {socket.gethostname()} is taken by {_owner(int(port))}; submit the run again: "
            "another job number means another port"
        )


def is_free(port: int) -> bool:
    """Whether a server can listen on this port of this node now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: old connections do not count
        try:
            probe.bind(("", port))
            probe.listen()
        except OSError:
            return False
    return True


def free_port(first: int, bounds: tuple[int, int]) -> int:
    """Return `first`, or one of the ports behind it within `bounds` (lowest, number) that is free; `first` where none is."""
    lowest, number = bounds
    tried = [lowest + (first - lowest + step * STRIDE) % number for step in range(NUM_PORTS_TRIED)]
    return next((port for port in tried if is_free(port)), first)


def _owner(port: int) -> str:
    """Return the process that listens on the port, as far as this user may see it."""
    wanted = f":{port:04X}"
    sockets = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        sockets |= {f"socket:[{words[9]}]" for words in map(str.split, lines) if words[1].endswith(wanted)}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(str(handle.readlink()) in sockets for handle in (folder / "fd").iterdir()):
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                return f"process {folder.name} ({line[:80]})"
    return "a process of another user"
