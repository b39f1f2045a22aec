"""AWS Neuron: the examples of neuronx-distributed, whose throughput is a mean of the last ten steps."""

import re

from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.forms import Pattern

_NUMBER = rb"[-+\d.eE]{1,40}|nan|inf"
# The arguments are printed as one line `args Namespace(..., seq_len=4096, ...)`.
_FACTS = (re.compile(rb"[(\s]seq_len=(?P<sequence_length>\d{1,9})[,)]"),)

DIALECTS = (
    Dialect(
        name="neuronx-distributed",
        title="AWS Neuron, neuronx-distributed examples",
        source="aws-neuron/neuronx-distributed examples/training/llama (tp_zero1 and tp_pp: logger.py, training_utils.py)",
        example="LOG Thu Jan  1 10:00:00 2026 - (0, 200) step_loss : 7.1250 learning_rate : 3.00e-05 "
        "throughput : 16.00 seq/s grad-norm : 1.53125",
        trap="throughput is sequences of the machine, a mean of ten steps: the first ones hold the compilation",
        needles=(b" step_loss : ", b"s throughput ", b"Namespace("),
        parser=Pattern(
            record=re.compile(
                rb"(?:\bLOG [^\r\n]{10,60}? - \(\d{1,9}, (?P<iteration>\d{1,18})\) step_loss : (?P<lm_loss>"
                + _NUMBER
                + rb") learning_rate : [-+\d.eE]{1,40} throughput : (?P<samples_per_second>"
                + _NUMBER
                + rb")(?=\s|$))"
            ),
            facts=_FACTS,
        ),
    ),
    Dialect(
        name="neuronx-distributed-pipeline",
        title="AWS Neuron, neuronx-distributed examples with pipeline parallelism",
        source="aws-neuron/neuronx-distributed examples/training/llama/tp_pp_llama_hf_pretrain/logger.py",
        example="step 12 step_time 16.5s throughput 64.25 seq/s loss 8.125 grad norm 2.5",
        trap="throughput is a mean of ten steps, step_time of one, and lazy execution makes single ones swing",
        needles=(b"s throughput ", b"Namespace("),
        parser=Pattern(
            record=re.compile(
                rb"\bstep (?P<iteration>\d{1,18}) step_time (?P<elapsed_s>" + _NUMBER + rb")s throughput "
                rb"(?P<samples_per_second>"
                + _NUMBER
                + rb") seq/s (?:step )?loss (?P<lm_loss>"
                + _NUMBER
                + rb")(?=\s|$)"
            ),
            facts=_FACTS,
        ),
    ),
)
