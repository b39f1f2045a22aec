"""Entry point of one training rank: check the arguments before torch is imported, train, exit without hanging.

Alone:        python -m nlp_bench.train --num-layers 2 ... --mock-data
Four ranks:   torchrun --nproc-per-node 4 -m nlp_bench.train --tensor-model-parallel-size 2 ...
"""

import os
import re
import sys
import traceback
import warnings

from nlp_bench.build.providers import check_installed
from nlp_bench.errors import NlpBenchError
from nlp_bench.machine.binding import bind_rank
from nlp_bench.orphans import die_with_parent
from nlp_bench.packages import installed_version
from nlp_bench.train.arguments import parse
from nlp_bench.train.checkpoint.folder import check_start
from nlp_bench.train.layout import Layout, Rank
from nlp_bench.train.settings.rules import check_files


def main(words: list[str] | None = None) -> int:
    """Run one rank; return the exit code: 0 success, 1 an error, 2 a wrong argument, 3 a loss that is not finite."""
    if "TORCHELASTIC_RUN_ID" in os.environ:  # a rank of torchrun, which it would outlive
        die_with_parent()
    binding = bind_rank()  # before numpy and torch start their threads
    try:
        settings = parse(sys.argv[1:] if words is None else words)
        rank = Rank.from_environment()
        layout = Layout.of(settings, rank.world_size)
        check_files(settings)
        check_installed(settings.wanted_kernels, eight_bit=bool(settings.fp8_format))
        all_done = check_start(settings, layout)
    except NlpBenchError as error:
        if os.environ.get("RANK", "0") == "0":  # hundreds of ranks would print the same
            print(f"nlp_bench.train: error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    if all_done is not None:
        if rank.rank == rank.world_size - 1:  # the rank that writes the log
            print(all_done, flush=True)
        return 0
    if binding and (rank.rank == rank.world_size - 1 or not binding.is_complete):
        print(binding.line, flush=True)
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # overlaps tensor-parallel communication in order
    if not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & set(os.environ):
        os.environ[allocator_variable(installed_version("torch") or "")] = "expandable_segments:True"  # less fragmented
    warnings.filterwarnings("ignore", module=r"(megatron|torch)\.")  # megatron-core warns of every missing package
    from nlp_bench.train.world import pick_device  # noqa: PLC0415  # imports torch, which takes seconds

    device = pick_device(rank)
    from nlp_bench.train.loop import train  # noqa: PLC0415  # imports megatron-core, which pick_device prepares for

    return train(settings, layout, rank, device)


def allocator_variable(version: str) -> str:
    """Return the variable of the allocator's settings in a version of torch, which from 2.9 on warns of the old name."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    return "PYTORCH_CUDA_ALLOC_CONF" if [0] < numbers < [2, 9] else "PYTORCH_ALLOC_CONF"


def _exit_at_once(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # destroying a process group whose other ranks are gone can hang for ever


if __name__ == "__main__":
    try:
        exit_code = main()
    except NlpBenchError as fault:
        print(f"nlp_bench.train: error: {fault}", file=sys.stderr)
        _exit_at_once(fault.exit_code)
    except Exception:  # noqa: BLE001  # this rank must not keep the others waiting
        traceback.print_exc()
        _exit_at_once(1)
    else:
        _exit_at_once(exit_code)
