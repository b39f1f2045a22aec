"""The ranking as text or markdown."""

from nlp_bench.plan.answer.answer import Answer
from nlp_bench.plan.output.table import MARK, columns, common, digits, held, question, say, seconds, switches
from nlp_bench.show.grid import Style


def ranking_lines(answer: Answer, style: Style) -> list[str]:
    """Return the answer to: which configurations are best."""
    rows = list(answer.rows)
    if answer.published is not None and not any(row.published for row in rows):
        rows.append(answer.published)
    lines = [*style.heading(question(answer.problem)), *say(style, *_searched(answer)), ""]
    if rows:
        lines += [*style.table(columns(rows)), "", *say(style, f"all of these: {', '.join(common(rows))}")]
    measured = [f"measured by others in that configuration: {text}" for text in answer.measured]
    lines += say(style, *_published(answer), *measured, *answer.rehearsed, *_tight(answer), *_nothing(answer))
    lines += say(style, f"taken for granted: {'; '.join(answer.notes)}")
    return lines + say(style, *(f"extrapolated: {text}" for text in answer.extrapolated))


def _searched(answer: Answer) -> list[str]:
    found, given = answer.search, answer.problem.fixed.given
    space = found.space
    illegal = ", ".join(f"{name} {count}" for name, count in sorted(space.illegal.items(), key=lambda part: -part[1]))
    lines = [
        f"searched: {len(found.figures.fits)} legal configurations, {found.num_fitting} fit, {found.num_tight} may fit; they are "
        f"{space.num_legal_layouts} layouts of {space.num_layouts}"
        + (f", the others break a rule ({illegal})" if illegal else "")
    ]
    if given:
        lines.append("held fixed: " + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in given.items()))
    return lines


def _published(answer: Answer) -> list[str]:
    kind = (
        "published" if answer.problem.frozen_recompute else "default"
    )  # only the benchmark's models stand for a published run
    default = f"the default of model {answer.problem.model.name}, {MARK}" if kind == "published" else MARK
    row, name = answer.published, f"{kind} configuration ({default})"
    if row is None:
        return [f"{name} is not legal here: {'; '.join(text for _, text in answer.published_broken)}"]
    if row.fits != "yes":
        place = {"no": "does not fit", "tight": "may fit"}[row.fits] + f" ({row.memory})"
    else:
        place = f"rank {row.rank} of {len(answer.search.ranked)} layouts that fit"
    said = f"{name}: {seconds(row)} predicted, {place}"
    if not answer.rows:
        return [said]
    best = answer.rows[0]
    if best.published:
        return [f"{said}; it is the best"]
    return [f"{said}; best: {digits(best.report_s)} s, {best.report_s / row.report_s:.2f} times as long"]


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
    help_ += ["--recompute full"] if "full" not in problem.recompute else []
    help_ += ["leaving a fixed size free"] if problem.fixed.given else []
    return [
        f"none surely fits: the least memory is {row.memory}: {row.sizes.layout}; {switches(row)}",
        f"the greatest parts of it: {held(row)}",
        f"what would help: {', '.join(help_)}, or GPUs with more memory",
    ]
