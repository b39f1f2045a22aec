"""A benchmark page as pytorch/torchtitan requires (benchmarks/README.md, "Submission Guidelines"): its six items, in its order.

The submitter is in no record: without a name the page says so. Text from logs is escaped.
"""

import re
from collections.abc import Sequence

from nlp_bench import __version__
from nlp_bench.escape import escaped_markdown, one_line
from nlp_bench.export.mlperf import system_description
from nlp_bench.export.subject import Subject
from nlp_bench.measure.workload import FREE, FROZEN
from nlp_bench.show.table import as_markdown, columns_of, number

UNKNOWN = "not recorded"


_MACHINE = ("system_name", "number_of_nodes", "accelerators_per_node", "accelerator_model_name", "accelerator_memory_capacity",
            "host_processor_model_name", "host_networking")  # fmt: skip


def page(subjects: Sequence[Subject], entity: str = "") -> str:
    """Return the markdown page of all runs; facts are those of the first one, results of each."""
    first = subjects[0]
    known = {name: _of(text) or UNKNOWN for name, text in system_description(first, {}).items()}
    lines = [f"# {_of(_model(first))} on {_of(_hardware(first))}", ""]
    lines += ["## 1. Entity", "", _of(entity) if entity else "(to be filled: name, company, university or team)", ""]
    lines += ["## 2. Model", "", _of(_model(first)), ""]
    lines += ["## 3. Hardware", "", *(f"- {name.replace('_', ' ')}: {known[name]}" for name in _MACHINE), ""]
    results = columns_of([_result(*each) for each in enumerate(subjects, start=1)], {"run", "statistic", "window"})
    lines += ["## 4. Performance and training configuration", "", *as_markdown(results), ""]
    for index, subject in enumerate(subjects, start=1):
        values = subject.entry.workload.values((*FROZEN, *FREE)).items()
        settings = [f"{name} = {one_line(value).replace('`', ' ')}" for name, value in values]
        lines += [f"### Configuration of run {index}", "", "```", *settings, "```", ""]
    lines += [
        "## 5. Versions and date",
        "",
        f"- framework: {known['framework']}",
        f"- other packages: {known['other_software_stack']}",
        f"- operating system: {known['operating_system']}",
        f"- nlp-bench that ran: {known['sw_notes']}; that wrote this page: {__version__}",
        f"- ended: {_of(first.text('ended.ended')) or UNKNOWN}",
        "",
        "## 6. Notes to reproduce",
        "",
        "steady: tokens / time over the window of iterations; reference: batch x sequence / mean of every logged time.",
    ]
    for index, subject in enumerate(subjects, start=1):
        lines += [f"- run {index}: {_of(text)}" for text in (*subject.entry.reason_texts, *subject.entry.remarks)]
    return "\n".join([*lines, ""])


def page_name(subjects: Sequence[Subject], entity: str = "") -> str:
    """Return the file's name in the form that torchtitan requires: model, hardware, date, entity."""
    date = re.sub(r"\D", "", subjects[0].text("ended.ended")[:10]) or "undated"
    parts = (_model(subjects[0]), _hardware(subjects[0]), date, entity or "entity")
    return "_".join(re.sub(r"[^A-Za-z0-9.+-]+", "-", part).strip("-.").lower() or "unknown" for part in parts) + ".md"


def _of(text: str) -> str:
    return escaped_markdown(one_line(text))


def _model(subject: Subject) -> str:
    name = subject.entry.model or subject.text("workload.model") or "unnamed model"
    return f"GPT {name}" if name[:1].isdigit() else name


def _hardware(subject: Subject) -> str:
    count = subject.entry.num_gpus
    name = "CPU rank" if subject.is_cpu else subject.text("workload.gpu", "run.system.gpu.name") or "GPU"
    return f"{count}x{name}" if count else name


def _result(index: int, subject: Subject) -> list[tuple[str, str]]:
    entry, (name, rate) = subject.entry, subject.rate
    return [
        ("run", str(index)),
        ("GPUs", number(entry.num_gpus)),
        ("global batch", number(entry.global_batch_size)),
        ("sequence", number(entry.sequence_length)),
        ("tokens/s", f"{rate:.2f}"),
        ("95 % interval", f"{entry.ci95[0]:.2f} to {entry.ci95[1]:.2f}" if entry.ci95 else "none"),
        ("tokens/s/GPU", f"{rate / entry.num_gpus:.2f}" if entry.num_gpus else ""),
        ("statistic", name),
        ("window", subject.window),
    ]
