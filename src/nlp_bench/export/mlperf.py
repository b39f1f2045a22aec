"""The MLPerf system description: 33 fields, filled as far as the run's own records know the machine.

The names are those that mlcommons/logging checks (mlperf_logging/system_desc_checker/system_desc_checker.py, `required_fields`);
every value is text. What was not recorded is "" and is listed, never guessed.
"""

from collections.abc import Mapping, Sequence

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
    """Return all fields in the order of MLPerf; `given` overrides the records."""
    known = {**_known(subject), **given}
    return {name: one_line(known.get(name, "")) for name in FIELDS}


def given_fields(words: Sequence[str]) -> dict[str, str]:
    """Return `FIELD=VALUE` arguments as a mapping. Raises UsageError naming a field that MLPerf does not have."""
    given = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in FIELDS:
            near = nearest(name, list(FIELDS)) or f" (known: {', '.join(FIELDS)})"
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
