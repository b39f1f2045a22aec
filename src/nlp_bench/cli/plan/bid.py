"""A bid sheet as text, markdown, HTML or JSON. Every figure is marked "predicted" or "published"."""

import textwrap
from collections.abc import Callable

from nlp_bench import __version__
from nlp_bench.escape import escaped_markdown
from nlp_bench.plan.bid import Bid
from nlp_bench.plan.ranking import rates
from nlp_bench.show.page import Section
from nlp_bench.show.page import page as html_page
from nlp_bench.show.table import Column, as_markdown, facts, json_text, table_of

WIDTH = 110  # columns of a line on a terminal
MOST_SHARES = 5
PROOF = "with rehearse in place of submit the same line rehearses the job without a GPU"
CHANGED = "Not as shipped"  # heading of what the bidder changed
SIGNATURES = ("For the bidder", "For the buyer")
STYLE = """
main, footer { max-width: 60rem; }
.bid th, .bid td { white-space: normal; } .bid td { overflow-wrap: break-word; }
.bid td:first-child { color: var(--muted); } .bid table:not(:has(thead)) td:first-child { width: 14rem; }
.bid h2 { margin: 1.1rem 0 .35rem; } .bid table { font-size: .85rem; } .bid th, .bid td { padding: .25rem .6rem; } .bid ul { font-size: .88rem; }
.sign { display: grid; grid-template-columns: 1fr 1fr; gap: 2rem; margin-top: 2.5rem; break-inside: avoid; }
.sign p { border-top: 1px solid var(--muted); padding-top: .3rem; color: var(--muted); font-size: .85rem; }
@page { size: A4 portrait; margin: 11mm; }
@media print {
  .bid { font-size: 8pt; } .bid h1 { font-size: 13pt; margin: 0 0 .3rem; } .bid h2 { font-size: 9pt; margin: .45rem 0 .15rem; }
  .bid table, .bid ul { font-size: 7.2pt; line-height: 1.25; } .bid th, .bid td { padding: .08rem .4rem; } .bid li { margin: 0; }
  .bid .verdict { font-size: 9.5pt; padding: .4rem .7rem; } .bid pre { font-size: 6.6pt; line-height: 1.3; padding: .3rem .5rem; }
  .sign { margin-top: 1.6rem; } footer { display: none; }
}
"""
"""Added to the style sheet of the reports."""


def title(bid: Bid) -> str:
    """Return the title of the sheet."""
    return f"Bid sheet: predicted steady time of model {bid.problem.model.name} on {bid.problem.system.name}"


def commitment(bid: Bid) -> str:
    """Return the sentence that is signed."""
    row = bid.row
    return (
        f"{bid.problem.tokens:,} tokens in at most {bid.commitment_s:.1f} s on {row.nodes} nodes ({row.sizes.num_gpus} GPUs): "
        f"a predicted value, {bid.basis}. It is a prediction, not a measurement."
        + (f' It does not rest on what nlp-bench ships alone: see "{CHANGED}".' if bid.changed else "")
    )


def sections(bid: Bid) -> list[Section]:
    """Return the sheet below its title and its commitment."""
    changed = [Section(title=CHANGED, words=bid.changed)] if bid.changed else []
    return [
        *changed,
        Section(title="Prediction", table=facts(_prediction(bid))),
        Section(title="Machine and configuration", table=facts(_configuration(bid))),
        _measurements(bid),
        Section(title="Extrapolated beyond those measurements", words=bid.extrapolated),
        Section(title="Not measured", words=bid.not_measured),
        Section(title="Rules that the offer obeys", words=bid.rules),
        Section(title="How to prove it", words=(PROOF,), text=bid.commands["submit"]),
        Section(
            title="Made with",
            words=(f"{bid.program}; constants {bid.constants}; data sheets {bid.sheets}; {bid.created}",),
        ),
    ]


def _prediction(bid: Bid) -> list[tuple[str, str]]:
    row = bid.row
    shares = [f"{name} {share:.0%}" for name, share in row.shares.items() if share >= 0.005]
    held = [f"{name} {part:.1f}" for name, part in row.memory_parts_gib.items() if part >= 0.05]
    rate = f"{row.tokens_per_second:,.0f} ({row.tokens_per_second / row.sizes.num_gpus:.1f} per GPU)"
    return [
        ("predicted steady time", f"{row.report_s:.1f} s (90 % interval {row.low_s:.1f} to {row.high_s:.1f} s)"),
        ("predicted seconds per iteration", f"{row.iteration_s:.3f} s"),
        ("predicted tokens per second", rate),
        ("predicted shares of the time", ", ".join(shares[:MOST_SHARES])),
        ("predicted memory", f"{row.memory_gib:.1f} of {row.capacity_gib:g} GiB on the fullest GPU; fits: {row.fits}"),
        ("predicted memory, GiB", ", ".join(held)),
    ]


def _configuration(bid: Bid) -> list[tuple[str, str]]:
    problem, sizes, system = bid.problem, bid.row.sizes, bid.problem.system
    gpu, network, model = system.gpu, system.network, problem.model
    assert gpu is not None  # noqa: S101  # a problem has one
    rate = network.link_gbit_per_s
    links = f"{network.links_per_node} x {rate:g} Gbit/s" if rate else "not stated"
    nodes = f"{bid.row.nodes} x {problem.gpus_per_node} {gpu.name}, {gpu.memory_gib:g} GiB each"
    return [
        ("machine", f"{system.name}: {system.description}"),
        ("nodes", f"{nodes}; network per node {links}"),
        ("taken for the GPU", rates(problem)),
        ("model", f"{model.name}: {model.parameters_billion:g} x 10^9 parameters, {sizes.num_layers} layers"),
        ("layout", f"{sizes.layout}, global batch {sizes.global_batch_size}"),
        ("switches", ", ".join(sizes.switches.values())),
    ]


def _measurements(bid: Bid) -> Section:
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
        words=() if bid.near else ("none: no published measurement is of this family of frameworks",),
        table=table_of(
            ("id", "measured by others", "published tokens/s per GPU", "distance", "differences from the offer"), rows
        ),
    )


def text(bid: Bid) -> str:
    """Return the sheet for a terminal."""
    lines = [title(bid), "=" * len(title(bid)), "", *_wrapped(commitment(bid), "COMMITMENT  ")]
    for section in sections(bid):
        lines += ["", section.title, "-" * len(section.title), *_rows(section)]
        for sentence in section.words:
            lines += _wrapped(sentence, "- ")
        lines += section.text.splitlines()
    lines += [""] + [f"{who}: {'_' * 34}  date: {'_' * 12}\n" for who in SIGNATURES]
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _wrapped(sentence: str, prefix: str) -> list[str]:
    return textwrap.wrap(sentence, WIDTH, initial_indent=prefix, subsequent_indent=" " * len(prefix))


def _rows(section: Section) -> list[str]:
    rows = zip(*(column.shown for column in section.table), strict=True)
    if any(column.heading for column in section.table):  # a table with long cells is a list on a terminal
        headings = [column.heading for column in section.table]
        named = ["; ".join(f"{name}: {cell}" for name, cell in zip(headings, row, strict=True)) for row in rows]
        return [line for sentence in named for line in _wrapped(sentence, "- ")]
    pairs = list(rows)
    wide = max((len(name) for name, _ in pairs), default=0)
    return [line for name, value in pairs for line in _wrapped(value, f"{name:<{wide}}  ")]


def markdown(bid: Bid) -> str:
    """Return the sheet in markdown."""
    lines = [f"# {escaped_markdown(title(bid))}", "", f"**{escaped_markdown(commitment(bid))}**"]
    for section in sections(bid):
        lines += ["", f"## {escaped_markdown(section.title)}", ""]
        lines += [f"- {escaped_markdown(sentence)}" for sentence in section.words]
        lines += as_markdown(section.table) if section.table and section.table[0].cells else []
        lines += ["```", section.text, "```"] if section.text else []
    lines += ["", *as_markdown([Column(heading=who, cells=("name, date: ",), is_text=True) for who in SIGNATURES])]
    return "\n".join(lines) + "\n"


def page(bid: Bid) -> str:
    """Return the sheet as one HTML document that prints on one sheet of paper and loads nothing."""
    return html_page(
        "cli/plan/bid.html",
        title=title(bid),
        version=__version__,
        style=STYLE,
        commitment=commitment(bid),
        sections=sections(bid),
        signatures=SIGNATURES,
    )


FORMATS: dict[str, Callable[[Bid], str]] = {
    "table": text,
    "markdown": markdown,
    "html": page,
    "json": lambda bid: json_text(bid.record()),
}
"""Writer of each --format."""
