"""A benchmark page as pytorch/torchtitan asks for (benchmarks/README.md, "Submission Guidelines"): its six items, in its order.

Who submits is not in any record: without a name the page says so. Words of logs are escaped.
"""

import re
from collections.abc import Iterator, Sequence

from nlp_bench import __version__
from nlp_bench.escape import escaped_markdown, one_line
from nlp_bench.export.mlperf import system_description
from nlp_bench.export.subject import Subject
from nlp_bench.measure.workload import FREE, FROZEN

UNKNOWN = "not recorded"


def page(subjects: Sequence[Subject], entity: str = "") -> str:
    """Return the markdown page of all runs; facts are those of the first one, results of each."""
    first = subjects[0]
    lines = [f"# {_of(_model(first))} on {_of(_hardware(first))}", ""]
    lines += ["## 1. Entity", "", _of(entity) if entity else "(to be filled: name, company, university or team)", ""]
    lines += ["## 2. Model", "", _of(_model(first)), ""]
    lines += ["## 3. Hardware", "", *_machine(first), ""]
    lines += ["## 4. Performance and training configuration", "", *_results(subjects), ""]
    for number, subject in enumerate(subjects, start=1):
        lines += [f"### Configuration of run {number}", "", *_configuration(subject), ""]
    lines += ["## 5. Versions and date", "", *_versions(first), ""]
    lines += ["## 6. Notes to reproduce", "", *_notes(subjects), ""]
    return "\n".join(lines)


def page_name(subjects: Sequence[Subject], entity: str = "") -> str:
    """Return the file's name in the form that torchtitan asks for: model, hardware, date, entity."""
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
    is_cpu = subject.text("run.system.accelerator", "workload.accelerator") == "cpu"
    name = "CPU rank" if is_cpu else subject.text("workload.gpu", "run.system.gpu.name") or "GPU"
    return f"{count}x{name}" if count else name


def _machine(subject: Subject) -> Iterator[str]:
    description = system_description(subject, {})
    for name in ("system_name", "number_of_nodes", "accelerators_per_node", "accelerator_model_name",
                 "accelerator_memory_capacity", "host_processor_model_name", "host_networking"):  # fmt: skip
        yield f"- {name.replace('_', ' ')}: {_of(description[name]) or UNKNOWN}"


def _results(subjects: Sequence[Subject]) -> Iterator[str]:
    yield "| run | GPUs | global batch | sequence | tokens/s | 95 % interval | tokens/s/GPU | statistic | window |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |"
    for number, subject in enumerate(subjects, start=1):
        entry, (name, rate) = subject.entry, subject.rate
        interval = f"{entry.ci95[0]:.2f} to {entry.ci95[1]:.2f}" if entry.ci95 else "none"
        per_gpu = f"{rate / entry.num_gpus:.2f}" if entry.num_gpus else ""
        window = entry.throughput.window if entry.throughput else None
        where = f"iterations {window.first_iteration} to {window.last_iteration}" if window else ""
        cells = (
            number,
            entry.num_gpus or "",
            entry.global_batch_size or "",
            entry.sequence_length or "",
            f"{rate:.2f}",
            interval,
        )
        yield "| " + " | ".join(map(str, (*cells, per_gpu, name, where))) + " |"


def _configuration(subject: Subject) -> Iterator[str]:
    yield "```"
    for name, value in subject.entry.workload.values((*FROZEN, *FREE)).items():
        yield f"{name} = {one_line(value).replace('`', ' ')}"
    yield "```"


def _versions(subject: Subject) -> Iterator[str]:
    description = system_description(subject, {})
    yield f"- framework: {_of(description['framework']) or UNKNOWN}"
    yield f"- other packages: {_of(description['other_software_stack']) or UNKNOWN}"
    yield f"- operating system: {_of(description['operating_system']) or UNKNOWN}"
    yield f"- nlp-bench that ran: {_of(description['sw_notes']) or UNKNOWN}; that wrote this page: {__version__}"
    yield f"- ended: {_of(subject.text('ended.ended')) or UNKNOWN}"


def _notes(subjects: Sequence[Subject]) -> Iterator[str]:
    yield "steady: tokens / time over the window of iterations; reference: batch x sequence / mean of every logged time."
    for number, subject in enumerate(subjects, start=1):
        for text in (*subject.entry.reason_texts, *subject.entry.remarks):
            yield f"- run {number}: {_of(text)}"
