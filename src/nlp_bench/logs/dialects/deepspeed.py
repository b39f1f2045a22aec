"""DeepSpeed's own messages: its throughput timer, its pipeline engine, DeepSpeed-Chat.

Several lines may be of the same step; in this order of preference: the pipeline engine, the timer, the chat line, the time stamps of
`[Rank 0] step=`.
"""

from itertools import pairwise
from math import isfinite
from typing import NamedTuple

import numpy as np

from nlp_bench.logs.clean import label_of, stamp_s
from nlp_bench.logs.dialect import Dialect, Findings
from nlp_bench.logs.pattern import Pattern, PatternParser, late
from nlp_bench.logs.quantity import number
from nlp_bench.logs.scan import Line, slim

_N = rb"[-+\d.eEnaif]{1,32}"
_TIMER = late(
    rb"(?:global_step=|\d/)(\d{1,18}), (?:RunningAvg)?SamplesPerSec=(%b)(?:, CurrSamplesPerSec=(%b))?(?=[,\s]|$)"
    % (_N, _N)
)
_PIPE = (
    rb"\bsteps?: {0,8}<iteration>(?: / {0,8}<total_iterations>)? loss: {0,8}(?P<lm_loss>%b).{0,200}? "
    rb"iter time \(s\): {0,8}(?P<elapsed_s>%b) samples/sec: {0,8}(?P<samples_per_second>%b)" % (_N, _N, _N)
)
_CHAT = late(
    rb"Model Parameters: .{1,40}?, Latency: (?P<latency>[\d.]{1,20})s, .{1,60}?Samples/sec: (?P<rate>[\d.]{1,20}), .{1,40}?"
    rb"Batch Size: (?P<batch>\d{1,9}), Sequence Length: (?P<sequence>\d{1,9})(?=[,\s]|$)"
)
# Matched from the time stamp on, so that time and step are of the same line.
_STEP = late(rb"\d\] \[[A-Z]{1,9}\] \[[\w.]{1,40}:\d{1,6}:log_dist\] \[Rank 0\] step=(\d{1,18}), skipped=")
_FACTS = (
    rb"\btrain_batch_size \.{3,40} <global_batch_size>\s*$",
    rb"--(?:max_seq_len|seq[_-]length)[= ]<sequence_length>(?!\d)",
)
_MICRO = late(
    rb"--(per_device_train_batch_size|micro[_-]batch[_-]size|gradient[_-]accumulation[_-]steps)[= ](\d{1,9})(?!\d)"
)
# Programs that run on DeepSpeed and log more; not "unknown", which would read the same lines.
_BETTER = (
    "deepspeed-chat-rlhf", "hf-trainer", "megatron-lm", "megatron-bridge", "mlperf-mllog", "xtuner", "composer",
    "litgpt", "fairseq", "nanotron", "torchtitan", "torchtune", "internevo", "nemo-2", "jube-table",
)  # fmt: skip
_PER_WORKER = 1.8  # ratio of the mean to the current rate from which the latter is that of one worker (old versions)
_FIRST_STEPS = 2  # steps at the start that the timer leaves out


class _Timed(NamedTuple):
    """One line of the timer."""

    line: Line
    label: bytes
    step: int
    mean: float
    rate: float
    stamp_s: float | None


class _DeepSpeed(PatternParser):
    """Reads the pipeline engine's lines, and collects those of the timer, the chat and rank 0 until it is known which the log has."""

    def __init__(self, form: Pattern) -> None:
        super().__init__(form)
        self.timed: list[_Timed] = []
        self.chats: list[tuple[Line, bytes, float]] = []
        self.steps: list[tuple[Line, int, float]] = []
        self.micro: dict[str, int] = {}

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        super().text(text, line, findings)
        for name, count in _MICRO.findall(text):
            self.micro.setdefault("accumulation" if name.startswith(b"grad") else "size", int(count))
        self._timer(text, line)
        if b"Model Parameters:" in text and (found := _CHAT.search(text)):
            latency, rate, batch = number(found["latency"]), number(found["rate"]), float(found["batch"])
            findings.fact("sequence_length", float(found["sequence"]), line)
            if latency and rate:
                # Both have two decimals: the larger number is more exact.
                one = rate if rate > latency else batch / latency
                self.chats.append((slim(line), label_of(text[: found.start()]), one))
        elif (found := _STEP.search(text)) and (now := stamp_s(text, is_fine=True)) is not None:
            self.steps.append((slim(line), int(found[1]), now))

    def _timer(self, text: bytes, line: Line) -> None:
        for found in _TIMER.finditer(text) if b"SamplesPerSec=" in text else ():
            mean, rate = number(found[2]), number(found[3] or found[2])
            # In newer versions the rate of the step follows the mean.
            is_whole = found.end() < len(text) or line.is_ended
            is_whole = is_whole and (found[3] is not None or b"RunningAvg" not in found[0])
            if mean is not None and rate is not None and isfinite(mean) and isfinite(rate) and is_whole:
                label = label_of(text[: found.start()].rpartition(b"epoch=")[0] or text[: found.start()])
                self.timed.append(_Timed(slim(line), label, int(found[1]), mean, rate, stamp_s(text, is_fine=True)))

    def finish(self, findings: Findings) -> None:
        if self._has_records:
            return
        rates = [timed.mean / timed.rate for timed in self.timed if timed.rate > 0]
        if rates and np.median(rates) < _PER_WORKER and any(timed.mean != timed.rate for timed in self.timed):
            self._report_rates(findings)
        elif self.timed:
            self._report_means(findings)
        elif self.chats:
            for index, (line, label, rate) in enumerate(self.chats, 1):
                findings.record(line, {"iteration": index, "samples_per_second_per_device": rate}, label=label)
            findings.remark("an iteration is one micro-batch of DeepSpeed-Chat, and its rate that of one device")
        else:
            last = 0
            for line, step, now in self.steps:
                if step > last and len(self.steps) > 1:
                    findings.record(line, {"iteration": float(step), "clock_s": now - self.steps[0][2]})
                last = step

    def _report_rates(self, findings: Findings) -> None:
        for timed in self.timed:
            values = {"iteration": float(timed.step), "samples_per_second": timed.rate}
            findings.record(timed.line, values, label=timed.label)
        is_stated, batch = findings.known("global_batch_size") is not None, self._batch()
        if batch and not is_stated:
            findings.fact("global_batch_size", batch, self.timed[-1].line)
            findings.remark(
                f"batch of {batch:g}: samples per second x time between lines, as a multiple of one device's"
            )
        # Only with a batch of another source the times of day show how much that is.
        say = findings.remark if is_stated and self.timed[0].stamp_s is not None else findings.doubt
        say("DeepSpeed's timer leaves out what lies between two steps, such as loading of data")

    def _batch(self) -> float | None:
        """Return the batch as the multiple of one device's share nearest to rate x time per step; None if it is ambiguous."""
        if not self.micro.get("size"):
            return None
        share = self.micro["size"] * self.micro.get("accumulation", 1)
        found = [
            (two.stamp_s - one.stamp_s) / (two.step - one.step) * two.rate / share
            for one, two in pairwise(self.timed)
            if two.step > one.step and one.stamp_s is not None and two.stamp_s is not None
        ]
        multiple = float(np.median(found)) if found else 0.0
        is_clear = 0.04 * multiple < 1 and abs(multiple - round(multiple)) < 0.02 * multiple
        return float(share * round(multiple)) if is_clear else None

    def _report_means(self, findings: Findings) -> None:
        """Report the rates between lines from the cumulative means, which begin anew where the count of steps falls."""
        before = (0.0, 0.0)
        for timed in self.timed:
            count = float(timed.step - _FIRST_STEPS)
            if count <= 0 or timed.mean <= 0 or count == before[0]:  # the last is another process
                continue
            before = before if count > before[0] else (0.0, 0.0)
            time = count / timed.mean
            if time > before[1]:
                values = {
                    "iteration": float(timed.step),
                    "samples_per_second": (count - before[0]) / (time - before[1]),
                }
                findings.record(timed.line, values, label=timed.label)
                before = count, time


_NEEDLES = (
    b"SamplesPerSec=", b" iter time (s):", b"Model Parameters:", b"[Rank 0] step=", b"train_batch_size ...",
    b"_train_batch_size", b"--max_seq_len", b"--seq", b"--micro",
)  # fmt: skip


DIALECTS = (
    Dialect(
        name="deepspeed",
        title="DeepSpeed's engine, pipeline engine and DeepSpeed-Chat",
        source="deepspeedai/DeepSpeed deepspeed/utils/timer.py, deepspeed/runtime/pipe/engine.py; DeepSpeedExamples "
        "applications/DeepSpeed-Chat/dschat/utils/perf.py",
        example="[2024-01-01 10:00:00,000] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, "
        "RunningAvgSamplesPerSec=130.5, CurrSamplesPerSec=128.0, MemAllocated=4.0GB, MaxMemAllocated=20.0GB",
        trap="samples per second of the whole machine in the engine, of one device in DeepSpeed-Chat; RunningAvg is the mean "
        "since the start; the sequence length is on the command line at best",
        needles=_NEEDLES,
        parser=Pattern(record=_PIPE, facts=_FACTS, reads_each_line=False, reading=_DeepSpeed),
        yields_to=_BETTER,
    ),
    Dialect(
        name="deepspeed-chat-rlhf",
        title="DeepSpeed-Chat, step 3 (PPO)",
        source="deepspeedai/DeepSpeedExamples applications/DeepSpeed-Chat/training/step3_rlhf_finetuning/main.py",
        example="|E2E latency=3.80s |Gather latency=0.00s (0.00%) |Generate time=2.50s (65.79%) |Training time=1.08s (28.42%) "
        "|Others=0.22 (5.79%)|CurSamplesPerSec=16.84 |AvgSamplesPerSec=15.90",
        trap="a latency of generation and training together; refused",
        needles=(b"|E2E latency=", b"End-to-End => Latency"),
        parser=Pattern(
            record=rb"(?:\|E2E latency=|End-to-End => Latency: {1,8})<elapsed_s> ?s",
            is_numbered=False,
            refusal="RLHF: generation and training share one latency and have no single sequence length (no --sequence-length "
            "describes them): not a training throughput",
        ),
    ),
)
