"""Answers as text or markdown."""

import textwrap
from collections.abc import Iterable, Sequence

from nlp_bench.machine.topology import ranges_of
from nlp_bench.plan.capacity import DAY_S, NEMO_FLOPS, SHAPES, Recommendation, TimeAnswer, nemo_days, parameters_of
from nlp_bench.plan.problem import ENDS, Problem
from nlp_bench.plan.ranking import Answer, Row
from nlp_bench.plan.systems import Side
from nlp_bench.plan.why import Why
from nlp_bench.show.table import TEXT, Column, Style, as_text, shown, tokens_in_words

MARK = "*"  # follows the rank of the published configuration
WITH_COLUMN = ("tp", "pp", "vpp", "cp", "micro_batch_size")  # sizes that have a column of the table
WIDTH = 120  # columns at which sentences are wrapped on a terminal


def say(style: Style, *sentences: str) -> list[str]:
    """Return sentences as lines; on a terminal long ones are broken."""
    if style is not TEXT:
        return [style.sentence(text) for text in sentences]
    return [line for text in sentences for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]


def question(problem: Problem) -> str:
    """Return the problem in one line."""
    gpu = problem.system.gpu.name if problem.system.gpu else ""
    machine = f"{problem.nodes} nodes x {problem.gpus_per_node} {gpu} = {problem.num_gpus} GPUs"
    return f"{problem.model.name} on {problem.system.name}, {machine}, {batch(problem)}: predicted, not measured"


def batch(problem: Problem) -> str:
    """Return the batch and the tokens."""
    return f"{problem.batch}, {tokens_in_words(problem.tokens)} tokens"


def columns(rows: Sequence[Row]) -> list[Column]:
    """Return the columns of a table of configurations."""
    sizes, usual = [row.sizes for row in rows], common(rows)
    own = [
        ", ".join([*_others(row), *(word for word in row.sizes.switches.values() if word not in usual)]) for row in rows
    ]
    nodes = [row.nodes for row in rows]
    return shown([
        column("rank", [f"{row.rank or '-'}{MARK if row.published else ''}" for row in rows]),
        column("nodes", nodes if len(set(nodes)) > 1 else ["" for _ in rows]),
        column("steady\ntime s", [digits(row.report_s) for row in rows]),
        column("90 %\ninterval", [f"{digits(row.low_s)}-{digits(row.high_s)}" for row in rows]),
        column("\ntokens/s", [f"{row.tokens_per_second:.0f}" for row in rows]),
        column("iteration\ns", [f"{row.iteration_s:.4g}" for row in rows]),
        column("TP", [one.tp for one in sizes]),
        column("PP", [one.pp for one in sizes]),
        column("VPP", [one.vpp for one in sizes]),
        column("CP", [one.cp for one in sizes]),
        column("DP", [one.dp for one in sizes]),
        column("micro\nbatch", [one.micro_batch_size for one in sizes]),
        column("GAS", [one.gas for one in sizes]),
        column(f"memory GiB\nof {rows[0].capacity_gib:g}", [f"{row.memory_gib:.1f}" for row in rows]),
        column("fits", [row.fits for row in rows], is_text=True),
        column("what limits it", [row.limits for row in rows], is_text=True),
        column("apart from that", own, is_text=True),
    ])  # fmt: skip


def column(heading: str, cells: Iterable[object], *, is_text: bool = False) -> Column:
    """Return a column of cells, as text."""
    return Column(heading=heading, cells=tuple(str(cell) for cell in cells), is_text=is_text)


def digits(value: float) -> str:
    """Return a number with three digits at least, without decimals from a thousand on."""
    return f"{value:.{0 if value >= 1000 else 1 if value >= 100 else 2}f}"


def _others(row: Row) -> list[str]:
    """Return the sizes without a column."""
    found = {name: text for name, text in row.sizes.words.items() if name not in WITH_COLUMN}
    if all(name in found for name in ENDS):
        del found["last_layers"]
        found["first_layers"] = f"first and last stage {row.sizes.first_layers} and {row.sizes.last_layers} layers"
    return list(found.values())


def common(rows: Sequence[Row]) -> list[str]:
    """Return the settings of the switches that all rows but the published one share; of that one the table names what differs."""
    best = [row.sizes.switches for row in rows if not row.published] or [row.sizes.switches for row in rows]
    words = {word: None for switches in best for word in switches.values()}
    names = {word: name for switches in best for name, word in switches.items()}
    return [word for word in words if all(switches.get(names[word], word) == word for switches in best)]


def seconds(row: Row) -> str:
    """Return the steady time with its interval."""
    return f"{digits(row.report_s)} s ({digits(row.low_s)}-{digits(row.high_s)} s)"


def memory_parts(row: Row) -> str:
    """Return what the memory is spent on."""
    return ", ".join(f"{name} {part:.1f} GiB" for name, part in row.memory_parts_gib.items() if part >= 0.05)


def switches(row: Row) -> str:
    """Return the settings of the switches."""
    return ", ".join(row.sizes.switches.values())


MAX_SPANS = 12


def nodes_lines(found: TimeAnswer, style: Style) -> list[str]:
    """Return the answer to: how many nodes within this time."""
    problem, surely = found.problem, None if found.surely is found.within else found.surely
    rows = [row for row in (found.within, surely, found.fastest) if row is not None]
    heading = f"{problem.model.name} on {problem.system.name} within {found.limit_s:g} s, {batch(problem)}"
    lines = [*style.heading(f"{heading}: predicted, not measured"), *say(style, *_nodes_found(found)), ""]
    if rows:
        lines += [*style.table(columns(rows)), "", *say(style, f"with {', '.join(common(rows))}")]
    peak = f"on less than {found.fewest} nodes not even the data sheet's peak would do"
    divides = (
        f"the global batch of {problem.global_batch_size} stays fixed; numbers of nodes from {found.first} to {problem.nodes} that some "
        f"layout divides with it: {ranges(found.usable)}"
    )
    return lines + say(style, peak, divides)


def _nodes_found(found: TimeAnswer) -> list[str]:
    most = found.problem.nodes
    if found.within is None:
        if found.fastest is None:
            return [f"impossible on at most {most} nodes: nothing fits"]
        best = found.fastest
        return [f"impossible on at most {most} nodes: the best reachable is {seconds(best)} on {best.nodes} nodes"]
    lines = [
        f"{found.within.nodes} nodes: predicted {seconds(found.within)}, {100 * (found.margin or 0):.1f} % below the limit"
    ]
    if found.surely is None:
        return [*lines, f"up to {most} nodes the upper end of the 90 % interval is never within the limit"]
    if found.surely is found.within:
        return [*lines, "the upper end of the 90 % interval is within the limit too"]
    return [
        *lines,
        f"{found.surely.nodes} nodes: the upper end of the 90 % interval is within the limit too: {seconds(found.surely)}",
    ]


def ranges(numbers: Sequence[int]) -> str:
    """Return "1, 2, 4-6" for 1 2 4 5 6; of many the first, and how many there are."""
    words = ranges_of(numbers).split(",")
    if len(words) > MAX_SPANS:
        return f"{', '.join(words[:MAX_SPANS])}, … ({len(numbers)} in all)"
    return ", ".join(words) or "none"


def ranking_lines(answer: Answer, style: Style) -> list[str]:
    """Return the answer to: which configurations are best."""
    rows = answer.shown
    lines = [*style.heading(question(answer.problem)), *say(style, *_searched(answer)), ""]
    if rows:
        lines += [*style.table(columns(rows)), "", *say(style, f"all of these: {', '.join(common(rows))}")]
    measured = [f"measured by others in that configuration: {text}" for text in answer.measured]
    lines += say(style, *_published(answer), *measured, *answer.rehearsed, *_tight(answer), *_nothing(answer))
    lines += say(style, f"taken for granted: {'; '.join(answer.notes)}")
    return lines + say(style, *(f"extrapolated: {text}" for text in answer.extrapolated))


WRAPPED = 28  # columns of a cell of several systems, on a terminal


def systems_lines(sides: Sequence[Side], style: Style) -> list[str]:
    """Return the answer to: what is the best configuration on each of several systems, for equal work."""
    problems = [side.problem for side in sides if side.problem]
    lines = []
    if problems:
        one = problems[0]
        work = f"{one.batch} x {one.model.architecture.sequence_length} tokens, {tokens_in_words(one.tokens)} tokens"
        heading = (
            f"{one.model.name} on {len(sides)} systems, equal work: {work}, {one.precision}: predicted, not measured"
        )
        lines = [*style.heading(heading), ""]
    best = [side.best for side in sides if side.best]
    usual = common(best) if best else []
    table = _system_columns(sides, usual)
    lines += style.table(table) if style is not TEXT else as_text(table, [_width(column) for column in table])
    counts = sorted({problem.num_gpus for problem in problems})
    other = f"they have {' and '.join(map(str, counts))} GPUs; --gpus N takes the same number on each"
    own = "each is the best configuration that surely fits; nlp-bench plan with one --system ranks all, and says what is extrapolated"
    alike = [f"all of these: {', '.join(usual)}"] if usual else []
    return [*lines, "", *say(style, *alike, *([other] if len(counts) > 1 else []), own)]


def _width(one: Column) -> int:
    return min(WRAPPED, max(map(len, (*one.heading.split("\n"), *one.shown))))


def _system_columns(sides: Sequence[Side], usual: Sequence[str]) -> list[Column]:
    rows, problems = [side.best for side in sides], [side.problem for side in sides]
    gpus = [side.system.gpu.name if side.system.gpu else "" for side in sides]
    rates = [f"{row.tokens_per_second / row.sizes.num_gpus:.0f}" if row else "" for row in rows]
    held = [
        ", ".join([row.sizes.layout, *(word for word in row.sizes.switches.values() if word not in usual)])
        if row
        else ""
        for row in rows
    ]
    return shown([
        column("system", [side.system.name for side in sides], is_text=True),
        column("GPU", gpus, is_text=True),
        column("nodes", [problem.nodes if problem else "" for problem in problems]),
        column("GPUs", [problem.num_gpus if problem else "" for problem in problems]),
        column("steady\ntime s", [digits(row.report_s) if row else "none" for row in rows]),
        column("90 %\ninterval", [f"{digits(row.low_s)}-{digits(row.high_s)}" if row else "" for row in rows]),
        column("tokens/s\nper GPU", rates),
        column("memory\nGiB", [f"{row.memory_gib:.1f}" if row else "" for row in rows]),
        column("\nof", [f"{row.capacity_gib:g}" if row else "" for row in rows]),
        column("what limits it", [side.reason or (side.best.limits if side.best else "") for side in sides], is_text=True),
        column("configuration", held, is_text=True),
    ])  # fmt: skip


def _searched(answer: Answer) -> list[str]:
    found, fixed = answer.search, answer.problem.fixed
    space = found.space
    illegal = ", ".join(f"{name} {count}" for name, count in sorted(space.illegal.items(), key=lambda part: -part[1]))
    lines = [
        f"searched: {len(found.figures.fits)} legal configurations, {found.num_fitting} fit, {found.num_tight} may fit; they are "
        f"{space.num_legal_layouts} layouts of {space.num_layouts}"
        + (f", the others break a rule ({illegal})" if illegal else "")
    ]
    if fixed.given:
        lines.append(f"held fixed: {fixed.words}")
    return lines


def _published(answer: Answer) -> list[str]:
    # only the benchmark's models have a published run
    kind = "published" if answer.problem.frozen_recompute else "default"
    default = f"the default of model {answer.problem.model.name}, {MARK}" if kind == "published" else MARK
    row, name = answer.published, f"{kind} configuration ({default})"
    if row is None:
        return [f"{name} is not legal here: {'; '.join(text for _, text in answer.published_broken)}"]
    if row.fits != "yes":
        place = {"no": "does not fit", "tight": "may fit"}[row.fits] + f" ({row.memory})"
    else:
        place = f"rank {row.rank} of {len(answer.search.ranked)} layouts that fit"
    text = f"{name}: {seconds(row)} predicted, {place}"
    if not answer.rows:
        return [text]
    best = answer.rows[0]
    if best.published:
        return [f"{text}; it is the best"]
    return [f"{text}; best: {digits(best.report_s)} s, {best.report_s / row.report_s:.2f} times as long"]


def _tight(answer: Answer) -> list[str]:
    return [
        f"may fit, its memory being within the margin, and would be {'faster' if answer.rows else 'the best'}: {seconds(row)}, "
        f"{row.memory}: {row.sizes.layout}; {switches(row)}"
        for row in answer.tight
    ]


def _nothing(answer: Answer) -> list[str]:
    row, problem = answer.smallest, answer.problem
    if row is None:
        return []
    help_ = ["more nodes"]
    recomputed = sum(row.memory_parts_gib.get(name, 0.0) for name in ("activations", "temporary"))
    is_help = "full" not in problem.recompute and row.memory_gib - recomputed < row.capacity_gib
    help_ += ["--recompute full"] if is_help else []
    help_ += ["leaving a fixed size free"] if problem.fixed.given else []
    return [
        f"none surely fits: the least memory is {row.memory}: {row.sizes.layout}; {switches(row)}",
        f"the greatest parts of it: {memory_parts(row)}",
        f"what would help: {', '.join(help_)}, or GPUs with more memory",
    ]


CHOSEN = " <"


def size_lines(found: Recommendation, style: Style) -> list[str]:
    """Return the answer to: how large a model in these days."""
    problem = found.problem
    heading = (
        f"largest GPT that trains {tokens_in_words(problem.tokens)} tokens in {found.days:g} days on {problem.system.name}, "
        f"{problem.nodes} nodes x {problem.gpus_per_node} = {problem.num_gpus} GPUs: predicted, not measured"
    )
    nemo = (
        f"NeMo's formula, days = 8 P T / (GPUs x {NEMO_FLOPS / 1e12:g} TFLOP/s), allows {found.nemo_parameters / 1e9:.1f} billion "
        "parameters here, whatever the layout"
    )
    shapes = (
        "sizes without a file in benchmark/models are interpolated between two that have one; the batch is the nearest file's, rounded "
        "to a multiple of the GPUs (--global-batch-size sets it)"
    )
    return [
        *style.heading(heading),
        *say(style, _recommended(found)),
        "",
        *style.table(_size_columns(found)),
        "",
        *say(style, nemo, shapes),
    ]


def _recommended(found: Recommendation) -> str:
    size = found.chosen
    if size is None or size.row is None or size.days is None:
        return "not even the smallest size finishes: give more days or nodes, or fewer tokens"
    shape = size.model.architecture
    shaped = f"{shape.num_layers} layers, hidden size {shape.hidden_size}, {shape.num_attention_heads} heads"
    last = ", the largest shape known here" if size.model.name == SHAPES[-1] else ""
    return f"recommended: {size.model.name}{last}, {shaped}: {digits(size.days)} days with {size.row.sizes.layout}"


def _size_columns(found: Recommendation) -> list[Column]:
    sizes, problem = found.looked_at, found.problem
    rows = [size.row for size in sizes]
    nemo = [nemo_days(parameters_of(size.model), problem.tokens, problem.num_gpus) for size in sizes]
    return [
        column("size", [size.model.name + (CHOSEN if size is found.chosen else "") for size in sizes], is_text=True),
        column("10^9\nparameters", [f"{parameters_of(size.model) / 1e9:.3g}" for size in sizes]),
        column("layers", [size.model.architecture.num_layers for size in sizes]),
        column("hidden\nsize", [size.model.architecture.hidden_size for size in sizes]),
        column("batch", [row.sizes.global_batch_size if row else "" for row in rows]),
        column("\ndays", ["does not fit" if size.days is None else digits(size.days) for size in sizes]),
        column(
            "90 %\ninterval",
            [f"{digits(row.low_s / DAY_S)}-{digits(row.high_s / DAY_S)}" if row else "" for row in rows],
        ),
        column("NeMo's\ndays", [digits(days) for days in nemo]),
        column("\nlayout", [row.sizes.layout if row else "" for row in rows], is_text=True),
    ]


def why_lines(why: Why, style: Style) -> list[str]:
    """Return the explanation of one configuration."""
    heading = f"{why.sizes.layout}; {', '.join(why.sizes.switches.values())}"
    body = [f"illegal, {name}: {text}" for name, text in why.broken]
    body += [f"legal with {change.text}: {seconds(change.row)}, {change.row.memory}" for change in why.changes]
    body = body if why.row is None else _legal(why, why.row)
    return [*style.heading(question(why.problem)), *say(style, heading), "", *say(style, *body)]


def _legal(why: Why, row: Row) -> list[str]:
    shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in row.shares.items() if share >= 0.005)
    return [
        _verdict(why, row),
        f"memory: {row.memory}, fits: {row.fits}: {memory_parts(row)}",
        f"time: {row.iteration_s:.4g} s per iteration, {row.tokens_per_second:.0f} tokens/s: {shares}",
        *_against_best(why, row),
        *_changes(why, row),
    ]


def _verdict(why: Why, row: Row) -> str:
    if why.rank is None:
        state = "legal, but does not fit" if row.fits == "no" else "legal, but may not fit"
        return f"{state}: {row.memory}; {seconds(row)} if it did"
    text = f"legal, fits, rank {why.rank} of {why.num_ranked} layouts: {seconds(row)}"
    if why.best is None or why.best.report_s >= row.report_s * 0.999:
        return f"{text}, as fast as the best"
    causes = [f"{name} {cost:+.0f} s" for name, cost in why.costs.items() if cost >= 0.01 * row.report_s]
    return f"{text}, {row.report_s / why.best.report_s:.2f} times the best" + (
        f" because of {', '.join(causes)}" if causes else ""
    )


def _against_best(why: Why, row: Row) -> list[str]:
    if why.best is None:
        return ["no configuration surely fits"]
    best = why.best
    if why.rank is not None and best.sizes == row.sizes:
        return []
    lines = [f"the best that fits: {seconds(best)}, {best.memory}: {best.sizes.layout}; {switches(best)}"]
    saved = [f"{name} {digits(-cost)} s" for name, cost in why.costs.items() if cost <= -0.01 * row.report_s]
    return [*lines, f"the best spends more on {', '.join(saved)}"] if saved else lines


def _changes(why: Why, row: Row) -> list[str]:
    if not why.changes:
        return [f"no single change {'is predicted to make it faster' if row.fits == 'yes' else 'makes it fit'}"]
    aim = "helps most" if row.fits == "yes" else "makes it fit and keeps it fastest"
    heads = [f"the single change that {aim}", *(["then"] * 2)]
    return [
        f"{head}: {change.text}: {seconds(change.row)}, {change.row.memory}"
        for head, change in zip(heads, why.changes, strict=False)
    ]
