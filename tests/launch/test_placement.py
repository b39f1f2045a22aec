"""The CPUs of each rank on real machines, by mode, scope and what Slurm has left of the node."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlp_bench.config.system import MODES, Binding
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch.nodes.resources import cpus_of_ranks
from nlp_bench.machine.topology import Core, Topology, parse_cpus, ranges_of


def machine(num_sockets: int, nodes_per_socket: int, cores_per_node: int, *, smt: bool, allowed: str = "") -> Topology:
    """Numbers as Linux gives them: cores by socket and node, the second threads behind all cores."""
    num_cores = num_sockets * nodes_per_socket * cores_per_node
    may = parse_cpus(allowed) if allowed else frozenset(range(2 * num_cores))
    cores = []
    for core in range(num_cores):
        node = core // cores_per_node
        cpus = tuple(cpu for cpu in ((core, core + num_cores) if smt else (core,)) if cpu in may)
        if cpus:
            cores.append(Core(cpus=cpus, node=node, socket=node // nodes_per_socket))
    sockets = {node: frozenset({node // nodes_per_socket}) for node in range(num_sockets * nodes_per_socket)}
    return Topology(cores=tuple(cores), sockets_of_node=sockets)


DGX_A100 = machine(2, 4, 16, smt=True)
"""2 x EPYC 7742 with 8 NUMA nodes; GPUs as `nvidia-smi topo -m` shows them."""
DGX_A100_GPUS = (3, 3, 1, 1, 7, 7, 5, 5)
BOOSTER = machine(2, 4, 6, smt=True)
"""JUWELS Booster: 2 x EPYC 7402; GPUs at NUMA nodes 3, 1, 7, 5."""
BOOSTER_GPUS = (3, 1, 7, 5)
GRACE = machine(4, 1, 72, smt=False)
"""4 x GH200: one NUMA node per Grace; further nodes hold the GPUs' memory and no CPU."""
LAPTOP = machine(1, 1, 2, smt=False)


def lists(topology: Topology, gpus: tuple[int | None, ...], num_ranks: int, **wish: object) -> list[str]:
    binding = Binding(**{"mode": "unique_contiguous", **wish})  # type: ignore[arg-type]
    homes = [*gpus, *[None] * num_ranks][:num_ranks]
    return list(map(ranges_of, cpus_of_ranks(topology, binding, homes)))


@pytest.mark.parametrize(
    ("topology", "gpus", "wish", "expected"),
    [
        (DGX_A100, DGX_A100_GPUS, {}, ["48-55,176-183", "56-63,184-191", "16-23,144-151", "24-31,152-159"]),
        (DGX_A100, DGX_A100_GPUS, {"cores": "single_logical"}, ["48-55", "56-63", "16-23", "24-31"]),
        (DGX_A100, DGX_A100_GPUS, {"mode": "all"}, ["48-63,176-191", "48-63,176-191", "16-31,144-159", "16-31,144-159"]),
        (DGX_A100, DGX_A100_GPUS, {"mode": "single"}, ["48,176", "48,176", "16,144", "16,144"]),
        (DGX_A100, DGX_A100_GPUS, {"mode": "single_unique"}, ["48,176", "56,184", "16,144", "24,152"]),
        (DGX_A100, DGX_A100_GPUS, {"max_cores": 2, "cores": "single_logical"}, ["48-49", "56-57", "16-17", "24-25"]),
        (
            DGX_A100,
            DGX_A100_GPUS,
            {"mode": "unique_interleaved", "max_cores": 3, "cores": "single_logical"},
            ["48,50,52", "49,51,53", "16,18,20", "17,19,21"],
        ),
        (BOOSTER, BOOSTER_GPUS, {}, ["18-23,66-71", "6-11,54-59", "42-47,90-95", "30-35,78-83"]),
        (
            BOOSTER,
            BOOSTER_GPUS,
            {"scope": "socket", "cores": "single_logical"},
            ["12-23", "0-11", "36-47", "24-35"],
        ),
        (BOOSTER, BOOSTER_GPUS, {"scope": "socket", "mode": "all", "cores": "single_logical"}, ["0-23", "0-23"]),
        (GRACE, (0, 1, 2, 3), {}, ["0-71", "72-143", "144-215", "216-287"]),
        (GRACE, (0, 1, 2, 3), {"max_cores": 8}, ["0-7", "72-79", "144-151", "216-223"]),
        (LAPTOP, (), {}, ["0", "1"]),
    ],
)  # fmt: skip
def test_table(topology: Topology, gpus: tuple[int, ...], wish: dict[str, object], expected: list[str]) -> None:
    assert lists(topology, gpus, len(gpus) or 2, **wish)[: len(expected)] == expected


def test_a_mask_with_holes_is_shared_out_without_them() -> None:
    """84-95 and 180-191 belong to a file system's daemon (MLPerf BERT on H100, known issues)."""
    node = machine(2, 4, 12, smt=True, allowed="0-83,96-179")
    # Nothing is left of the last GPU's NUMA node: its socket is shared out anew.
    assert lists(node, (0, 1, 2, 3, 4, 5, 6, 7), 8, balanced=False, cores="single_logical") == [
        "0-11", "12-23", "24-35", "36-47", "48-56", "57-65", "66-74", "75-83",
    ]  # fmt: skip
    whole = machine(2, 1, 48, smt=True, allowed="0-83,96-179")
    assert lists(whole, (0, 0, 0, 0, 1, 1, 1, 1), 8, cores="single_logical")[4:] == ["48-56", "57-65", "66-74", "75-83"]


def test_one_thread_of_a_core_may_be_missing() -> None:
    """Slurm's --hint=nomultithread leaves the first thread of each core."""
    assert lists(machine(2, 4, 6, smt=True, allowed="0-47"), BOOSTER_GPUS, 4)[0] == "18-23"


def test_balanced_gives_all_ranks_what_the_poorest_gets() -> None:
    uneven = machine(2, 1, 8, smt=False, allowed="0-7,8-11")
    assert lists(uneven, (0, 0, 1, 1), 4) == ["0-1", "4-5", "8-9", "10-11"]
    assert lists(uneven, (0, 0, 1, 1), 4, balanced=False) == ["0-3", "4-7", "8-9", "10-11"]


def test_what_is_left_over_goes_to_the_first_ranks() -> None:
    five = machine(1, 1, 5, smt=False)
    assert lists(five, (), 3, balanced=False) == ["0-1", "2-3", "4"]
    assert lists(five, (), 3, mode="unique_interleaved", balanced=False) == ["0,3", "1,4", "2"]


def test_unknown_places_share_the_whole_node() -> None:
    assert lists(BOOSTER, (None,) * 4, 4, cores="single_logical") == ["0-11", "12-23", "24-35", "36-47"]


def test_one_unknown_place_takes_nothing_from_the_others() -> None:
    shares = lists(BOOSTER, (3, 1, None, 5), 4)
    assert shares[0].startswith("18-23")
    assert not any(parse_cpus(a) & parse_cpus(b) for a, b in itertools.combinations(shares, 2))


def test_gpus_far_from_the_cores_that_slurm_gave() -> None:
    """12 cores of a shared node, the GPU elsewhere: better these than none."""
    assert lists(machine(2, 4, 6, smt=True, allowed="0-11"), (7,), 1) == ["0-11"]


@pytest.mark.parametrize("mode", ["single_unique", "unique_contiguous", "unique_interleaved"])
def test_more_ranks_than_cores_is_said_with_the_remedy(mode: str) -> None:
    one = machine(2, 4, 6, smt=True, allowed="0")
    with pytest.raises(NlpBenchError, match=r"0 core\(s\).*4 rank\(s\) share CPUs 0; ask for more.*cpus_per_task"):
        lists(one, BOOSTER_GPUS, 4, mode=mode)


@given(
    num_sockets=st.integers(1, 2),
    nodes=st.integers(1, 4),
    cores=st.integers(1, 6),
    smt=st.booleans(),
    gpus=st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=8),
    holes=st.frozensets(st.integers(0, 95), max_size=60),
    mode=st.sampled_from(MODES),
    scope=st.sampled_from(["node", "socket"]),
    balanced=st.booleans(),
)
def test_any_machine(
    num_sockets: int,
    nodes: int,
    cores: int,
    smt: bool,
    gpus: list[int | None],
    holes: frozenset[int],
    mode: str,
    scope: str,
    balanced: bool,
) -> None:
    topology = machine(num_sockets, nodes, cores, smt=smt, allowed=ranges_of(frozenset(range(96)) - holes))
    binding = Binding(mode=mode, scope=scope, balanced=balanced)
    allowed = {cpu for core in topology.cores for cpu in core.cpus}
    try:
        shares = cpus_of_ranks(topology, binding, gpus)
    except NlpBenchError:
        assert mode in {"single_unique", "unique_contiguous", "unique_interleaved"} or not allowed
        return
    assert all(share and share <= allowed for share in shares)
    if mode.startswith("unique") or mode == "single_unique":
        assert sum(len(share) for share in shares) == len(frozenset().union(*shares))
