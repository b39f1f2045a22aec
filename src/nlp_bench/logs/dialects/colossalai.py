"""Colossal-AI: the sums that its benchmarks print, and the steps of its Gemini examples."""

from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.pattern import At, Pattern, PatternParser, Values, late
from nlp_bench.logs.quantity import number
from nlp_bench.logs.scan import Line

_SUMS = late(
    rb"\bnum_samples: (\d{1,18}), dp_world_size: (\d{1,9}), flop_megatron: [^,\r\n]{1,60}, flop: [^,\r\n]{1,60}, avg_duration: ([\d.eE+-]{1,40}),? ?"
)


class _Parser(PatternParser):
    """Counts the reports of an evaluator, which are not numbered; its sums are cumulative."""

    def __init__(self, form: Pattern) -> None:
        super().__init__(form)
        self.sums: dict[str, float] = {}
        self.num_reports = 0

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        sums = _SUMS.search(text)
        if sums and sums[0].count(b"dp_world_size") == 1:  # else the halves of two lines
            samples, replicas, duration = (number(part) for part in sums.groups())
            if samples and replicas and duration:
                self.sums = {"consumed_samples": samples * replicas, "clock_s": duration}
        super().text(text, line, findings)

    def values(self, values: Values, _at: At) -> Values:
        if "elapsed_s" in values:
            return values
        self.num_reports += 1
        values = {**values, **self.sums, "iteration": float(self.num_reports)}
        self.sums = {}
        return values

    def finish(self, findings: Findings) -> None:
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
        parser=Pattern(
            record=(
                rb"\[<iteration>/<total_iterations>\] Loss: ?<lm_loss>, Step time: <elapsed_s>s, TFLOPS: ",
                (
                    rb"\bThroughput: <samples_per_second> samples/sec ?, "
                    rb"(?:tokens_per_second_per_device: <tokens_per_second_per_device> ?, )?TFLOPS per GPU"
                ),
            ),
            reads_each_line=False,
            reading=_Parser,
        ),
        counts_from=0,  # the evaluator leaves out the first steps itself
    ),
)
