"""The MLPerf system description: 33 fields, filled as far as the run's own records know the machine.

The names are those that mlcommons/logging checks (mlperf_logging/system_desc_checker/system_desc_checker.py, `required_fields`);
every value is text. What nobody recorded is "" and is listed, never guessed.
"""

from collections.abc import Iterator, Mapping, Sequence

from nlp_bench.errors import UsageError, nearest
from nlp_bench.escape import one_line
from nlp_bench.export.subject import Subject

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
    """Return all fields in the order of MLPerf; `given` wins over what the records say."""
    known = dict(_known(subject)) | dict(given)
    return {name: one_line(known.get(name) or "") for name in FIELDS}


def unknown_fields(description: Mapping[str, str]) -> list[str]:
    """Return the fields that a person has to fill."""
    return [name for name in FIELDS if not description[name]]


def given_fields(words: Sequence[str]) -> dict[str, str]:
    """Return `FIELD=VALUE` words as a mapping. Raises UsageError naming a field that MLPerf does not have."""
    given = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in FIELDS:
            near = nearest(name, list(FIELDS)) or f" (known: {', '.join(FIELDS)})"
            raise UsageError(f"--set {word[:80]!r}: expected FIELD=VALUE with a field of MLPerf{near}")
        given[name] = value
    return given


def _known(subject: Subject) -> Iterator[tuple[str, str]]:
    text = subject.text
    yield "system_name", text("run.system.description", "run.system.name", "workload.system")
    yield "number_of_nodes", text("run.parallel.nodes", "workload.nodes")
    yield "host_processor_model_name", text("machine.cpu.model", "environment.cpu")
    yield "host_processors_per_node", text("machine.cpu.sockets")
    yield "host_processor_core_count", _share(text("machine.cpu.cores"), text("machine.cpu.sockets"))
    yield "host_processor_vcpu_count", _share(text("machine.cpu.threads"), text("machine.cpu.sockets"))
    memory = text("machine.memory_bytes")
    yield "host_memory_capacity", f"{int(memory) / _GIB:.0f} GiB" if memory.isdecimal() else ""
    links, rate = text("run.system.network.links_per_node"), text("run.system.network.link_gbit_per_s")
    yield "host_networking", f"{links} x {rate} Gbit/s per node" if links and rate else ""
    yield from _accelerators(subject)
    yield from _software(subject)


def _accelerators(subject: Subject) -> Iterator[tuple[str, str]]:
    if subject.text("run.system.accelerator", "workload.accelerator") == "cpu":
        yield "accelerators_per_node", "0"
        yield "hw_notes", "ranks ran on the CPU: no accelerator"
        return
    yield "accelerators_per_node", subject.text("run.parallel.gpus_per_node", "workload.gpus_per_node")
    # What ran is what the log names; run.json says what was expected.
    yield "accelerator_model_name", subject.text("workload.gpu", "run.system.gpu.name")
    memory = subject.text("run.system.gpu.memory_gib")
    yield "accelerator_memory_capacity", f"{memory} GiB" if memory else ""


def _share(total: str, parts: str) -> str:
    """Return `total` per socket, "" where that is no whole number."""
    is_whole = total.isdecimal() and parts.isdecimal() and int(parts) and int(total) % int(parts) == 0
    return str(int(total) // int(parts)) if is_whole else ""


def _software(subject: Subject) -> Iterator[tuple[str, str]]:
    packages = subject.environment.get("packages")
    versions = dict(packages) if isinstance(packages, Mapping) else {}
    versions |= {name: subject.text(f"workload.{name}_version") or versions.get(name) for name in ("torch",)}
    torch = versions.pop("torch", None)
    core = versions.pop("megatron-core", None) or subject.text("workload.megatron_core_version")
    names = [*([f"PyTorch {torch}"] if torch else []), *([f"megatron-core {core}"] if core else [])]
    yield "framework", ", ".join(names)
    others = [f"{name} {version}" for name, version in versions.items() if version]
    nccl = subject.text("workload.nccl_version")
    yield "other_software_stack", ", ".join([*others, *([f"NCCL {nccl}"] if nccl else [])])
    yield "operating_system", subject.text("machine.operating_system", "environment.platform")
    version, commit = subject.text("run.nlp_bench.version"), subject.text("run.nlp_bench.commit")
    yield "sw_notes", f"nlp-bench {version} {commit}".strip() if version else ""
