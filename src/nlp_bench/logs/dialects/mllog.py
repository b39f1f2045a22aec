"""MLPerf Training: `:::MLLOG {json}` events, whose keys have another meaning in each benchmark.

In order of preference: step times, means of blocks, the clock of the blocks less evaluations.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nlp_bench.files import once
from nlp_bench.logs.clean import label_of
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.pattern import late
from nlp_bench.logs.quantity import LARGEST
from nlp_bench.logs.scan import Line

_MARK = b":::MLLOG"
_LONGEST = 20_000  # bytes of one event
_DECODER = json.JSONDecoder(object_pairs_hook=once)
_SETTINGS = {
    "global_batch_size": "global_batch_size",
    "max_sequence_length": "sequence_length",
    "sequence_length": "sequence_length",
}
_STEP_TIMES = ("train_step_timing in s", "train_step_timing", "train_step_time")
_LANGUAGE = re.compile(r"gpt|llama|mixtral|deepseek|qwen|moe_", re.IGNORECASE)
_KEY = late(rb'"key": ?"(\w{1,60})"')
_BORDERS = {"block_start", "block_stop", "eval_start", "eval_stop", "eval_accuracy"}
_FOLLOWERS = {
    "run_start": {"block_start", "block_stop", "eval_start"},
    "block_start": {"block_stop", "eval_start"},
    "block_stop": {"block_start", "eval_start"},
    "eval_start": {"eval_stop"},
    "eval_stop": {"block_start", "block_stop", "eval_start"},
}
"""Event that starts or stops the clock to those that may follow it."""
_ECHO_S = 1.0
_TOKENS, _SAMPLES = "consumed_tokens", "consumed_samples"


class _Event(NamedTuple):
    """One event and its line."""

    line: Line
    label: bytes
    key: str
    value: Any
    metadata: Mapping[str, Any]

    def number(self, name: str) -> float | None:
        return _count(self.metadata.get(name))


class _Mark(NamedTuple):
    """A moment at which the log states the progress of the training."""

    line: Line
    label: bytes
    name: str
    progress: float
    clock_s: float | None  # None where an event that starts or stops the clock was lost


class _Clock:
    """Time of training alone: it is stopped outside blocks and during evaluations."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.since: float | None = None
        self.last = ("run_start", 0.0)
        self.is_lost = False

    def pass_border(self, key: str, now: float) -> None:
        """Process the next event, and remember whether one between it and the last was lost."""
        last, then = self.last
        is_echo = key == last and now - then < _ECHO_S
        self.is_lost |= not is_echo and key not in _FOLLOWERS.get(last, ())
        self.last = key, now
        self.run(now, is_running=key in {"block_start", "eval_stop"})

    def run(self, now: float, *, is_running: bool) -> None:
        self.seconds += 0.0 if self.since is None else max(0.0, now - self.since)
        self.since = now if is_running else None

    def read(self, now: float) -> float | None:
        """Return the seconds up to now; None, once, where an event was lost since the last reading."""
        is_lost, self.is_lost = self.is_lost, False
        self.run(now, is_running=self.since is not None)
        return None if is_lost else self.seconds


class _Run:
    """The state since the last `run_start`."""

    def __init__(self) -> None:
        self.clock = _Clock()
        self.marks: list[_Mark] = []
        self.block: tuple[Line, bytes, Mapping[str, float]] | None = None
        self.has_steps = self.has_blocks = self.has_evaluations = False


def _events(text: bytes) -> Iterator[tuple[bytes, Any]]:
    """Yield each event of a line with the text before it; a broken one as its bytes."""
    prefix, *bodies = text.split(_MARK)
    for body in bodies:
        words = body[:_LONGEST].decode(errors="replace").lstrip()
        try:
            event, end = _DECODER.raw_decode(words)
        except (ValueError, RecursionError):
            event, end = None, 0
        yield prefix, event if isinstance(event, dict) else body
        prefix = words[end:].encode() if end else b""


def _real(value: object) -> float | None:
    """Return a number of JSON, which may be NaN; None for anything else."""
    try:
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    except OverflowError:
        return None


def _count(value: object) -> float | None:
    """Return a count: a number from 0 to LARGEST; None for anything else."""
    number = _real(value)
    return number if number is not None and 0 <= number < LARGEST else None


class _Parser(Parser):
    """Processes the events of one run after the other."""

    def __init__(self) -> None:
        self.benchmark = ""
        self.status: str | None = None
        self.settings: dict[str, tuple[float, Line]] = {}
        self.is_open, self.has_begun = True, False
        self.run = _Run()

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        for prefix, event in _events(text):
            if isinstance(event, dict):
                self._event(event, label_of(prefix), line, findings)
            else:
                self._broken(event, line, findings)

    def _event(self, raw: dict[str, Any], label: bytes, line: Line, findings: Findings) -> None:
        metadata = raw.get("metadata")
        event = _Event(
            line, label, str(raw.get("key")), raw.get("value"), metadata if isinstance(metadata, dict) else {}
        )
        now = (_count(raw.get("time_ms")) or 0.0) / 1000
        if event.key in _SETTINGS:
            self._set(_SETTINGS[event.key], event, findings)
        elif event.key == "submission_benchmark":
            self.benchmark = str(event.value)
        elif event.key == "run_start":
            self._begin(event, now, findings)
        elif event.key == "run_stop":
            self.status = event.metadata.get("status")
            self._close(findings)
        elif event.key == "tracked_stats" and isinstance(event.value, dict):
            self._stats(event, event.value, findings)
        elif event.key in _BORDERS:
            self._border(event, now, findings)

    def _broken(self, body: bytes, line: Line, findings: Findings) -> None:
        """Process the rest of a broken event, which may have started or stopped the clock."""
        if b"tracked_stats" in body:
            findings.record(line, {}, is_whole=False)
        key = _KEY.search(body)
        self.run.clock.is_lost |= key is None or key[1].decode() in _BORDERS

    def _set(self, name: str, event: _Event, findings: Findings) -> None:
        number = _count(event.value)
        if number:
            self.settings[name] = number, event.line
            if self.is_open:
                findings.fact(name, number, event.line)

    def _begin(self, event: _Event, now: float, findings: Findings) -> None:
        self._emit(findings)
        findings.start(event.line)
        self.is_open = self.has_begun = True
        for name, (value, where) in self.settings.items():
            findings.fact(name, value, where)
        self.run.clock.run(now, is_running=True)
        self.run.marks.append(_Mark(event.line, event.label, _SAMPLES, 0.0, 0.0))

    def _close(self, findings: Findings) -> None:
        self._emit(findings)
        # The settings of another run in this file come before its run_start.
        self.is_open, self.settings = False, {}
        if self.status not in {None, "success"}:
            findings.remark(f"the MLPerf run ended with status {self.status}")

    def _border(self, event: _Event, now: float, findings: Findings) -> None:
        run = self.run
        if event.key != "eval_accuracy" and self.has_begun:
            run.clock.pass_border(event.key, now)
        run.has_evaluations |= event.key == "eval_start"
        # What follows an evaluation states the same progress.
        if event.key == "eval_start" or (event.key == "eval_accuracy" and not run.has_evaluations):
            clock, stated = run.clock.read(now), self._progress(event)
            if stated and not (run.marks and stated[1] <= run.marks[-1].progress):
                self._report_block(self._iteration(*stated, len(run.marks) + 1), findings)
                run.marks.append(_Mark(event.line, event.label, *stated, clock))
                run.block = None

    def _progress(self, event: _Event) -> tuple[str, float] | None:
        """Return the progress of the training with its unit: GPT-3 counts epochs in tokens.

        None where there is none or its unit is unknown.
        """
        samples, epoch = event.number("samples_count"), event.number("epoch_num")
        if samples is not None:
            return _SAMPLES, samples
        if epoch is None or not self.benchmark or (self._is_gpt3 and not self._tokens_per_step):
            return None
        return (_TOKENS if self._counts_tokens(epoch) else _SAMPLES), epoch

    def _known(self, name: str) -> float:
        return self.settings[name][0] if name in self.settings else 0.0

    @property
    def _is_gpt3(self) -> bool:
        return "gpt3" in self.benchmark

    @property
    def _tokens_per_step(self) -> float:
        return self._known("global_batch_size") * self._known("sequence_length")

    def _counts_tokens(self, count: float) -> bool:
        per_step = self._tokens_per_step
        return self._is_gpt3 and per_step > 0 and count % per_step == 0

    def _iteration(self, name: str, progress: float, otherwise: float) -> float:
        per_step = self._tokens_per_step if name == _TOKENS else self._known("global_batch_size")
        return round(progress / per_step) if per_step else otherwise

    def _report_block(self, iteration: float, findings: Findings) -> None:
        if self.run.block and not self.run.has_steps:
            line, label, values = self.run.block
            findings.record(line, {"iteration": iteration, **values}, label=label)
            self.run.has_blocks = True

    def _stats(self, event: _Event, value: Mapping[str, Any], findings: Findings) -> None:
        name = next((name for name in _STEP_TIMES if name in value), "")
        elapsed, throughput = _real(value.get(name)), _count(value.get("throughput"))
        loss = _real(value.get("reduced_train_loss"))
        is_of_step = loss is not None or "step" in event.metadata
        if elapsed is not None and is_of_step and "throughput" not in value:
            self.run.has_steps = True
            values = {"iteration": self._step(event), "elapsed_s": elapsed}
            findings.record(event.line, values | ({} if loss is None else {"lm_loss": loss}), label=event.label)
        elif throughput is None or (self.benchmark and not self._is_gpt3):
            # Llama's throughput is in samples per second; that of GPT-3 is a mean of all tokens over the run.
            stated = {"samples_per_second": throughput, "elapsed_s": elapsed}
            values = {name: number for name, number in stated.items() if number is not None}
            if values:
                self.run.block = event.line, event.label, values

    def _step(self, event: _Event) -> float:
        """Return the iteration of a step time; `step` counts tokens (GPT-3), samples (Llama until v5.0) or steps."""
        samples, step = event.number("samples_count"), event.number("step") or 0.0
        if samples is not None:
            return self._iteration(_SAMPLES, samples, step)
        if self._counts_tokens(step):
            return self._iteration(_TOKENS, step, step)
        batch = self._known("global_batch_size")
        return step / batch if batch and step % batch == 0 else step

    def _emit(self, findings: Findings) -> None:
        """Report the end of a run: with neither step nor block times, the clock of the blocks is used."""
        run = self.run
        self._report_block(len(run.marks) + 1.0, findings)
        if not (run.has_steps or run.has_blocks) and len(run.marks) > 1:
            for index, mark in enumerate(run.marks):
                values = {"iteration": self._iteration(mark.name, mark.progress, index), mark.name: mark.progress}
                clock = {} if mark.clock_s is None else {"clock_s": mark.clock_s}
                findings.record(mark.line, {**values, **clock}, label=mark.label)
            where = "subtracted" if run.has_evaluations else "inside the blocks: the rate is a lower bound"
            findings.remark(f"block times of MLPerf; evaluation time is {where}")
        self.run = _Run()

    def finish(self, findings: Findings) -> None:
        self._emit(findings)
        if not self.benchmark:
            return
        ending = "the run did not end" if self.is_open else f"the run ended with status {self.status}"
        if "bert" in self.benchmark:
            findings.refuse(f"MLPerf BERT trains on sequences of variable length: no token rate; {ending}")
        elif not _LANGUAGE.search(self.benchmark):
            findings.refuse(f"MLPerf benchmark {self.benchmark!r} trains no language model on tokens; {ending}")
        elif not findings.num_records:
            began = (
                "has no step, block or evaluation times of a known unit"
                if self.has_begun
                else "crashed before run_start"
            )
            findings.refuse(f"the MLPerf {self.benchmark} run {began}; {ending}")


DIALECTS = (
    Dialect(
        name="mlperf-mllog",
        believes_settings=True,
        title="MLPerf Training results of any submitter (GPT-3, Llama 2 LoRA, Llama 3.1)",
        source="mlcommons/logging mlperf_logging/mllog/mllog.py; NVIDIA/mlperf-common callbacks/logging.py",
        example=':::MLLOG {"namespace": "", "time_ms": 1700000000000, "event_type": "POINT_IN_TIME", "key": "tracked_stats", '
        '"value": {"train_step_time": 8.5, "reduced_train_loss": 7.5}, "metadata": {"file": "callbacks.py", "lineno": 1, "step": 8}}',
        trap="throughput is tokens/s over the whole run for GPT-3 and samples/s of a block for Llama; step counts tokens, "
        "samples or steps",
        needles=(_MARK,),
        parser=_Parser,
        yields_to=("megatron-lm",),  # its lines give the time of each interval; our trainer with --mllog prints both
    ),
)
