"""Colossal-AI: what its benchmarks sum up, and the steps of its Gemini examples."""

import re

from nlp_bench.logs.clean import pieces
from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.forms import quantities
from nlp_bench.logs.quantity import number
from nlp_bench.logs.scan import Line

_STEP = re.compile(
    rb"\[(?P<iteration>\d{1,18})/(?P<total_iterations>\d{1,18})\] Loss: ?(?P<lm_loss>[-+\d.eE]{1,40}|nan|inf), "
    rb"Step time: (?P<elapsed_s>[\d.]{1,30})s, TFLOPS: "
)
_SUMS = re.compile(
    rb"\bnum_samples: (\d{1,18}), dp_world_size: (\d{1,9}), flop_megatron: [^,\r\n]{1,60}, flop: [^,\r\n]{1,60}, avg_duration: ([\d.eE+-]{1,40}),? ?"
)
_RATE = re.compile(
    rb"\bThroughput: (?P<samples_per_second>[\d.]{1,30}) samples/sec ?, "
    rb"(?:tokens_per_second_per_device: (?P<tokens_per_second_per_device>[\d.]{1,30}) ?, )?TFLOPS per GPU"
)


class _Parser:
    """The sums of an evaluator grow with each of its reports, which are counted here: they have no number."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.num_reports = 0

    def take(self, line: Line, findings: Findings) -> None:
        """Read a step, the sums so far, or the rate that follows them."""
        for text in pieces(line.text):
            sums = _SUMS.search(text)
            if sums and sums[0].count(b"dp_world_size") == 1:  # else the halves of two lines
                samples, replicas, duration = (number(part) for part in sums.groups())
                if samples and replicas and duration:
                    self.sums = {"consumed_samples": samples * replicas, "clock_s": duration}
            for found in _STEP.finditer(text):
                values, is_whole = quantities(found)
                findings.record(line, values, is_whole=is_whole)
            for found in _RATE.finditer(text):
                values, is_whole = quantities(found)
                self.num_reports += 1
                values = {**values, **self.sums, "iteration": float(self.num_reports)}
                self.sums = {}
                findings.record(line, values, is_whole=is_whole)

    def finish(self, findings: Findings) -> None:
        """Say what a single report is."""
        if self.num_reports == 1:
            findings.remark("the rate is the mean of the measured steps of the whole run")


DIALECTS = (
    Dialect(
        name="colossalai",
        title="Colossal-AI benchmarks and Gemini examples",
        source="hpcaitech/ColossalAI examples/language/performance_evaluator.py, examples/language/gpt/gemini/train_gpt_demo.py",
        example="Throughput: 40.00 samples/sec, TFLOPS per GPU by Megatron: 200.00, TFLOPS per GPU: 190.00",
        trap="Throughput is samples of the machine; the length of a sample is never printed",
        needles=(b", Step time: ", b", dp_world_size: ", b"TFLOPS per GPU"),
        parser=_Parser,
        counts_from=0,  # the evaluator leaves out the first steps itself
    ),
)
