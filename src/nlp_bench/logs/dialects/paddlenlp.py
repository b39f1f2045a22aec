"""PaddleNLP, PaddleFormers and PaddleFleetX: `key: value` pairs; what a rate counts depends on its name and unit."""

from nlp_bench.logs.dialect import Dialect, Findings
from nlp_bench.logs.pattern import At, Pattern, PatternParser, Values, late
from nlp_bench.logs.quantity import duration_s, number
from nlp_bench.logs.scan import Line, slim

_WORLD = late(rb"- world_size\s{0,60}: (\d{1,9})\s*$")
_SUMMARY = late(rb"\b(train_(?:runtime|samples_per_second|steps_per_second))\s{0,60}= {0,20}([\d.:]{1,30})\s*$")
_IPS = late(rb"^(?:.{0,120}\s)?ips: ([\d.]{1,30}) tokens/s\s*$")
_TOLERANCE = 0.01
_N = rb"[-+\d.eE]{1,40}"


class _Paddle(PatternParser):
    """Three formats: the Trainer's intervals, the older scripts' batch costs, and the summary at the end."""

    def __init__(self, form: Pattern) -> None:
        super().__init__(form)
        self.summary: dict[bytes, float] = {}
        self.average: tuple[Line, float] | None = None
        self.num_before = 0  # records before this start of the program

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        super().text(text, line, findings)
        self._once(line, text, findings)

    def values(self, values: Values, at: At) -> Values:
        """Divide the runtime of the interval by its steps, whose number follows from their rate."""
        runtime, elapsed = number(at.found.groupdict().get("runtime") or b""), values.get("elapsed_s", 0.0)
        if runtime and elapsed > 0:
            steps = round(runtime / elapsed)
            # Where the quotient is a whole number the runtime has more digits than the rate.
            if abs(runtime / elapsed - steps) < _TOLERANCE * steps:
                values["elapsed_s"] = runtime / steps
        return values

    def _once(self, line: Line, text: bytes, findings: Findings) -> None:
        world, is_single = _WORLD.search(text), b"for single card environment" in text
        is_head = world or b"***** Running training" in text  # of a single card a warning speaks at any time
        if is_head and findings.num_records > self.num_before:  # resumed in the same file
            findings.start(line)
            self.num_before = findings.num_records
        if world:
            findings.fact("num_devices", float(world[1]), line)
        if is_single:
            findings.fact("num_devices", 1.0, line)
        summary = _SUMMARY.search(text)
        value = (number(summary[2]) or duration_s(summary[2])) if summary else None
        if summary and value:
            self.summary[summary[1]] = value
        ips = _IPS.search(text)
        rate = number(ips[1]) if ips else None
        if rate and not self.average:
            self.average = (slim(line), rate)
            # The summary states the same run in samples and in tokens.
            samples = self.summary.get(b"train_samples_per_second")
            length = rate / samples if samples else 0.0
            if length >= 1 and abs(length / round(length) - 1) < _TOLERANCE / 10:
                findings.fact("sequence_length", float(round(length)), line)

    def finish(self, findings: Findings) -> None:
        """Use the average of the whole run where there is no step."""
        if not self.average or findings.num_records:
            return
        line, rate = self.average
        steps = self.summary.get(b"train_runtime", 0.0) * self.summary.get(b"train_steps_per_second", 0.0)
        values = {"tokens_per_second": rate, **({"iteration": float(round(steps))} if steps >= 1 else {})}
        findings.record(line, values)
        findings.remark("the rate is the average of the whole run, start-up and checkpoints included")


_NEEDLES = (
    b"interval_runtime", b"ips: ", b"for single card environment", b"- world_size", b"train_samples_per_second",
    b"train_steps_per_second", b"train_runtime", b"***** Running training",
)  # fmt: skip


DIALECTS = (
    Dialect(
        name="paddlenlp",
        title="PaddleNLP, PaddleFormers, PaddleFleetX",
        source="PaddlePaddle/PaddleNLP paddlenlp/trainer/trainer.py and trainer_utils.py (speed_metrics); "
        "examples/language_model/gpt-3/dygraph/run_pretrain.py",
        example="[2026-01-01 10:00:00,000] [    INFO] - loss: 7.25, learning_rate: 1e-05, global_step: 20, "
        "interval_runtime: 5.0, interval_samples_per_second: 16.0, interval_tokens_per_second_per_device: 4096.0, "
        "interval_steps_per_second: 2.0, progress_or_epoch: 0.01",
        trap="interval_runtime is of all steps of the interval; samples are of the machine, tokens of one device",
        needles=_NEEDLES,
        parser=Pattern(
            record=(
                rb"global step:? <iteration>(?: / <total_iterations>)?(?=[,\s][^\r\n]*\bips)",
                rb"\bbatch: \[<iteration>/<total_iterations>\](?=[^\r\n]*\bips)",
                rb"(?P<fields>(?<![a-z_])loss: [^\r\n]*?\bglobal_step: <iteration>,[^\r\n]*?\binterval_runtime: (?P<runtime>%b),[^\r\n]*)"
                % _N,
            ),
            fields=tuple(
                field % _N
                for field in (
                    rb"(?<![a-z_])loss: (?P<lm_loss>%b|nan|inf),",
                    rb"\bavg_batch_cost: (?P<elapsed_s>%b) sec",
                    rb"(?<![a-z])speed: (?P<iterations_per_second>%b) step",
                    rb"\binterval_steps_per_second: (?P<iterations_per_second>%b),",
                    rb"\binterval_samples_per_second: (?P<samples_per_second>%b),",
                    rb"\binterval_tokens_per_second_per_device: (?P<tokens_per_second_per_device>%b),",
                    # Next to ips_total, which is of the machine, ips is of one device; alone in tokens it is of the machine.
                    rb"\bips_total: (?P<tokens_per_second>%b) tokens/s",
                    rb"^(?![^\r\n]*_total: )[^\r\n]*?\bips: (?P<tokens_per_second>%b) tokens/s",
                    rb"_total: [^\r\n]*\bips: (?P<tokens_per_second_per_device>%b) tokens/s",
                    rb"\bips: (?P<samples_per_second_per_device>%b) (?:sequence|sample)s?/s",
                    rb"\bips: (?P<tokens_per_second_per_device>%b) words/s",
                )
            ),
            skip=rb"\[(?:eval|test)\]|\beval step\b|\bstep \d+, eval\b",
            reads_each_line=False,
            reading=_Paddle,
        ),
    ),
)
