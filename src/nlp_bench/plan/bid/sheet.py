"""A bid as sections of words and rows, for a terminal, markdown and a page. "predicted" or "published" stands at every figure."""

from nlp_bench.plan.bid.bid import Bid
from nlp_bench.show.page import Section

MOST_SHARES = 5
PROOF = "with rehearse in place of submit the same line rehearses the job without a GPU"


def title(bid: Bid) -> str:
    """Return what the sheet is about."""
    return f"Bid sheet: predicted report time of model {bid.problem.model.name} on {bid.problem.system.name}"


def commitment(bid: Bid) -> str:
    """Return the sentence that is signed."""
    row = bid.row
    return (
        f"{bid.problem.tokens:,} tokens in at most {bid.commitment_s:.1f} s on {row.nodes} nodes ({row.sizes.num_gpus} GPUs): "
        f"a predicted value, {bid.basis}. It is a prediction, not a measurement."
    )


def sections(bid: Bid) -> list[Section]:
    """Return the sheet below its title and its commitment."""
    return [
        Section(title="Prediction", rows=_prediction(bid)),
        Section(title="Machine and configuration", rows=_configuration(bid)),
        _measurements(bid),
        Section(title="Extrapolated beyond those measurements", words=bid.extrapolated),
        Section(title="Not measured", words=bid.not_measured),
        Section(title="Rules that the offer obeys", words=bid.rules),
        Section(title="How to prove it", words=(PROOF,), text=bid.commands["submit"]),
        Section(title="Made with", words=(f"{bid.program}; constants {bid.constants}; {bid.created}",)),
    ]


def signatures() -> tuple[str, str]:
    """Return who signs."""
    return ("For the bidder", "For the buyer")


def _prediction(bid: Bid) -> list[tuple[str, str]]:
    row = bid.row
    shares = [f"{name} {share:.0%}" for name, share in row.shares.items() if share >= 0.005]
    held = [f"{name} {part:.1f}" for name, part in row.memory_parts_gib.items() if part >= 0.05]
    return [
        ("predicted report time", f"{row.report_s:.1f} s (90 % interval {row.low_s:.1f} to {row.high_s:.1f} s)"),
        ("predicted seconds per iteration", f"{row.iteration_s:.3f} s"),
        (
            "predicted tokens per second",
            f"{row.tokens_per_second:,.0f} ({row.tokens_per_second / row.sizes.num_gpus:.1f} per GPU)",
        ),
        ("predicted shares of the time", ", ".join(shares[:MOST_SHARES])),
        ("predicted memory", f"{row.memory_gib:.1f} of {row.capacity_gib:g} GiB on the fullest GPU; fits: {row.fits}"),
        ("predicted memory, GiB", ", ".join(held)),
    ]


def _configuration(bid: Bid) -> list[tuple[str, str]]:
    problem, sizes, system = bid.problem, bid.row.sizes, bid.problem.system
    gpu, network = system.gpu, system.network
    assert gpu is not None  # noqa: S101  # a problem has one
    links = (
        f"{network.links_per_node} x {network.link_gbit_per_s:g} Gbit/s" if network.link_gbit_per_s else "not stated"
    )
    return [
        ("machine", f"{system.name}: {system.description}"),
        (
            "nodes",
            f"{bid.row.nodes} x {problem.gpus_per_node} {gpu.name}, {gpu.memory_gib:g} GiB each; network per node {links}",
        ),
        (
            "model",
            f"{problem.model.name}: {problem.model.parameters_billion:g} x 10^9 parameters, {sizes.num_layers} layers",
        ),
        ("layout", f"{sizes.layout}, global batch {sizes.global_batch_size}"),
        ("switches", ", ".join(sizes.switches.values())),
    ]


def _measurements(bid: Bid) -> Section:
    words = () if bid.near else ("none: no published measurement is of this family of frameworks",)
    rows = [
        (
            point.identity,
            point.what,
            f"{point.tokens_per_second_per_gpu:.1f}" if point.tokens_per_second_per_gpu else "",
            f"{point.distance:.1f}",
            "; ".join(point.differences) or "none of those that are published",
        )
        for point in bid.near
    ]
    return Section(
        title="Published measurements nearest to it",
        words=words,
        columns=("id", "measured by others", "published tokens/s per GPU", "distance", "differences from the offer"),
        rows=rows,
    )
