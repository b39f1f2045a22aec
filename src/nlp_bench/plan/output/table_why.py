"""What is to be said of one configuration, as text or markdown."""

from nlp_bench.plan.answer.answer import Row
from nlp_bench.plan.answer.why import Why
from nlp_bench.plan.output.table import digits, held, question, say, seconds, switches
from nlp_bench.show.grid import Style


def why_lines(why: Why, style: Style) -> list[str]:
    """Return what is to be said of one configuration."""
    asked = f"{why.sizes.layout}; {', '.join(why.sizes.switches.values())}"
    body = _illegal(why) if why.row is None else _legal(why, why.row)
    return [*style.heading(question(why.problem)), *say(style, asked), "", *say(style, *body)]


def _illegal(why: Why) -> list[str]:
    lines = [f"illegal, {name}: {text}" for name, text in why.broken]
    return lines + [f"legal with {change.text}: {seconds(change.row)}, {change.row.memory}" for change in why.changes]


def _legal(why: Why, row: Row) -> list[str]:
    shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in row.shares.items() if share >= 0.005)
    return [
        _verdict(why, row),
        f"memory: {row.memory}, fits: {row.fits}: {held(row)}",
        f"time: {row.iteration_s:.4g} s per iteration, {row.tokens_per_second:.0f} tokens/s: {shares}",
        *_against_best(why, row),
        *_changes(why, row),
    ]


def _verdict(why: Why, row: Row) -> str:
    if why.rank is None:
        state = "legal, but does not fit" if row.fits == "no" else "legal, but may not fit"
        return f"{state}: {row.memory}; {seconds(row)} if it did"
    said = f"legal, fits, rank {why.rank} of {why.num_ranked} layouts: {seconds(row)}"
    if why.best is None or why.best.report_s >= row.report_s * 0.999:
        return f"{said}, as fast as the best"
    causes = [f"{name} {cost:+.0f} s" for name, cost in why.costs.items() if cost >= 0.01 * row.report_s]
    return f"{said}, {row.report_s / why.best.report_s:.2f} times the best" + (
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
