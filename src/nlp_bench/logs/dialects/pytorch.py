"""Smaller trainers on PyTorch: AWS's FSDP sample, Composer, IBM's fms-fsdp, Meta's torchtune and lingua, picotron, Colossal-AI, OLMo."""

import json
import math
from typing import Any, ClassVar

import numpy as np

from nlp_bench.files import once
from nlp_bench.logs.clean import stamp_s
from nlp_bench.logs.dialect import Dialect, Findings
from nlp_bench.logs.pattern import At, Lines, LinesParser, Match, Open, Pattern, PatternParser, Values, late
from nlp_bench.logs.quantity import Bracket, bounds, number
from nlp_bench.logs.scan import Line


class _AwsFsdp(PatternParser):
    """Computes the global batch size from the options of the launcher.

    --max_context_width is ignored: train.py does not pass it to its data loader.
    """

    _option = late(rb"--(nnodes|nproc[_-]per[_-]node|train_batch_size)[= ](\d{1,9})(?![\w-])")

    def __init__(self, form: Pattern) -> None:
        super().__init__(form)
        self.launch: dict[bytes, float] = {}

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        super().text(text, line, findings)
        for name, value in self._option.findall(text):
            self.launch.setdefault(name.replace(b"-", b"_"), float(value))
            nodes, processes, batch = (
                self.launch.get(key, 0.0) for key in (b"nnodes", b"nproc_per_node", b"train_batch_size")
            )
            findings.fact("num_devices", nodes * processes, line)
            findings.fact("global_batch_size", nodes * processes * batch, line)


class _Composer(LinesParser):
    """Numbers the batches through all epochs. Tokens do not include padding, so they are less than batch size x sequence length."""

    def begin(self, head: Match) -> tuple[Values, bool]:
        """Return the number of the batch where the head counts batches."""
        if head["unit"] != b"batch":
            return {}, True
        before = (int(head["epoch"]) - 1) * int(head["of"] or 0) if head["epoch"] else 0
        return {"iteration": float(before + int(head["count"]))}, True

    def derive(self, record: Open) -> bool:
        """Set the number of the batch from `time/batch`, which counts those before it."""
        batches = number(record.texts.get(b"time/batch", b""))
        if batches is not None and math.isfinite(batches):
            record.values["iteration"] = batches + 1
        return "iteration" in record.values


class _FmsFsdp(LinesParser):
    """Derives the devices from the two cumulative rates."""

    def rename(self, key: bytes) -> bytes:
        """Return today's name of a key; in the oldest versions one holds the number of steps of a mean."""
        old_names = {b"token per day": b"overall token per day", b"overall speed": b"overall step time"}
        return b"current step time" if key.startswith(b"speed for these") else old_names.get(key, key)

    def derive(self, record: Open) -> bool:
        """Narrow the devices, and derive the tokens of a step as the product of two means since the start."""
        texts, per_device = record.texts, b"overall token per gpu per sec"
        if not {b"current step time", b"current token per gpu per sec", per_device} & texts.keys():
            return False
        self.devices.line = record.line
        day, mean_s = (
            bounds(texts.get(b"overall token per day", b""), 1.0),
            number(texts.get(b"overall step time", b"")),
        )
        if day:
            second = (day[0] / 86400, day[1] / 86400)
            self.devices.ratio(second, bounds(texts.get(per_device, b""), 1.0))
            if mean_s and "consumed_tokens" not in record.values:
                record.values.setdefault("tokens", float(f"{second[0] * mean_s:.0f}"))
        return True


class _Lingua(PatternParser):
    """One line per logging interval, or metrics.jsonl with all digits.

    The line counts micro-steps (`acc`); `iter` is the time of the last of them, not of a step. metrics.jsonl has the tokens of all
    devices and the time of day, which give the rate of the machine.
    """

    _json = late(rb"\{\"(?=[^\r\n]*\"speed/wps\")[^\r\n]*\}\s*$")
    _names: ClassVar = {
        "global_step": "iteration",
        "speed/wps": "tokens_per_second_per_device",
        "optim/total_tokens": "consumed_tokens",
        "loss/out": "lm_loss",
    }

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        super().text(text, line, findings)
        if b'"speed/wps"' in text:
            self._metrics(text, line, findings)

    def values(self, values: Values, at: At) -> Values | None:
        return None if int(at.found["acc"] or 0) else values

    def _metrics(self, text: bytes, line: Line, findings: Findings) -> None:
        found = self._json.search(text)
        try:
            data: dict[str, Any] = json.loads(found[0], object_pairs_hook=once) if found else {}
        except (ValueError, RecursionError):
            data = {}
        values = {name: float(data[key]) for key, name in self._names.items() if type(data.get(key)) in {int, float}}
        if data.get("acc_step"):
            return  # a micro-step, which `acc_freq` logs, too
        if not math.isfinite(values.get("iteration", math.nan)):
            findings.record(line, {}, is_whole=bool(data))
            return
        now = stamp_s(str(data.get("created_at", "")).encode(), is_fine=True)
        if now is not None and "consumed_tokens" in values:
            values["clock_s"] = now
        findings.record(line, values)


class _Picotron(PatternParser):
    """Narrows the tokens of a step, which are rounded to three digits."""

    def __init__(self, form: Pattern) -> None:
        super().__init__(form)
        self.batch = Bracket()

    def values(self, values: Values, at: At) -> Values:
        self.devices.quotient(at.line, *at.found.group("tokens_per_second", "tokens_per_second_per_device"))
        if batch := bounds(at.found["batch"]):
            self.batch.narrow(*batch)
        return values

    def finish(self, findings: Findings) -> None:
        if self.devices.line and (tokens := self.batch.roundest):
            findings.fact("tokens", tokens, self.devices.line)
        super().finish(findings)


class _Torchtune(PatternParser):
    """Says what the rate counts: tokens with a label, and in older versions those of each tensor-parallel rank."""

    def finish(self, findings: Findings) -> None:
        super().finish(findings)
        if np.isfinite(findings.column("tokens_per_second_per_device")).any():
            findings.doubt(
                "tokens_per_second_per_gpu counts tokens with a label alone, unmasked ones, and in older versions each of them once on "
                "every tensor-parallel rank"
            )


_SUMS = late(
    rb"\bnum_samples: (\d{1,18}), dp_world_size: (\d{1,9}), flop_megatron: [^,\r\n]{1,60}, flop: [^,\r\n]{1,60}, avg_duration: ([\d.eE+-]{1,40}),? ?"
)


class _ColossalAi(PatternParser):
    """Counts the reports of an evaluator, which are not numbered; its sums are cumulative."""

    def __init__(self, form: Pattern) -> None:
        super().__init__(form)
        self.sums: dict[str, float] = {}
        self.num_reports = 0

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        sums = _SUMS.search(text)
        if sums:
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


class _Olmo(LinesParser):
    """Counts the devices, which are not stated: tokens per step of all x steps per second / tokens per second of one.

    The tokens of a step are the differences of the cumulative ones, the rates those of one device over a moving window.
    """

    before = (math.inf, 0.0)

    def derive(self, record: Open) -> bool:
        self.devices.line = record.line
        steps_so_far, tokens_so_far = self.before
        if "consumed_tokens" in record.values:
            self.before = record.values["iteration"], record.values["consumed_tokens"]
            # Numbers above 1000 are truncated to integers, so the error may be one unit on either side.
            rate, steps = (bounds(record.texts.get(key, b""), 1.0) for key in list(self.form.keys)[:2])
            if rate and steps and self.before[0] > steps_so_far:
                per_step = (self.before[1] - tokens_so_far) / (self.before[0] - steps_so_far)
                self.devices.ratio((per_step * steps[0], per_step * steps[1]), rate)
        return True


def _lines(rate: bytes, steps: bytes, tokens: bytes, loss: bytes) -> Lines:
    """Return the form of one of the programs, by its names of the rates and of the loss."""
    keys = {rate: "tokens_per_second_per_device", steps: "", tokens: "consumed_tokens", loss: "lm_loss"}
    return Lines(
        head=rb"\[step=<iteration>/(?:<total_iterations>|\?\?\?)[^\]\r\n]{0,200}\]\s*$",
        pair=rb"(?P<key>%b)=(?P<value>[\d,.]+|nan|inf)\s*$" % b"|".join(keys),
        keys=keys,
        reading=_Olmo,
    )


DIALECTS = (
    Dialect(
        name="aws-fsdp",
        title="AWS awsome-distributed-training, PyTorch FSDP",
        source="aws-samples/awsome-distributed-training 3.test_cases/pytorch/FSDP/src/train.py",
        example="0: 2026-01-01 10:00:00 I [train.py:103] Batch 12 Loss: 7.50000, Speed: 16.00 samples/sec, lr: 0.000100",
        trap="Speed is of the machine; the printed --max_context_width is not the length of the samples",
        needles=(b" samples/sec, ", b"--nproc_per_node", b"--nproc-per-node", b"--train_batch_size"),
        parser=Pattern(
            record=rb"\bBatch <iteration> Loss: <lm_loss>, Speed: <samples_per_second> samples/sec",
            remark="--max_context_width is not what this program trains with: "
            "its data loader has a length of its own (4096 unless changed)",
            reading=_AwsFsdp,
        ),
        counts_from=0,
    ),
    Dialect(
        name="composer",
        title="Composer, LLM Foundry",
        source="mosaicml/composer composer/loggers/console_logger.py, composer/callbacks/speed_monitor.py",
        example="[epoch=1][batch=20/100]:\n"
        "\t Train time/token: 2621440\n"
        "\t Train throughput/tokens_per_sec: 16384.0000\n"
        "\t Train throughput/device/tokens_per_sec: 2048.0000",
        trap="one record goes on over several lines, the rate of the machine and of one device have nearly the same name; tokens "
        "are real ones, without padding",
        needles=(b"Train throughput/", b"Train time/", b"Train loss/train/total", b"[batch=", b"[token=", b"[sample="),
        parser=Lines(
            head=rb"(?:\[epoch=(?P<epoch>\d{1,9})(?:/\d{1,9})?\])?"
            rb"\[(?P<unit>batch|sample|token)=(?P<count>\d{1,18})(?:/(?P<of>\d{1,18}))?\]:\s*$",
            pair=rb"(?<!\w)Train (?P<key>(?:throughput|time|loss)/[\w/]+): (?P<value>[-+\w.]+)\s*$",
            keys={
                b"throughput/tokens_per_sec": "tokens_per_second",
                b"throughput/device/tokens_per_sec": "tokens_per_second_per_device",
                b"throughput/samples_per_sec": "samples_per_second",
                b"throughput/device/samples_per_sec": "samples_per_second_per_device",
                b"time/batch": "",
                b"time/token": "consumed_tokens",
                b"loss/train/total": "lm_loss",
            },
            reading=_Composer,
        ),
    ),
    Dialect(
        name="fms-fsdp",
        title="IBM fms-fsdp",
        source="foundation-model-stack/fms-fsdp fms_fsdp/utils/train_utils.py",
        example="step: 200\nloss: 7.2345\ntokens seen: 6553600\ncurrent step time: 2.0\noverall step time: 2.5\n"
        "current token per gpu per sec: 2048\noverall token per gpu per sec: 1638\noverall token per day: 1132462080",
        trap="`overall` rates are cumulative; the rate is of one device, the tokens per day are of all",
        needles=(
            *(b"step: ", b"tokens seen: ", b" step time: ", b"speed for these ", b"overall speed: "),
            *(b"token per gpu per sec: ", b"token per day: ", b"Total tok/step: "),
        ),
        parser=Lines(
            head=rb"(?<![\w.-])step: <iteration>\s*$",
            pair=rb"(?<!\w)(?P<key>tokens seen|(?:current|overall) step time|speed for these \d+ steps|overall speed"
            rb"|(?:current|overall) token per gpu per sec|(?:overall )?token per day|Total tok/step): (?P<value>[-+\w.]+)\s*$",
            keys={
                b"tokens seen": "consumed_tokens",
                b"current step time": "elapsed_s",
                b"current token per gpu per sec": "tokens_per_second_per_device",
                b"overall token per gpu per sec": "",
                b"overall token per day": "",
                b"overall step time": "",
                b"Total tok/step": "tokens",
            },
            reading=_FmsFsdp,
        ),
    ),
    Dialect(
        name="lingua",
        title="Meta lingua and its forks",
        source="facebookresearch/lingua apps/main/train.py, lingua/metrics.py",
        example="0: INFO    26-01-01 10:00:10.000000 - 0:01:23 - step: 10  acc: 0  loss: 10.8765  grad: 1.23e+00  flops: 4.12e+14  "
        "wps: 5.43e+04  iter:  0.2512  data: 0.0012  lr: 3.00e-05  mem: 64%  pow: 612.3 W",
        trap="wps is of one device, with three digits; iter is the time of the last micro-step",
        needles=(b"  wps: ", b'"speed/wps"'),
        parser=Pattern(
            record=rb"step: <iteration>  (?:acc: (?P<acc>\d{1,9})  )?(?P<fields>(?:(?!step: )[^\r\n]){0,400})  "
            rb"wps: (?P<tokens_per_second_per_device>[-+\d.e]{1,24})  iter: +[\d.e-]{1,24}  data:",
            fields=(rb"\bloss(?:_avg)?: +(?P<lm_loss>[-+\w.]+)",),
            reads_each_line=False,
            reading=_Lingua,
        ),
    ),
    Dialect(
        name="torchtune",
        title="torchtune",
        source="pytorch/torchtune torchtune/training/metric_logging.py",
        example="Step 12 | loss:1.2345678 lr:2e-05 tokens_per_second_per_gpu:2048.0 peak_memory_active:21.3 grad_norm:1.23 ",
        trap="the rate is of one device, and counts the tokens with a label alone",
        needles=(
            *(b"tokens_per_second", b"time_per_step_s:", b"|Loss: "),
            b"Distributed training is enabled",
        ),
        parser=Pattern(
            record=rb"(?<!\w)Step <iteration> \| (?=[\w/]+:)(?=[^\r\n]*(?:time_per_step_s|tokens_per_second)[\w/]*:)",
            # The bar has only steps per second, a recent mean.
            otherwise=rb"(?<![\d|])\d{1,6}\|<iteration>\|Loss: (?P<lm_loss>[-+\w.]+):[^\r\n\[]{0,400}\[[\d:]+<[\d:?]+,\s*"
            rb"(?:<elapsed_s>s/it|<iterations_per_second>it/s)[,\]]",
            pairs=(
                rb"(?<!\S)(?P<key>[\w/]+):(?P<value>\S+)",
                {
                    b"loss": "lm_loss",
                    b"grad_norm": "grad_norm",
                    b"time_per_step_s": "elapsed_s",
                    b"tokens_per_second_per_gpu": "tokens_per_second_per_device",
                    b"tokens_per_second": "tokens_per_second_per_device",
                },
            ),
            facts=(rb"Distributed training is enabled\. world size <num_devices>(?!\d)",),
            reads_each_line=False,
            reading=_Torchtune,
        ),
    ),
    Dialect(
        name="picotron",
        title="picotron",
        source="huggingface/picotron train.py",
        example="[rank 0] Step: 10    | Loss: 8.5469 | Global batch size:   2.05K | Tokens/s:   4.10K | Tokens/s/GPU:   1.02K | "
        "Tokens:  20.48K | MFU:  0.07% | Memory usage:   1.75GB",
        trap="`Global batch size` is in tokens",
        needles=(b"Tokens/s/GPU:",),
        parser=Pattern(
            record=rb"(?<!\w)Step: <iteration>\s*\| Loss:\s*(?P<lm_loss>[-+\w.]+) \| Global batch size:\s*(?P<batch>%(n)b) \| "
            rb"Tokens/s:\s*(?P<tokens_per_second>%(n)b) \| Tokens/s/GPU:\s*(?P<tokens_per_second_per_device>%(n)b) \| "
            % {b"n": rb"[\d.]+[KMBT]?"},
            reading=_Picotron,
        ),
    ),
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
            reading=_ColossalAi,
        ),
        counts_from=0,  # the evaluator leaves out the first steps itself
    ),
    Dialect(
        name="olmo",
        title="OLMo",
        source="allenai/OLMo olmo/train.py",
        example="[2026-01-01 10:00:10] INFO     [olmo.train:816, rank=0] [step=2/1000]\n"
        "    train/CrossEntropyLoss=10.73\n"
        "    throughput/total_tokens=131,072\n"
        "    throughput/device/tokens_per_second=4,096\n"
        "    throughput/device/batches_per_second=0.5000",
        trap="one record goes on over several lines; the rate is of one device, total_tokens are of all",
        needles=(b"[step=", b"throughput/", b"train/C"),
        parser=_lines(
            b"throughput/device/tokens_per_second",
            b"throughput/device/batches_per_second",
            b"throughput/total_tokens",
            b"train/CrossEntropyLoss",
        ),
    ),
    Dialect(
        name="olmo-core",
        title="OLMo-core",
        source="allenai/OLMo-core src/olmo_core/train/callbacks/speed_monitor.py, console_logger.py",
        example="2026-01-01 10:00:10.000\thost:0\tolmo_core.train:512\tINFO\t[step=10/1000,epoch=1,eta=1:23:45]\n"
        "    train/CE loss=10.12\n"
        "    throughput/device/TPS=4,096\n"
        "    throughput/total tokens=1,310,720",
        trap="TPS is of one device and of the last step alone; `TPS (actual avg)` is cumulative",
        needles=(b"[step=", b"throughput/", b"train/C"),
        parser=_lines(b"throughput/device/TPS", b"throughput/device/BPS", b"throughput/total tokens", b"train/CE loss"),
    ),
)
