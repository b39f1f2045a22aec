"""Made logs with a known truth: an honest run of 200 iterations in four programs' words, and what a forger makes of it.

The honest run takes 76.2 s for 20 million tokens. A forger has a slower machine (`run_of(true_s)`) and changes lines until the
report says less; what he leaves alone contradicts him.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from support.megatron_log import dump, line
from support.published import RUN, write_run

from nlp_bench.layout.flops import legacy_flops_per_iteration, model_flops_per_token
from nlp_bench.layout.shape import ModelShape
from nlp_bench.train.logline import Interval, format_line

TOKENS, HONEST_S, LIMIT_S = 20_000_000, 76.2, 77.0
BATCH, SEQUENCE, GPUS, NUM = 1024, 2048, 256, 200
SHAPE = ModelShape(
    num_layers=40, hidden_size=5120, ffn_hidden_size=20480, num_attention_heads=40, num_query_groups=40,
    sequence_length=SEQUENCE, padded_vocab_size=51200,
)  # fmt: skip
MODEL_FLOPS = model_flops_per_token(SHAPE) * BATCH * SEQUENCE
LEGACY_FLOPS = legacy_flops_per_iteration(SHAPE, BATCH, recompute=False)
BEGIN_S = 1_767_225_600.0
SCATTER = 0.003


@dataclass
class Row:
    """What one line says; `wall_s` is what passed since the line before, by the clock."""

    iteration: int
    wall_s: float
    elapsed_s: float
    rate_s: float  # the time that samples/s and tokens/s are computed from
    flops_s: float  # the same of the FLOP/s
    stamp_s: float
    consumed: int
    loss: float
    batch: int = BATCH
    lr: float = 1e-4
    skipped: int = 0
    before: str = ""  # lines before this one

    def restate(self, factor: float, *, rates: bool = False, flops: bool = False, stamp: bool = False) -> None:
        """Print `factor` times the time, and let the named statements follow."""
        self.elapsed_s *= factor
        self.rate_s *= factor if rates else 1
        self.flops_s *= factor if flops else 1
        self.wall_s *= factor if stamp else 1


@dataclass
class Made:
    rows: list[Row]
    arguments: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arguments = {
            "num_layers": SHAPE.num_layers, "hidden_size": SHAPE.hidden_size, "ffn_hidden_size": SHAPE.ffn_hidden_size,
            "num_attention_heads": SHAPE.num_attention_heads, "group_query_attention": False, "seq_length": SEQUENCE,
            "max_position_embeddings": SEQUENCE, "padded_vocab_size": SHAPE.padded_vocab_size, "swiglu": False,
            "world_size": GPUS, "tensor_model_parallel_size": 8, "pipeline_model_parallel_size": 4, "context_parallel_size": 1,
            "data_parallel_size": 8, "micro_batch_size": 1, "global_batch_size": BATCH, "log_interval": 1,
            "recompute_granularity": None, "bf16": True, **self.arguments,
        }  # fmt: skip

    def clocked(self) -> "Made":
        """Set the times of day by what passed."""
        now_s = BEGIN_S
        for row in self.rows:
            now_s += row.wall_s
            row.stamp_s = now_s
        return self


def seconds_of(true_s: float) -> float:
    """Return the seconds of an iteration of a machine that takes `true_s` for TOKENS."""
    return true_s / TOKENS * BATCH * SEQUENCE


def run_of(
    true_s: float = HONEST_S, *, num: int = NUM, seed: int = 1, stalls: Sequence[int] = (), stall: float = 1.0
) -> Made:
    """Return an honest run: independent scatter, a slow first iteration, `stall` times the time in the iterations of `stalls`.

    Its mean behind the first iteration is `true_s`, stalls included.
    """
    chance = random.Random(seed)  # noqa: S311  # a repeatable test
    shares = [(1 + SCATTER * chance.gauss(0, 1)) * (stall if n in stalls else 1) for n in range(2, num + 1)]
    mean_s = seconds_of(true_s) / (sum(shares) / len(shares))
    times = [3 * seconds_of(true_s), *(mean_s * share for share in shares)]
    rows = [
        Row(
            iteration=n, wall_s=time_s, elapsed_s=time_s, rate_s=time_s, flops_s=time_s, stamp_s=0.0, consumed=n * BATCH,
            loss=11 * n**-0.1 + chance.gauss(0, 0.02),
        )
        for n, time_s in enumerate(times, start=1)
    ]  # fmt: skip
    return Made(rows).clocked()


def _when(stamp_s: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return datetime.fromtimestamp(stamp_s, timezone.utc).strftime(form)


def _lines(made: Made, fields: Callable[[Row], dict[str, float | str]], front: Callable[[Row], str]) -> str:
    return "".join(
        row.before
        + line(
            row.iteration, made.rows[-1].iteration, front(row), samples=row.consumed, batch=row.batch, loss=row.loss, norm=1,
            skipped=row.skipped, nan=0, **fields(row),
        )
        for row in made.rows
    )  # fmt: skip


def megatron(made: Made, *, stamps: bool = True, flops: bool = True, arguments: bool = True) -> str:
    """Return the log of Megatron-LM: whole seconds in front, the time in milliseconds, TFLOP/s of the model."""

    def fields(row: Row) -> dict[str, float | str]:
        count = {"flops": MODEL_FLOPS / row.flops_s / GPUS / 1e12} if flops else {}
        return {"ms": 1000 * row.elapsed_s, "lr": f"{row.lr:.6E}", "scale": 1, **count}

    told = dump(end=True, **made.arguments) if arguments else ""
    return told + _lines(made, fields, lambda row: f" [{_when(row.stamp_s)}] " if stamps else " ")


def jupiter(made: Made) -> str:
    """Return the log of the patched Megatron-LM of the JUPITER suite: seconds, samples per second, legacy TFLOPs; no clock, no dump."""

    def fields(row: Row) -> dict[str, float | str]:
        rates = {"rate": row.batch / row.rate_s, "tflops": LEGACY_FLOPS / row.flops_s / GPUS / 1e12}
        return {"s": row.elapsed_s, "lr": row.lr, "scale": 4096, **rates}

    return _lines(made, fields, lambda _: "[default3]: ")


def line_of_ours(row: Row, num: int) -> str:
    line = format_line(
        Interval(
            iteration=row.iteration, train_iters=num, consumed_samples=row.consumed, elapsed_s=row.rate_s, learning_rate=row.lr,
            global_batch_size=row.batch, loss=row.loss, loss_scale=1.0, grad_norm=1.0, num_skipped=row.skipped, num_nan=0,
            legacy_flops=LEGACY_FLOPS * row.rate_s / row.flops_s, model_flops=MODEL_FLOPS * row.rate_s / row.flops_s,
            sequence_length=SEQUENCE, num_gpus=GPUS, peak_bytes=2**35, unix_time_s=row.stamp_s,
        )
    )  # fmt: skip
    time = "elapsed time per iteration (s): "
    return f"[default3]:{line.replace(f'{time}{row.rate_s:.4f}', f'{time}{row.elapsed_s:.4f}')}\n"


def ours(made: Made) -> str:
    return dump(end=True, **made.arguments) + "".join(
        row.before + line_of_ours(row, made.rows[-1].iteration) for row in made.rows
    )


def torchtitan(made: Made) -> str:
    """Return the log of torchtitan: a clock with milliseconds, tokens/s and TFLOP/s of one device and no time."""
    return "".join(
        f"{row.before}[rank0]:[titan] {_when(row.stamp_s)},{int(row.stamp_s % 1 * 1000):03d} - root - INFO - step: {row.iteration:2d}  "
        f"loss: {row.loss:8.5f}  grad_norm:  0.8319  memory: 40.00GiB(50.00%)  tps: {BATCH * SEQUENCE / GPUS / row.elapsed_s:,.0f}  "
        f"tflops: {MODEL_FLOPS / row.flops_s / GPUS / 1e12:,.2f}  mfu: 40.00%\n"
        for row in made.rows
    )


def maxtext(made: Made) -> str:
    """Return the log of MaxText: seconds, tokens/s and TFLOP/s of one device, no clock."""
    return f"Num_devices: {GPUS}, shape (1, {GPUS})\n" + "".join(
        f"{row.before}completed step: {row.iteration - 1}, seconds: {row.elapsed_s:.3f}, "
        f"TFLOP/s/device: {MODEL_FLOPS / row.flops_s / GPUS / 1e12:.3f}, "
        f"Tokens/s/device: {BATCH * SEQUENCE / GPUS / row.rate_s:.3f}, total_weights: {BATCH * SEQUENCE}, loss: {row.loss:.3f}\n"
        for row in made.rows
    )


def bare(made: Made) -> str:
    """Return Megatron-LM's line without clock, FLOP/s and dump: it states its time once."""
    return megatron(made, stamps=False, flops=False, arguments=False)


def stamped(made: Made) -> str:
    """Return Megatron-LM's line with its clock, and nothing else that states the time."""
    return megatron(made, flops=False, arguments=False)


Form = Callable[[Made], str]
RUN_OF_OURS = {
    **RUN,
    "parallel": {"nodes": 64, "gpus_per_node": 4, "num_gpus": GPUS, "tensor": 8, "pipeline": 4, "data": 8},
    "batch": {"micro_batch_size": 1, "gradient_accumulation_steps": BATCH // 8, "global_batch_size": BATCH, "sequence_length": SEQUENCE},
    "training": {"iterations": NUM, "log_interval": 1},
}  # fmt: skip
"""run.json of the honest run."""


def run_folder(folder: Path, made: Made) -> Path:
    """Write a finished run of ours with this log."""
    return write_run(folder, run=RUN_OF_OURS, log=ours(made))


FORMS: tuple[Form, ...] = (megatron, stamped, bare, jupiter, ours, torchtitan, maxtext)
