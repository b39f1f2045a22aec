"""Entry point of one training rank: refuse what is wrong before torch is imported, train, leave without hanging.

Alone:        python -m nlp_bench.train --num-layers 2 ... --mock-data
Four ranks:   torchrun --nproc-per-node 4 -m nlp_bench.train --tensor-model-parallel-size 2 ...
"""

import os
import sys
import traceback
import warnings

from nlp_bench.errors import NlpBenchError
from nlp_bench.orphans import die_with_parent
from nlp_bench.train.arguments import parse
from nlp_bench.train.layout import Layout, Rank


def main(words: list[str] | None = None) -> int:
    """Run one rank; return the exit code: 0 good, 1 an error, 2 a wrong argument, 3 a loss that is not finite."""
    if "TORCHELASTIC_RUN_ID" in os.environ:  # a rank of torchrun, whose death would leave it behind
        die_with_parent()
    try:
        settings = parse(sys.argv[1:] if words is None else words)
        rank = Rank.from_environment()
        layout = Layout.of(settings, rank.world_size)
        _check_data(settings.data_path)
    except NlpBenchError as error:
        if os.environ.get("RANK", "0") == "0":  # hundreds of ranks would say the same
            print(f"nlp_bench.train: error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # overlaps tensor-parallel communication in order
    warnings.filterwarnings("ignore", module=r"(megatron|torch)\.")  # megatron-core warns of every missing package
    from nlp_bench.train.world import pick_device  # noqa: PLC0415  # torch takes seconds; arguments are checked before

    device = pick_device(rank)
    from nlp_bench.train.loop import train  # noqa: PLC0415  # imports megatron-core, which pick_device prepares for

    return train(settings, layout, rank, device)


def _check_data(prefix: str | None) -> None:
    if prefix is not None:
        from nlp_bench.data.indexed import check_indexed  # noqa: PLC0415  # only where a file is read

        check_indexed(prefix)


def _leave_at_once(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # tearing down a process group whose other ranks are gone can hang for ever


if __name__ == "__main__":
    try:
        exit_code = main()
    except NlpBenchError as fault:
        print(f"nlp_bench.train: error: {fault}", file=sys.stderr)
        _leave_at_once(fault.exit_code)
    except Exception:  # noqa: BLE001  # whatever it is, this rank must not keep the others waiting
        traceback.print_exc()
        _leave_at_once(1)
    else:
        _leave_at_once(exit_code)
