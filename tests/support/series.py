"""Logs and run folders of many configurations: a seeded generator of Megatron-LM's lines with its dump of arguments."""

import random
from pathlib import Path

from support.megatron_log import dump, line
from support.published import RUN, write_run

SHARED = (
    "1 other job(s) ran on its nodes meanwhile (7): the number is that of shared nodes; --exclusive asks for whole ones"
)


def lines(mean_s: float, seed: int, batch: int) -> str:
    """Return 40 lines of ten iterations each, whose times scatter independently around `mean_s`; the first one is a slow warm-up."""
    source = random.Random(seed)  # noqa: S311  # no secret
    seconds = [3 * mean_s, *(mean_s * (1 + 0.01 * source.gauss(0, 1)) for _ in range(39))]
    same = {"lr": 1e-4, "batch": batch, "scale": 1, "norm": 1, "skipped": 0, "nan": 0}
    return "".join(
        line(10 * n, 400, samples=10 * n * batch, ms=f"{1000 * s:.3f}", loss=8.11 - 0.001 * n, **same)
        for n, s in enumerate(seconds, start=1)
    )


def write_log(
    path: Path, *, gpus: int, batch: int, mean_s: float, tp: int = 1, micro: int = 1, seed: int = 0, **more: object
) -> Path:
    """Write somebody's Megatron-LM log; `more` are further arguments of its dump, None leaves the dump out."""
    arguments = {
        "num_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "seq_length": 1024, "world_size": gpus,
        "tensor_model_parallel_size": tp, "pipeline_model_parallel_size": 1, "micro_batch_size": micro,
        "global_batch_size": batch, "bf16": True, **more,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump(**arguments) + lines(mean_s, seed, batch))
    return path


def keep_two_lines(path: Path) -> None:
    """Cut a log of `write_log` behind its second logged interval: the window then holds one."""
    lines = path.read_text().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if line.startswith(" iteration"))
    path.write_text("".join(lines[: first + 2]))


def write_sweep(folder: Path) -> Path:
    """Write runs of TP 1, 2, 4 x PP 1, 2 on 8 GPUs: TP 2 and PP 1 or 2 are alike, TP 4 is slower, TP 1 PP 1 runs out of memory."""
    for number in range(18):
        tp, pp, repeat = 2 ** (number // 6), 1 + number // 3 % 2, number % 3
        run = folder / f"tp{tp}_pp{pp}_{repeat}"
        if tp == pp == 1:
            said = ("CUDA out of memory on rank 3",)
            write_series_run(run, nodes=2, tp=tp, pp=pp, outcome="OUT_OF_MEMORY", reasons=said)
        else:
            mean_s = {1: 1.3, 2: 1.0, 4: 1.1}[tp] + 0.002 * repeat
            write_series_run(run, nodes=2, tp=tp, pp=pp, mean_s=mean_s, seed=number)
    return folder


def write_series_run(
    folder: Path, *, mean_s: float = 1.0, nodes: int = 1, tp: int = 1, pp: int = 1, outcome: str = "VALID", seed: int = 0,
    logged_tp: int | None = None, reasons: tuple[str, ...] = (), is_shared: bool = False,
) -> Path:  # fmt: skip
    """Write a finished run of ours; `logged_tp` is what its log says where that is not what run.json asked for.

    With `is_shared` its outcome.json says that other jobs ran on its nodes.
    """
    gpus = 4 * nodes
    run = {
        **RUN,
        "parallel": {"nodes": nodes, "gpus_per_node": 4, "num_gpus": gpus, "tensor": tp, "pipeline": pp, "data": gpus // (tp * pp)},
        "batch": {**RUN["batch"], "micro_batch_size": 1, "global_batch_size": 64},  # type: ignore[dict-item]
        "training": {"iterations": 400, "log_interval": 10},
    }  # fmt: skip
    told = dump(
        num_layers=24, tensor_model_parallel_size=logged_tp or tp, pipeline_model_parallel_size=pp, micro_batch_size=1,
        world_size=gpus,
    )  # fmt: skip
    log = told + lines(mean_s, seed, 64) if outcome == "VALID" else ""
    codes = {"codes": ["shared-nodes"]} if is_shared else {}
    return write_run(folder, outcome, run=run, log=log, reasons=[SHARED] if is_shared else list(reasons), **codes)
