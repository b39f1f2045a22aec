"""PaddleNLP, PaddleFormers and PaddleFleetX: `key: value` pairs; what a rate counts depends on its name and unit."""

from math import isfinite

from nlp_bench.logs.clean import label_of
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.pattern import late, pairs_in
from nlp_bench.logs.quantity import duration_s, number
from nlp_bench.logs.scan import Line, slim

_PAIR = late(rb"(?<![A-Za-z_])([A-Za-z_]{2,60}): ([-+\d.eE]{1,40}|nan|inf)(?=[\s,]|$)(?: ([a-z]{2,12}/s(?:ec)?)\b)?")
_STEP = late(rb"global step:? (\d{1,18})(?: / (\d{1,18}))?|\bbatch: \[(\d{1,18})/(\d{1,18})\]")
_NOT_TRAINING = late(rb"\[(?:eval|test)\]|\beval step\b|\bstep \d+, eval\b")
_WORLD = late(rb"- world_size\s{0,60}: (\d{1,9})\s*$")
_SUMMARY = late(rb"\b(train_(?:runtime|samples_per_second|steps_per_second))\s{0,60}= {0,20}([\d.:]{1,30})\s*$")
_IPS = late(rb"^(?:.{0,120}\s)?ips: ([\d.]{1,30}) tokens/s\s*$")
_SEQUENCES = {b"sequences/s", b"sequences/sec", b"sample/s", b"sample/sec", b"samples/s", b"samples/sec"}
_TOLERANCE = 0.01
_INTERVAL = {
    b"global_step": "iteration",
    b"loss": "lm_loss",
    b"interval_samples_per_second": "samples_per_second",
    b"interval_tokens_per_second_per_device": "tokens_per_second_per_device",
}


class _Parser(Parser):
    """Three formats: the Trainer's intervals, the older scripts' batch costs, and the summary at the end."""

    def __init__(self) -> None:
        self.summary: dict[bytes, float] = {}
        self.average: tuple[Line, float] | None = None
        self.num_before = 0  # records before this start of the program

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        if b"interval_runtime" in text:
            self._interval(line, text, findings)
        elif _STEP.search(text):
            self._batch_cost(line, text, findings)
        else:
            self._once(line, text, findings)

    def _interval(self, line: Line, text: bytes, findings: Findings) -> None:
        pairs = pairs_in(_PAIR, text, line, (b"loss",))
        if b"global_step" not in pairs:
            return
        values = {name: pairs[key] for key, name in _INTERVAL.items() if key in pairs}
        elapsed = _seconds_per_step(pairs)
        if elapsed is not None:
            values["elapsed_s"] = elapsed
        findings.record(line, values, label=label_of(text.partition(b"loss:")[0]), is_whole=elapsed is not None)

    def _batch_cost(self, line: Line, text: bytes, findings: Findings) -> None:
        found = _STEP.search(text)
        if not found or _NOT_TRAINING.search(text) or b"ips" not in text:
            return
        pairs, rates = pairs_in(_PAIR, text, line, (b"loss",)), _rates(text)
        values = {"iteration": float(found[1] or found[3])}
        if found[2] or found[4]:
            values["total_iterations"] = float(found[2] or found[4])
        if b"loss" in pairs:
            values["lm_loss"] = pairs[b"loss"]
        if b"avg_batch_cost" in pairs:
            values["elapsed_s"] = pairs[b"avg_batch_cost"]
        elif pairs.get(b"speed"):
            values["elapsed_s"] = 1 / pairs[b"speed"]
        findings.record(line, {**values, **rates}, label=label_of(text[: found.start()]), is_whole=bool(rates))

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


def _rates(text: bytes) -> dict[str, float]:
    """Return the rates: `ips` is of one device next to `ips_total`, which is of the machine; alone in tokens it is of the machine."""
    rates: dict[str, float] = {}
    has_total = b"_total: " in text  # even where its name is torn
    for found in _PAIR.finditer(text):
        value = number(found[2])
        if value is None or not found[1].startswith(b"ips"):
            continue
        if found[3] in {b"tokens/s", b"tokens/sec"}:
            is_total = found[1] == b"ips_total" or (found[1] == b"ips" and not has_total)
            rates["tokens_per_second" if is_total else "tokens_per_second_per_device"] = value
        elif found[3] in _SEQUENCES:
            rates["samples_per_second_per_device"] = value
        elif found[3] == b"words/sec":
            rates["tokens_per_second_per_device"] = value
    return rates


def _seconds_per_step(pairs: dict[bytes, float]) -> float | None:
    """Divide the runtime of the interval by its steps, whose number follows from their rate."""
    runtime, rate = pairs.get(b"interval_runtime"), pairs.get(b"interval_steps_per_second")
    if not rate or not runtime or not isfinite(runtime * rate):
        return None
    steps = round(runtime * rate)
    # Where the product is a whole number the runtime has more digits than the rate.
    return runtime / steps if abs(runtime * rate - steps) < _TOLERANCE * steps else 1 / rate


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
        parser=_Parser,
    ),
)
