"""Trainers on JAX: MaxText, T5X and others that log through CLU, PaxML, AXLearn, EasyLM, Levanter, kithara."""

import math

from nlp_bench.logs.clean import label_of, unwrapped
from nlp_bench.logs.dialect import PAIRS, Dialect, Findings, Parser
from nlp_bench.logs.pattern import At, Lines, Match, Pattern, PatternParser, Values, late
from nlp_bench.logs.quantity import Bracket, bounds, number, numbers
from nlp_bench.logs.scan import Line

_SPEED = rb"(?:<iterations_per_second>it/s|<elapsed_s>s/it)"


class _Clu(PatternParser):
    """Reads `[step] name=value, name=value`; collections other than train are evaluations."""

    _other = late(rb"\bcollection=|\] \[\d{1,12}\] |\.py:\d")
    is_named = False

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        self.is_named |= b"] collection=" in text
        super().text(text, line, findings)

    def values(self, values: Values, at: At) -> Values | None:
        # After the head of an evaluation, or of any other line, the numbers are not those of the record. A program that prints
        # the collection prints it on every line: where it is missing, it was lost.
        is_other = self._other.search(at.found.string, at.found.end()) or (self.is_named and not at.found["named"])
        if is_other or not at.line.is_ended:
            return None
        if "tokens_per_second" in values:
            at.findings.remark("target tokens alone are counted, padding included; the tokens of the encoder are not")
        return values


_STEP = late(rb"completed step: (\d{1,12}), seconds: (\d+(?:\.\d+)?)(?=,|\s|$)")
_END = late(rb", (?:loss|Tokens/s/chip): ")  # two old versions end with the rate of the chip
_KEYS = {
    b"Tokens/s/device": "tokens_per_second_per_device",
    b"TFLOP/s/device": "model_tflops",
    b"loss": "lm_loss",
    b"grad_norm": "grad_norm",
}
_NEVER_LAST = (b"TFLOP/s/device", b"TFLOP/s", b"Tokens/s/device", b"total_weights")
"""Fields that are never the last in any version: a line that ends with one was cut."""
_FACTS = {
    "global_batch_size": late(rb"Config param global_batch_size_to_train_on: (\d+)\s*$"),
    "sequence_length": late(rb"Config param max_target_length: (\d+)\s*$"),
    "num_devices": late(rb"\bNum_devices: (\d+), shape"),
}
_QUANTIZATION = late(rb"Config param quantization: \S{0,40}?(int8|fp8|fp4)")
_OTHER_FIELD = (b"Frames/s", b"Images/s", b"Videos/s", b"Pixels/s", b"Patches/s")  # AI-Hypercomputer/maxdiffusion
_PADDED = "Tokens/s/device and the batch count padding; total_weights, the real tokens, are fewer"
_LITTLE = 0.005  # share of padding for which the number is not doubted


class _MaxText(Parser):
    """Collects the facts until the kind of training is known.

    `Tokens/s/device` counts padding; `total_weights` are the real tokens of all devices. Without padding the number of devices is
    their quotient; otherwise only the log or the command line can state it.
    """

    reads_each_line = True

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._facts: dict[tuple[str, float], Line] = {}
        self._last: Line | None = None
        self._devices = Bracket()
        self._weights: set[float] = set()
        self._sums = (0.0, 0.0, 0)  # real tokens, those that one device counts, steps
        self._is_preference = False

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        """Read records and facts; a training may restart within one log, by itself or resumed by hand."""
        stated = [(name, float(fact[1])) for name, expression in _FACTS.items() if (fact := expression.search(text))]
        # The program states its sizes before its first step only.
        if b"Elastic attempt " in text or (stated and self._last):
            self.finish(findings)
            self._begin()
            findings.start(line)
        for each in stated:
            self._facts.setdefault(each, line)
        if quantized := _QUANTIZATION.search(text):
            findings.fact("precision", quantized[1].decode(), line)
        text = unwrapped(line, text, b"completed step: ", _END)
        if step := _STEP.search(text):
            self._record(text, step, line, findings)

    def _record(self, text: bytes, step: Match, line: Line, findings: Findings) -> None:
        fields = dict(piece.strip().partition(b": ")[::2] for piece in text[step.end() :].split(b","))
        is_cut = not line.is_ended
        if fields and (is_cut or next(reversed(fields)) in _NEVER_LAST):
            fields.popitem()  # its number may be cut
        if strange := next((key for key in fields if key.startswith(_OTHER_FIELD)), None):
            name = strange.decode()
            findings.refuse(
                f"no language model is trained: line {line.number} counts {name}, so that its tokens are patches of images or video"
            )
        values = {"iteration": float(step[1])}
        if not (is_cut and step.end() == len(text)):
            values["elapsed_s"] = float(step[2])
        values |= numbers((name, fields.get(key)) for key, name in _KEYS.items())
        self._is_preference |= b"reward_accuracy" in fields or b"dpo_loss" in fields
        self._last = line
        self._weigh(step[2], fields)
        findings.record(line, values, label=label_of(text[: step.start()]), is_whole=not is_cut)

    def _weigh(self, seconds: bytes, fields: dict[bytes, bytes]) -> None:
        weights, rate, time = number(fields.get(b"total_weights", b"")), fields.get(b"Tokens/s/device"), bounds(seconds)
        per_second = bounds(rate) if rate else None
        if not (weights and per_second and time):
            return
        real, counted, steps = self._sums
        self._sums = real + weights, counted + sum(per_second) / 2 * sum(time) / 2, steps + 1
        if len(self._weights) < 2:  # two show that they differ
            self._weights.add(weights)
        self._devices.ratio((weights, weights), (per_second[0] * time[0], per_second[1] * time[1]))

    def finish(self, findings: Findings) -> None:
        if self._is_preference:
            findings.doubt(PAIRS)
            return
        for (name, value), line in self._facts.items():
            findings.fact(name, value, line)
        sizes = [findings.known(name) for name in ("global_batch_size", "sequence_length")]
        whole = sizes[0] * sizes[1] if sizes[0] and sizes[1] else 0.0
        if len(self._weights) > 1 or any(weights < whole for weights in self._weights):
            real, counted, steps = self._sums
            padded = whole or counted / steps * (findings.known("num_devices") or math.inf)
            say = findings.remark if real / steps >= (1 - _LITTLE) * padded else findings.doubt
            say(f"{_PADDED}: {real / steps:.0f} a step, where each device counts {counted / steps:.0f}")
        if not (self._last and len(self._weights) == 1):
            return
        (weights,), devices = self._weights, self._devices.whole
        if devices and weights % devices == 0:  # each device has an integer share
            findings.fact("num_devices", devices, self._last)
            findings.fact("tokens", weights, self._last)


DIALECTS = (
    Dialect(
        name="axlearn",
        title="AXLearn",
        source="apple/axlearn axlearn/common/trainer.py",
        example="I0101 10:00:00.000000 140 trainer.py:450] trainer process   0 step      100] Average step time: 1.25 seconds",
        trap="the mean of 100 steps; neither tokens nor batch are in the log",
        needles=(b"Average step time: ",),
        parser=Pattern(
            record=(
                rb"process +\d{1,6} step +<iteration>\] Average step time: (?P<elapsed_s>[\d.]+(?:e-\d+)?) seconds",
            )
        ),
    ),
    Dialect(
        name="easylm",
        title="EasyLM",
        source="young-geng/EasyLM EasyLM/models/llama/llama_train.py",
        example="{'accuracy': 0.1,\n 'gradient_norm': 1.2,\n 'loss': 9.1,\n 'param_norm': 300.0,\n 'step': 1200}\n"
        " 12% 1200/10000 [10:00<1:13:20, 2.00it/s]",
        trap="neither tokens nor batch are in the log, only steps per second",
        needles=(b"'gradient_norm'", b"'param_norm'", b"it/s]", b"s/it]"),
        parser=Pattern(
            # A bar without graphics does not identify the program by itself.
            seen=(rb"'gradient_norm'", rb"'param_norm'"),
            record=(rb"(?<![\w.])\d{1,3}% <iteration>/<total_iterations> \[[\d:]+<[\d:?]+,\s*" + _SPEED + rb"\]",),
            is_redrawn=True,
            reads_each_line=False,
        ),
    ),
    Dialect(
        name="kithara",
        title="kithara",
        source="AI-Hypercomputer/kithara kithara/trainer/trainer.py",
        example="Step 10 took 2.000s\nTokens/s/device: 2048.00",
        trap="three lines a step, the rate is of one device",
        needles=(b" took ", b"Tokens/s/device: "),
        parser=Lines(
            head=rb"(?<!\w)Step <iteration> took (?P<elapsed_s>\d+\.\d+)s\s*$",
            pair=rb"(?P<key>Tokens/s/device): (?P<value>[\d.]+)\s*$",
            keys={b"Tokens/s/device": "tokens_per_second_per_device"},
        ),
    ),
    Dialect(
        name="levanter",
        title="Levanter, Marin",
        source="stanford-crfm/levanter src/levanter/callbacks/_metrics.py, src/levanter/tracker/json_logger.py",
        example="Progress on:train 1.20kit/10.0kit rate:2.0it/s remaining:1:13:20 elapsed:10:00 postfix:loss=3.21",
        trap="rate flips between it/s and s/it; counts have three digits; the line stands before anything ran, too",
        needles=(b"Progress on:train", b'"throughput/tokens_per_second"'),
        parser=Pattern(
            record=rb'\{(?="[^\r\n]{0,4000}"throughput/tokens_per_second")(?P<fields>[^\r\n]{0,4000}"step": <iteration>[,}][^\r\n]{0,4000})',
            # Rounded to three digits the count may stay the same for many steps.
            otherwise=rb"Progress on:train (?P<iteration>[\d.]+[kKMG]?)it/[\d.]+[kKMG]?it rate:"
            + _SPEED
            + rb"(?: [^\r\n]{0,200}?postfix:[^\r\n]{0,80}?loss=(?P<lm_loss>[-+\d.einfa]+))?",
            fields=(
                rb'"throughput/tokens_per_second": (?P<tokens_per_second>[-+\d.eE]+)[,}]',
                rb'"throughput/duration": (?P<elapsed_s>[-+\d.eE]+)[,}]',
                rb'"train/loss": (?P<lm_loss>[-+\w.]+)[,}]',
            ),
            is_redrawn=True,
            reads_each_line=False,
        ),
    ),
    Dialect(
        name="paxml",
        title="PaxML",
        source="google/paxml paxml/programs.py",
        example="I0101 10:00:00.000000 140737350317184 programs.py:366] [PAX STATUS]: train_step() took 7.470000 seconds.",
        trap="neither the step nor the batch is on the line",
        needles=(b"[PAX STATUS]: train_step() took ", b"[PAX STATUS]: Starting training loop"),
        parser=Pattern(
            record=rb"\[PAX STATUS\]: train_step\(\) took (?P<elapsed_s>\d+\.\d+) seconds\.",
            start=rb"\[PAX STATUS\]: Starting training loop",
            is_numbered=False,
        ),
    ),
    Dialect(
        name="t5x",
        title="T5X, Flax examples and others through CLU",
        source="google-research/t5x t5x/models.py; google/CommonLoopUtils clu/metric_writers/logging_writer.py",
        example="I0101 10:00:00.000000 140 logging_writer.py:48] [500] collection=train loss=3.1, timing/seconds=50.0, "
        "timing/seqs=6400, timing/seqs_per_second=128.0, timing/steps_per_second=10.0, "
        "timing/target_tokens_per_second=16384.0, timing/target_tokens_per_second_per_core=2048.0",
        trap="rates are of all devices and per core on the same line; only target tokens are counted",
        needles=(b"steps_per_sec",),
        parser=Pattern(
            record=rb"\[<iteration>\] (?P<named>collection=train )?(?!collection=)(?=[\w/ ]{1,200}=)(?=[^\r\n]*(?:seqs|steps)_per_sec)",
            fields=tuple(
                rb"(?<![\w/])(?:timing/)?%b=(?P<%b>[-+\d.eE]+)(?=,|\s|$)" % (key, name)
                for key, name in (
                    (b"target_tokens_per_second", b"tokens_per_second"),
                    (b"target_tokens_per_second_per_core", b"tokens_per_second_per_device"),
                    (b"seqs_per_second", b"samples_per_second"),
                    (b"steps_per_sec(?:ond)?", b"iterations_per_second"),
                    (b"loss", b"lm_loss"),
                )
            ),
            reads_each_line=False,
            reading=_Clu,
        ),
    ),
    Dialect(
        name="maxtext",
        title="MaxText and its forks",
        source="AI-Hypercomputer/maxtext src/maxtext/common/metric_logger.py",
        example="completed step: 7, seconds: 4.000, TFLOP/s/device: 100.000, Tokens/s/device: 2048.000, total_weights: 32768, "
        "loss: 9.123",
        trap="the rate is of one device and counts padding, total_weights are the real tokens of all; the first step or two may "
        "state the time of the dispatch alone",
        needles=(
            b"completed step: ",
            b"Elastic attempt ",
            b"global_batch_size_to_train_on: ",
            b"max_target_length: ",
            b"Num_devices: ",
            b"Config param quantization: ",
        ),
        parser=_MaxText,
    ),
)
