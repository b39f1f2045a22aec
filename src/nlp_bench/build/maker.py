"""Makes one build, under a lock, in its own folder; it is finished when its manifest exists."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from nlp_bench.build import verify
from nlp_bench.build.environment import CACHES, MANIFEST, SCHEMA, SITE, Apex, Extras, Machine, folder_name, warning
from nlp_bench.build.providers import compiler_gap
from nlp_bench.errors import NlpBenchError
from nlp_bench.files import locked, parse_json, read_json, write_json
from nlp_bench.packages import remedy

HELPER = """\
from importlib import machinery, util
places = [f"{place}/core/datasets" for place in util.find_spec("megatron").submodule_search_locations]
found = machinery.PathFinder.find_spec("helpers_cpp", places)
found.loader.exec_module(util.module_from_spec(found))
"""
"""Python statements that succeed where megatron-core's C++ index builder is compiled; the rest of it, which takes seconds, is not imported."""
OPERATORS = "element-wise operators"
WARM_UP = (
    "--num-layers 1 --hidden-size 128 --num-attention-heads 2 --seq-length 128 --max-position-embeddings 128 "
    "--position-embedding-type rope --vocab-size 512 --mock-data --micro-batch-size 1 --train-iters 2 --lr 1e-4 --bf16"
)


def make_build(parent: Path, machine: Machine, extras: Extras, say: Callable[[str], None]) -> Path:
    """Build what is missing, verify every kernel, and return the folder; `say` receives one line per item and kernel.

    A build that was made without a GPU is verified by the next call that sees one. A folder without a manifest is left over from a build that died and is replaced. Raises NlpBenchError when an item fails;
    the folder then has no manifest.
    """
    folder = parent / folder_name(machine, extras)
    with locked(parent / f".{folder.name}.lock", "set NLP_BENCH_BUILD_DIR to another folder"):
        is_made = (folder / MANIFEST).is_file()
        if is_made:
            record = read_json(folder / MANIFEST, SCHEMA)
        else:
            record = {"schema": SCHEMA, "machine": asdict(machine), **asdict(extras), "items": {}, "verified": []}
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        is_verified = bool(record.get("verified"))
        if is_made and not is_verified and machine.arch != "cpu" and sees_gpu():
            record["items"].pop(OPERATORS, None)  # the build was made on a node without a GPU
        items: dict[str, Callable[[], str]] = {
            "dataset helper": lambda: dataset_helper(folder),
            "Apex": lambda: apex_extensions(folder, machine, extras.apex),
            "Transformer Engine": lambda: transformer_engine(folder, machine, extras.transformer_engine),
            OPERATORS: lambda: elementwise_operators(folder, machine),
        }
        done = record["items"]
        for name, make in items.items():
            if name in done:
                say(f"{name}: {done[name] if done[name].startswith('skipped') else 'already there'}")
            else:
                done[name] = make()
                say(f"{name}: {done[name]}")
        if not is_verified:
            record["verified"] = [asdict(trial) for trial in _verified(folder, machine, say)]
        if record["verified"]:
            for line in verify.table([verify.Trial(**trial) for trial in record["verified"]]):
                say(line)
        if text := warning(record):
            say(text)
        if not is_made or (record["verified"] and not is_verified):
            write_json(folder / MANIFEST, record)
    return folder


def _verified(folder: Path, machine: Machine, say: Callable[[str], None]) -> list[verify.Trial]:
    if "absent" in {machine.torch, machine.megatron_core}:
        return []  # reported by the items above
    if machine.arch != "cpu" and not sees_gpu():
        say("kernels: NOT VERIFIED, no GPU here; build again on a node with one to compare them with plain torch")
        return []
    return verify.verify(folder / SITE, folder / "verify.log")


def dataset_helper(folder: Path) -> str:
    """Compile megatron-core's C++ index builder if its wheel lacks it; raises NlpBenchError when that fails."""
    if _python(HELPER) == 0:
        return "already there"
    place = "import megatron.core.datasets as d; print(d.__path__[0])"
    answer = subprocess.run([sys.executable, "-W", "ignore", "-c", place], capture_output=True, text=True, check=False)
    if answer.returncode:
        return f"skipped (megatron-core is not installed: {remedy('megatron')}; in a checkout: bash benchmark/env/setup_venv.sh)"
    _run(["make", "-C", answer.stdout.strip()], folder / "dataset_helper.log", {})
    if _python(HELPER):
        raise NlpBenchError("dataset helper: compiled, but it cannot be imported; is this make's Python another one?")
    return "built"


def apex_extensions(folder: Path, machine: Machine, apex: Apex | None) -> str:
    """Compile Apex with its C++ and CUDA extensions into the build's own folder; raises NlpBenchError when that fails."""
    if apex is None:
        return "skipped (no --apex; torch's fused AdamW, LayerNorm and gradient norm replace it)"
    if machine.arch == "cpu":
        return "skipped (no GPU and no --arch; Apex is for CUDA)"
    if shutil.which("nvcc") is None:
        raise NlpBenchError("apex: nvcc is not on PATH, and Apex compiles CUDA; load the CUDA module")
    source, log = folder / "apex", folder / "apex.log"
    _run(["git", "clone", "--quiet", apex.source, str(source)], log, {})
    _run(["git", "-C", str(source), "checkout", "--quiet", apex.commit], log, {})
    _run(["git", "-C", str(source), "submodule", "update", "--quiet", "--init", "--recursive"], log, {})
    settings = {
        "TORCH_CUDA_ARCH_LIST": machine.arch,
        "MAX_JOBS": _jobs(),
        "APEX_CPP_EXT": "1",  # Apex since 2025 reads the environment, the older ones the build options below
        "APEX_CUDA_EXT": "1",
    }
    options = ["--config-settings", "--build-option=--cpp_ext", "--config-settings", "--build-option=--cuda_ext"]
    pip = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-cache-dir"]
    _run([*pip, *options, "--target", str(folder / SITE), str(source)], log, settings)
    shutil.rmtree(source)
    return f"built (commit {apex.commit[:12]} for architecture {machine.arch})"


def transformer_engine(folder: Path, machine: Machine, wanted: str) -> str:
    """Install Transformer Engine into the build's own folder, its torch part compiled here; raises NlpBenchError when that fails.

    `wanted` is a requirement of pip. Its wheel has the kernels compiled; their bindings are compiled for this torch, for the
    architecture of NVTE_CUDA_ARCHS (https://github.com/NVIDIA/TransformerEngine, installation from PyPI).
    """
    if not wanted:
        return "skipped (no --te; torch's kernels replace it, except 8-bit floats)"
    if machine.arch == "cpu":
        return "skipped (no GPU and no --arch; Transformer Engine is for CUDA)"
    if shutil.which("nvcc") is None:
        raise NlpBenchError(
            "transformer engine: nvcc is not on PATH, and its torch part is compiled; load the CUDA module"
        )
    settings = {"NVTE_FRAMEWORK": "pytorch", "NVTE_CUDA_ARCHS": machine.arch.replace(".", ""), "MAX_JOBS": _jobs()}
    log, plan = folder / "transformer_engine.log", folder / "transformer_engine.json"
    pip = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-cache-dir"]
    _run([*pip, "--dry-run", "--report", str(plan), wanted], log, settings)
    _run([*pip, "--no-deps", "--target", str(folder / SITE), *_not_there_yet(plan, wanted)], log, settings)
    return f"built ({wanted} for architecture {machine.arch})"


def _not_there_yet(plan: Path, wanted: str) -> list[str]:
    """Return what pip would install in addition to this environment: with --target alone it would install torch again.

    Format: https://pip.pypa.io/en/stable/reference/installation-report/.
    """
    report = parse_json(plan.read_text(encoding="utf-8"))
    named = [one["metadata"] for one in report["install"] if not one.get("is_direct")]
    direct = [wanted] if any(one.get("is_direct") for one in report["install"]) else []
    return [*direct, *(f"{one['name']}=={one['version']}" for one in named)]


def _jobs() -> str:
    return os.environ.get("MAX_JOBS", str(min(16, len(os.sched_getaffinity(0)))))


def elementwise_operators(folder: Path, machine: Machine) -> str:
    """Compile the trainer's fused operators with torch.compile once, on one rank; raises NlpBenchError when that fails."""
    if machine.arch == "cpu":
        return "skipped (no GPU; on a CPU the eager operators are as fast)"
    if machine.cuda == "none":
        return "skipped (this torch has no CUDA)"
    if gap := compiler_gap():
        return f"skipped (torch.compile needs {gap}: THE TRAINER WILL RUN UNFUSED)"
    if not sees_gpu():
        return "skipped (no GPU here; the first iterations of the first run compile them)"
    caches = {name: str(folder / cache) for name, cache in CACHES.items()}
    for path in caches.values():
        Path(path).mkdir(exist_ok=True)
    _run([sys.executable, "-m", "nlp_bench.train", *WARM_UP.split()], folder / "operators.log", caches)
    return "built"


def sees_gpu() -> bool:
    """Return whether torch sees a GPU here."""
    return _python("import torch, sys; sys.exit(not torch.cuda.is_available())") == 0


def _python(code: str) -> int:
    return subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, check=False).returncode


def _run(command: list[str], log: Path, settings: dict[str, str]) -> None:
    with log.open("ab") as stream:
        try:
            code = subprocess.run(
                command, stdout=stream, stderr=stream, env={**os.environ, **settings}, check=False
            ).returncode
        except OSError as error:
            raise NlpBenchError(f"build: cannot run {command[0]}: {error.strerror}") from error
    if code:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise NlpBenchError(f"build: {command[0]} ended with status {code}; the whole log is {log}\n{tail}")
