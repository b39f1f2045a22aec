"""What a rank of the real torchrun runs instead of the trainer: collectives over gloo, our log lines, and a fault in iteration 3.

Python imports this module before the program. NLP_BENCH_STUB is the fault, of rank 1 unless it says otherwise:

ok           none
gpu_memory   raises torch.OutOfMemoryError
kill         SIGKILL to itself
leave        status 0, long before the end
hang         sleeps, while the others wait in a collective
hang_all     every rank sleeps
deaf         every rank sleeps and ignores SIGTERM
stop         goes on until SIGTERM asks it to end behind an iteration
once         raises at the first start; torchrun may start all ranks a second time (--max_restarts 1, which our launcher never says)
cleanup      exits with status 3 behind the trainer's last line
"""

import os
import signal
import sys
import time

STARTED_S = time.time()


def fault(mode: str, rank: int) -> None:
    """Do what `mode` says, in iteration 3."""
    import torch

    if rank == 1 and mode == "gpu_memory":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
    if rank == 1 and mode == "once" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise ValueError("only this time")
    if rank == 1 and mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and mode == "leave":
        os._exit(0)
    while mode in {"hang_all", "deaf"} or (mode == "hang" and rank == 1):
        time.sleep(1)


def value(name: str) -> int:
    """Return the trainer's argument `name`."""
    return int(sys.orig_argv[sys.orig_argv.index(name) + 1])


def line(iteration: int, total: int) -> str:
    """Return the trainer's line of one iteration."""
    from nlp_bench.train.logline import Interval, format_line

    elapsed_s, batch = 0.1 + 0.01 * float(os.environ["TORCHELASTIC_RESTART_COUNT"]), value("--global-batch-size")
    interval = Interval(
        iteration=iteration, train_iters=total, consumed_samples=iteration * batch, elapsed_s=elapsed_s, learning_rate=1e-3,
        global_batch_size=batch, loss=7.0 - iteration / 100000, loss_scale=1.0, grad_norm=1.0, num_skipped=0,
        num_nan=0, legacy_flops=1e9, model_flops=1e9, sequence_length=value("--seq-length"), num_gpus=2, peak_bytes=2**20,
        unix_time_s=STARTED_S + iteration * elapsed_s,  # the clock of the lines is that of their times
    )  # fmt: skip
    return format_line(interval)


def train(rank: int, mode: str) -> int:
    """Train in rank `rank`, so to speak; return the exit status."""
    import torch
    import torch.distributed as dist

    from nlp_bench import seal
    from nlp_bench.orphans import die_with_parent

    log = seal.LogSeal()

    def say(text: str) -> None:
        if rank == 0:
            log.take(text)
            print(text, flush=True)

    die_with_parent()  # as the trainer and launch/nodes/bound.py do
    asked: list[int] = []
    if mode in {"deaf", "stop"}:
        signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    dist.init_process_group("gloo")
    total = value("--train-iters")
    last = " training finished: {} iterations"
    say(seal.opening_line(os.environ.get(seal.VARIABLE), None))
    for iteration in range(1, total + 1):
        if iteration == 3:
            fault(mode, rank)
        votes = torch.tensor([len(asked)])
        dist.all_reduce(votes)
        time.sleep(0.1)
        say(line(iteration, total))
        if int(votes):
            last = " training stopped by exit-signal-handler: SIGTERM came after iteration {}"
            break
    if rank == 0:
        print(log.closing_line(), flush=True)
        print(last.format(iteration), flush=True)
    dist.barrier()
    return 3 if mode == "cleanup" and rank == 1 else 0


if os.environ.get("NLP_BENCH_STUB") == "once" and "--max_restarts" in sys.argv:
    sys.argv[sys.argv.index("--max_restarts") + 1] = "1"
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # or the second start finds the addresses of the first

if "RANK" in os.environ and "TORCHELASTIC_RUN_ID" in os.environ:
    try:
        _status = train(int(os.environ["RANK"]), os.environ.get("NLP_BENCH_STUB", "ok"))
    except BaseException:  # noqa: BLE001  # the interpreter would go on with the program
        import traceback

        traceback.print_exc()
        _status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_status)
