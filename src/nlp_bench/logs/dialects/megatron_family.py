"""The names of the programs that print Megatron-LM's line with words of their own; `megatron` reads them all."""

from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.scan import Line


class _Silent:
    """Reads nothing: the parser of `megatron-lm` reads for all of them and tells the name at the end."""

    def take(self, line: Line, findings: Findings) -> None:
        """Pass the line over."""

    def finish(self, findings: Findings) -> None:
        """Say nothing."""


def _named(name: str, title: str, source: str, example: str, trap: str) -> Dialect:
    """Return a dialect that the family's parser reads: it has no words of its own to look for."""
    return Dialect(name=name, title=title, source=source, example=example, trap=trap, needles=(), parser=_Silent)


DIALECTS = (
    _named(
        "gpt-neox",
        "GPT-NeoX",
        "EleutherAI/gpt-neox megatron/logging.py",
        " samples/sec: 50.000 | iteration      100/  320000 | elapsed time per iteration (ms): 5120.0 | learning rate: 6.000E-06 | "
        "approx flops per GPU: 68.3TFLOPS | lm_loss: 8.123456E+00 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |",
        "the batch is samples/sec x time; the rate stands before the number of its iteration",
    ),
    _named(
        "primus",
        "Primus (AMD) with its Megatron back end",
        "AMD-AGI/Primus primus/backends/megatron/patches/training_log/print_rank_last_patches.py",
        "[20260101 10:00:00][rank-7/8][INFO ] [--------trainer.py:2560] :  iteration      100/    5000 | "
        "consumed samples:        12800 | elapsed time per iteration (ms): 4000.0/4100.0 | "
        "throughput per GPU (TFLOP/s/GPU): 500.0/490.0 | tokens per GPU (tokens/s/GPU): 32768.0/32000.0 | "
        "learning rate: 1.000000E-05 | global batch size:   128 | lm loss: 2.000000E+00 | loss scale: 1.0 | "
        "grad norm: 1.000 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        "two numbers in a field: the current one, then a running mean; tokens/s are of one device",
    ),
    _named(
        "modellink",
        "ModelLink and AscendSpeed (Ascend) in the versions that print `gloabl batch size`",
        "Ascend/AscendSpeed megatron/training.py and its README",
        " iteration  11/50000 | consumed samples: 5632 | consumed tokens:  11534336 | elapsed time per iteration (ms):  "
        "50000.0 | learning rate:    1.500E-05 | gloabl batch size:  512 | lm loss:  1.300000E+01 | loss scale:  65536.0 | "
        "grad norm:    450.0 | actual seqlen:  2048 | number of skipped iterations: 0 | number of nan iterations:   0 | "
        "samples per second: 10.240 | TFLOPs: 160.00 |",
        "the batch stands under a misspelt name",
    ),
    _named(
        "sat",
        "SwissArmyTransformer",
        "THUDM/SwissArmyTransformer sat/training/deepspeed_training.py (`report_iteration_metrics`)",
        " iteration      100/    6000 | elapsed time per iteration (ms): 1000.0 | learning rate 1.000E-05 | "
        "total loss 2.000000E+00 | loss 2.000000E+00 | loss scale 65536.0 |speed 240.00 samples/(min*GPU)",
        "the rate is of one device and per minute; most names have no colon",
    ),
    _named(
        "megatron-deepspeed",
        "Megatron-DeepSpeed (BigScience, Microsoft, ALCF, Habana), Megatron-LM under DeepSpeed",
        "deepspeedai/Megatron-DeepSpeed and argonne-lcf/Megatron-DeepSpeed megatron/training.py",
        " iteration       10/   1000 | consumed samples:        15360 | consumed tokens:     31457280 | "
        "elapsed time per iteration (ms): 345000.0 | learning rate: 6.000E-06 | global batch size:  1536 | "
        "lm loss: 1.100000E+01 | loss scale: 1.0 | grad norm: 1.000 | actual seqlen:  2048 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 4.452 | "
        "tokens per gpu per second (tgs): 142.470 | TFLOPs: 153.30 |",
        "steps that DeepSpeed skips are not counted as skipped; early versions print samples per second too small by 1000",
    ),
)
