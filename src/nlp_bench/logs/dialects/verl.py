"""verl's console: `step:N - name:value - name:value`; its reinforcement learning and NeMo-RL's, which are refused."""

from nlp_bench.logs.dialect import REINFORCED, Dialect
from nlp_bench.logs.pattern import Pattern

DIALECTS = (
    Dialect(
        name="verl",
        title="verl's supervised fine-tuning",
        source="verl-project/verl verl/utils/logger/aggregate_logger.py, verl/trainer/sft_trainer.py",
        example="step:2 - train/loss:2.8 - train/global_tokens:40000 - train/time(s):1.0",
        trap="global_tokens are those of one step of all ranks, padding left out; a reinforcement"
        " learning prints the same form, and is refused",
        needles=(b" - train/",),
        parser=Pattern(
            record=rb"(?<![\w/])step:<iteration> -(?= )",
            pairs=(
                rb" (?P<key>train/[\w()]{1,40}):(?P<value>[-+\w.]{1,40})",
                {
                    b"train/loss": "lm_loss",
                    b"train/grad_norm": "grad_norm",
                    b"train/lr": "learning_rate",
                    b"train/global_tokens": "tokens",
                    b"train/time(s)": "elapsed_s",
                },
            ),
        ),
        tokens_vary=True,
    ),
    Dialect(
        name="reinforcement",
        title="reinforcement learning by verl or NeMo-RL (GRPO and others), which is refused",
        source="verl-project/verl verl/trainer/ppo/metric_utils.py, NVIDIA-NeMo/RL nemo_rl/algorithms/grpo.py",
        example="  • Mean Generation Length: 512.0000",
        trap="its tokens per second are of generation and training together",
        needles=(b"Mean Generation Length: ", b" - actor/", b" - critic/", b" - timing_s/gen"),
        parser=Pattern(
            record=rb"Mean Generation Length: <iteration>|step:\d{1,15} - .*?\b(?:actor|critic|timing_s/gen)",
            refusal=REINFORCED,
        ),
    ),
)
