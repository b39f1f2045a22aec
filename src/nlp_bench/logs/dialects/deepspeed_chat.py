"""DeepSpeed-Chat's step 3: generation and training in one latency, which is no training throughput."""

import re

from nlp_bench.logs.clean import label_of
from nlp_bench.logs.dialect import Dialect, Parser
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.quantity import number
from nlp_bench.logs.scan import Line

_LATENCY = re.compile(rb"(?:\|E2E latency=|End-to-End => Latency: {1,8})([\d.]{1,20}) ?s")


class _Parser(Parser):
    """Counts the latencies, so that the log is known for what it is, and refuses them."""

    def __init__(self) -> None:
        self.num_steps = 0

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        """Read the latency of a step."""
        found = _LATENCY.search(text)
        if found:
            self.num_steps += 1
            values = {"iteration": float(self.num_steps), "elapsed_s": number(found[1]) or 0.0}
            findings.record(line, values, label=label_of(text[: found.start()]))
            findings.refuse(
                "RLHF: generation and training share one latency and have no single sequence length (no --sequence-length "
                "describes them): not a training throughput"
            )


DIALECTS = (
    Dialect(
        name="deepspeed-chat-rlhf",
        title="DeepSpeed-Chat, step 3 (PPO)",
        source="deepspeedai/DeepSpeedExamples applications/DeepSpeed-Chat/training/step3_rlhf_finetuning/main.py",
        example="|E2E latency=3.80s |Gather latency=0.00s (0.00%) |Generate time=2.50s (65.79%) |Training time=1.08s (28.42%) "
        "|Others=0.22 (5.79%)|CurSamplesPerSec=16.84 |AvgSamplesPerSec=15.90",
        trap="a latency of generation and training together; refused",
        needles=(b"|E2E latency=", b"End-to-End => Latency"),
        parser=_Parser,
    ),
)
