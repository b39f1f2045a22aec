"""Results in the forms of others: MLPerf's system description, torchtitan's benchmark page, collectors of continuous benchmarking.

Valid runs with a number are exported, with the records next to their logs; all others are refused with the reason.

- System description: 33 fields, filled as far as the run's own records know the machine. The names are those that mlcommons/logging checks
  (mlperf_logging/system_desc_checker/system_desc_checker.py, `required_fields`); every value is text. What was not recorded is "" and
  is listed, never guessed.
- Page: as pytorch/torchtitan requires (benchmarks/README.md, "Submission Guidelines"), its six items in its order. The submitter is in no
  record: without a name the page says so. Text from logs is escaped.
- github-action-benchmark: a list of `name`, `unit`, `value`, `range`, `extra` for its tools `customBiggerIsBetter` and
  `customSmallerIsBetter` (benchmark-action/github-action-benchmark, README).
- Bencher Metric Format: benchmark to measure to `value`, `lower_value`, `upper_value` (bencher.dev, reference/bencher-metric-format).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from nlp_bench import __version__
from nlp_bench.errors import UsageError, nearest
from nlp_bench.escape import escaped_markdown, one_line
from nlp_bench.evidence.derive import measure
from nlp_bench.evidence.manifest import LOG, RUN_FOLDER
from nlp_bench.files import read_object
from nlp_bench.immutable import immutable
from nlp_bench.inputs.find import Item, Kind, find
from nlp_bench.inputs.read import refusal_of_record
from nlp_bench.measure.result import RunResult, refuse_against_log
from nlp_bench.measure.sizes import Overrides
from nlp_bench.measure.throughput import time_to_report_s
from nlp_bench.measure.workload import FREE, FROZEN, lookup
from nlp_bench.outcome import Outcome
from nlp_bench.rules.apply import wanted
from nlp_bench.show.table import as_markdown, columns_of, json_text, number
from nlp_bench.walk import MACHINE

Record = Mapping[str, Any]


@immutable
class Subject:
    """One run to be exported."""

    entry: RunResult  # the run: valid, with a number and with its samples
    tokens: int
    run: Record = field(default_factory=dict)  # run.json; {} for a log of somebody else
    environment: Record = field(default_factory=dict)
    ended: Record = field(default_factory=dict)
    machine: Record = field(default_factory=dict)  # the record of the first node below machine/

    def text(self, *places: str) -> str:
        """Return the first of the dotted places (`run.a.b`; of run, environment, ended, machine or workload) that is known, as text; "" where none is."""
        for place in places:
            source, _, dotted = place.partition(".")
            value = self.entry.workload.value(dotted) if source == "workload" else lookup(getattr(self, source), dotted)
            if value is not None and not isinstance(value, dict | list) and value != "":
                return str(value)
        return ""

    @property
    def is_cpu(self) -> bool:
        """Whether CPU ranks ran and no accelerators."""
        return self.text("run.system.accelerator", "workload.accelerator") == "cpu"

    @property
    def window(self) -> str:
        """The counted iterations, "" where none are."""
        found = self.entry.throughput.window if self.entry.throughput else None
        return f"iterations {found.first_iteration} to {found.last_iteration}" if found else ""

    @property
    def rate(self) -> tuple[str, float]:
        """Name and tokens per second of the rate that counts: steady where there is one, else reference."""
        if self.entry.steady is not None:
            return "steady", self.entry.steady
        return "reference", self.entry.reference or 0.0

    @property
    def time_s(self) -> float:
        """Seconds that the hypothetical training takes at that rate."""
        return time_to_report_s(self.tokens, self.rate[1]) or 0.0


def _why_none(item: Item) -> str | None:
    """Return why an item is no run that could be exported, None where it may be one."""
    if item.kind is Kind.STEP:
        return item.problem
    if item.kind is Kind.TABLE:
        return f"{item.path}: a table of published results has no runs to export"
    refusal = refusal_of_record(item.file, item.path) if item.kind is Kind.RECORD else None
    return f"{item.path}: {refusal.reasons[0].text}" if refusal else None


def subjects(
    paths: Sequence[str], overrides: Overrides, tokens: int, *, allow_measured: bool = False
) -> tuple[list[Subject], list[str]]:
    """Return the valid runs of `paths` (with `allow_measured` also the MEASURED ones), and why each other one is refused. Raises UsageError for a PATH that cannot be read."""
    found: list[Subject] = []
    refused: list[str] = []
    rules = wanted(None)
    for item in (item for group in find(paths) for item in group.items):
        if item.kind is Kind.BROKEN:
            raise UsageError(item.problem)
        if why := _why_none(item):
            refused.append(why)
            continue
        is_ours = item.kind is Kind.RUN
        place, kind = (item.folder, RUN_FOLDER) if is_ours else (Path(item.path), LOG)
        entries, _ = measure(place, kind, overrides, rules=rules)
        records: dict[str, Record] = {}
        if is_ours:
            nodes = sorted((item.folder / MACHINE).glob("*.json"))
            files = {"run": "run.json", "environment": "environment.json", "ended": "outcome.json"}
            records = {name: read_object(item.folder / file) for name, file in files.items()}
            records["machine"] = read_object(nodes[0]) if nodes else {}
        refuse_against_log(entries)
        for entry in entries:
            if entry.throughput is not None and (allow_measured or entry.outcome is Outcome.VALID):
                found.append(Subject(entry=entry, tokens=tokens, **records))
            elif not item.is_found or entry.dialect:
                why = "a run without a number is not exported"
                if entry.has_number:
                    why = "a log that does not show that its run ended well is exported with --allow-measured only"
                reasons = "; ".join(entry.reason_texts[:2])
                refused.append(f"{entry.source}: {entry.outcome.value}, {why}: {reasons}")
    return found, refused


FIELDS = (
    "submitter", "division", "status", "system_name", "number_of_nodes", "host_processors_per_node", "host_processor_model_name",
    "host_processor_core_count", "host_processor_vcpu_count", "host_processor_frequency", "host_processor_caches",
    "host_processor_interconnect", "host_memory_capacity", "host_storage_type", "host_storage_capacity", "host_networking",
    "host_networking_topology", "host_memory_configuration", "accelerators_per_node", "accelerator_model_name",
    "accelerator_host_interconnect", "accelerator_frequency", "accelerator_on-chip_memories", "accelerator_memory_configuration",
    "accelerator_memory_capacity", "accelerator_interconnect", "accelerator_interconnect_topology", "cooling", "hw_notes",
    "framework", "other_software_stack", "operating_system", "sw_notes",
)  # fmt: skip
_GIB = 2**30


def system_description(subject: Subject, given: Mapping[str, str]) -> dict[str, str]:
    """Return all fields in the order of MLPerf; `given` overrides the records."""
    known = {**_known(subject), **given}
    return {name: one_line(known.get(name, "")) for name in FIELDS}


def given_fields(words: Sequence[str]) -> dict[str, str]:
    """Return `FIELD=VALUE` arguments as a mapping. Raises UsageError naming a field that MLPerf does not have."""
    given = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in FIELDS:
            near = nearest(name, list(FIELDS))
            raise UsageError(f"--set {word[:80]!r}: expected FIELD=VALUE with a field of MLPerf{near}")
        if name in given:
            raise UsageError(f"--set {name} is given twice; give it once")
        given[name] = value
    return given


def _known(subject: Subject) -> dict[str, str]:
    text = subject.text
    sockets, memory = text("machine.cpu.sockets"), text("machine.memory_bytes")
    links, rate = text("run.system.network.links_per_node"), text("run.system.network.link_gbit_per_s")
    gpu_memory, is_cpu = text("run.system.gpu.memory_gib"), subject.is_cpu
    packages = subject.environment.get("packages")
    versions = {name: str(version) for name, version in (packages or {}).items() if version}
    torch = text("workload.torch_version") or versions.get("torch")
    core = versions.get("megatron-core") or text("workload.megatron_core_version")
    nccl, version = text("workload.nccl_version"), text("run.nlp_bench.version")
    others = [f"{name} {found}" for name, found in versions.items() if name not in {"torch", "megatron-core"}]
    accelerators = {
        "accelerators_per_node": text("run.parallel.gpus_per_node", "workload.gpus_per_node"),
        # What ran is what the log names; run.json says what was expected.
        "accelerator_model_name": text("workload.gpu", "run.system.gpu.name"),
        "accelerator_memory_capacity": f"{gpu_memory} GiB" if gpu_memory else "",
    }
    no_accelerator = {"accelerators_per_node": "0", "hw_notes": "ranks ran on the CPU: no accelerator"}
    return {
        "system_name": text("run.system.description", "run.system.name", "workload.system"),
        "number_of_nodes": text("run.parallel.nodes", "workload.nodes"),
        "host_processor_model_name": text("machine.cpu.model", "environment.cpu"),
        "host_processors_per_node": sockets,
        "host_processor_core_count": _share(text("machine.cpu.cores"), sockets),
        "host_processor_vcpu_count": _share(text("machine.cpu.threads"), sockets),
        "host_memory_capacity": f"{int(memory) / _GIB:.0f} GiB" if memory.isdecimal() else "",
        "host_networking": f"{links} x {rate} Gbit/s per node" if links and rate else "",
        **(no_accelerator if is_cpu else accelerators),
        "framework": ", ".join(
            f"{name} {found}" for name, found in (("PyTorch", torch), ("megatron-core", core)) if found
        ),
        "other_software_stack": ", ".join([*others, *([f"NCCL {nccl}"] if nccl else [])]),
        "operating_system": text("machine.operating_system", "environment.platform"),
        "sw_notes": f"nlp-bench {version} {text('run.nlp_bench.commit')}".strip() if version else "",
    }


def _share(total: str, parts: str) -> str:
    """Return `total` per socket, "" where that is no whole number."""
    is_whole = total.isdecimal() and parts.isdecimal() and int(parts) and int(total) % int(parts) == 0
    return str(int(total) // int(parts)) if is_whole else ""


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


_LAYOUT = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "micro_batch_size": "mbs",
    "global_batch_size": "gbs",
}
"""Settings that distinguish the runs of a sweep, and their usual abbreviations."""


def collected(subjects: Sequence[Subject], form: str) -> str:
    """Return what a collector reads: rates (`bigger`) or times (`smaller`) for github-action-benchmark, both for Bencher (`bencher`)."""
    points, record = [], {}
    for name, subject in zip(_names(subjects), subjects, strict=True):
        entry, tokens = subject.entry, subject.tokens
        rate = (f"{name}: tokens per second", "tokens/s", subject.rate[1], entry.ci95)
        time = (f"{name}: time for {tokens} tokens", "s", subject.time_s, entry.time_ci95_s(tokens))
        points.append(_point(subject, *(rate if form == "bigger" else time)))
        record[name] = {"tokens-per-second": _metric(*rate[2:]), "time-to-report-s": _metric(*time[2:])}
    return json_text(record if form == "bencher" else points)


def _metric(value: float, interval: tuple[float, float] | None) -> dict[str, float]:
    return {"value": value, **({"lower_value": interval[0], "upper_value": interval[1]} if interval else {})}


def _point(
    subject: Subject, what: str, unit: str, value: float, interval: tuple[float, float] | None
) -> dict[str, Any]:
    point: dict[str, Any] = {"name": f"{what} ({subject.rate[0]})", "unit": unit, "value": value}
    if interval:
        point["range"] = f"{interval[0]:.6g} to {interval[1]:.6g} (95 %)"
    return {**point, "extra": f"window: {subject.window or 'unknown'}\nsource: {one_line(subject.entry.source)}"}


def _names(subjects: Sequence[Subject]) -> list[str]:
    """Return names that are the same from run to run: model, system and size, else the path; repeats are numbered, so that none is lost."""
    names = []
    for subject in subjects:
        entry = subject.entry
        parts = (entry.model, subject.text("run.system.name"), entry.num_gpus)
        layout = [f"{short}{value}" for name, short in _LAYOUT.items() if (value := entry.workload.value(name))]
        names.append(one_line(" ".join(map(str, (*parts, *layout))) if all(parts) else entry.source))
    return [name if names.count(name) == 1 else f"{name} #{names[:i].count(name) + 1}" for i, name in enumerate(names)]
