"""Hugging Face Trainer, and the programs built on it: one parser reads them all and renames what it finds."""

from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.scan import Line
from nlp_bench.logs.trainer import LLAMA_FACTORY, NEEDLES, SWIFT, Trainer


class _Silent:
    """Stands for a program whose lines the Trainer's parser reads."""

    def take(self, line: Line, findings: Findings) -> None:
        """Nothing is left to read."""

    def finish(self, findings: Findings) -> None:
        """Nothing is left to the end."""


DIALECTS = (
    Dialect(
        name="hf-trainer",
        title="Hugging Face Trainer, TRL, Axolotl, unsloth, optimum-habana",
        source="huggingface/transformers src/transformers/trainer.py, trainer_callback.py, trainer_utils.py",
        example="{'loss': 2.5, 'learning_rate': 5e-05, 'epoch': 0.1, 'num_input_tokens_seen': 819200, 'train_runtime': 100.0, "
        "'train_tokens_per_second': 8192.0}",
        trap="train_tokens_per_second is the mean since the start in the dict of a step, and another quantity in the summary; "
        "dicts have no step number",
        needles=NEEDLES,
        parser=Trainer,
        yields_to=("paddlenlp",),
    ),
    Dialect(
        name=LLAMA_FACTORY,
        title="LLaMA-Factory",
        source="hiyouga/LLaMA-Factory src/llamafactory/train/callbacks.py",
        example='{"current_steps": 10, "total_steps": 100, "loss": 2.5, "lr": 5e-05, "epoch": 0.1, "percentage": 10.0, '
        '"elapsed_time": "0:01:40", "remaining_time": "0:15:00", "throughput": 8192.0, "total_tokens": 819200}',
        trap="each step is printed twice, and throughput is the mean since the start",
        needles=(),
        parser=_Silent,
    ),
    Dialect(
        name=SWIFT,
        title="ms-swift, also with Megatron",
        source="modelscope/ms-swift swift/trainers/callback.py, swift/trainers/mixin.py",
        example="{'loss': 1.5, 'token_acc': 0.6, 'learning_rate': 0.0001, 'memory(GiB)': 20.5, 'train_speed(iter/s)': 0.25, "
        "'epoch': 0.1, 'global_step/max_steps': '10/100', 'percentage': '10.00%', 'elapsed_time': '40s', 'remaining_time': '6m 0s'}",
        trap="train_speed is steps per second (or its inverse) as the mean since the start, which a resumed run has wrong",
        needles=(),
        parser=_Silent,
    ),
)
