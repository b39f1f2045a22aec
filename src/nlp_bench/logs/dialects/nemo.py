"""NVIDIA's NeMo 2, whose records a terminal often wraps, and NeMo-Automodel."""

from collections.abc import Mapping

from nlp_bench.logs.clean import label_of
from nlp_bench.logs.dialect import Dialect, Findings, Parser
from nlp_bench.logs.pattern import Pattern, late
from nlp_bench.logs.quantity import number
from nlp_bench.logs.scan import Line

_START = late(rb"Training epoch (\d{1,9}), iteration (\d{1,18})/(\d{1,18})")
# Where a terminal has wrapped a record: within or after a number, else between or within names.
_AFTER_NUMBER = late(rb":\s{0,8}[-+\d.e]{1,24}\s{0,8}$")
_REST_OF_NUMBER = late(rb"[\d.e+-]{1,24}\s{0,8}(?:\||$)|\s{0,8}\|")
_WITHIN_NAMES = late(rb"\|\s{0,8}(?:[\w/. ]{1,60}:?\s{0,8})?$")
_REST_OF_NAMES = late(rb"\s{0,8}[\w/. ]{0,60}:?\s{0,8}[-+\d.einfa]{1,24}\s{0,8}(?:\||$)")
_MOST_WRAPS = 6
_KEYS: Mapping[bytes, str] = {
    b"train_step_timing in s": "elapsed_s",
    b"global_batch_size": "global_batch_size",
    b"consumed_samples": "consumed_samples",
    b"tokens_per_sec_per_gpu": "tokens_per_second_per_device",
    b"tokens_per_sec": "tokens_per_second",
    b"TFLOPS_per_GPU": "model_tflops",
    b"reduced_train_loss": "lm_loss",
    b"global_step": "iteration",
}
_COUNTS = {"global_batch_size", "consumed_samples", "iteration"}


class _Nemo2(Parser):
    """Reads a record and the lines on which it continues."""

    def text(self, text: bytes, line: Line, findings: Findings) -> None:
        if not (found := _START.search(text)):
            return
        values = {"iteration": float(found[2])}
        if found[1] == b"0":
            values["total_iterations"] = float(found[3])
        fields = _unwrapped(text, line)[found.end() :].split(b"|")
        is_whole = line.is_ended
        for field in fields[1:] if line.is_ended else fields[1:-1]:
            key, _, written = field.partition(b":")
            name, value = _KEYS.get(b" ".join(key.split()), ""), number(written)
            if name in _COUNTS and value is not None and (value % 1 or b"e" in written.lower()):
                continue  # rounded to four digits: no exact count
            if name and value is not None:
                values[name] = value
            is_whole = is_whole and (value is not None or name in {"", *_COUNTS})
        findings.record(line, values, label=label_of(text[: found.start()]), is_whole=is_whole)


def _unwrapped(text: bytes, line: Line) -> bytes:
    parts = [text.rstrip(b"\r")]
    for after in line.following(_MOST_WRAPS):
        last = parts[-1][-200:]
        is_rest = (_AFTER_NUMBER.search(last) and _REST_OF_NUMBER.match(after)) or (
            _WITHIN_NAMES.search(last) and _REST_OF_NAMES.match(after)
        )
        if b"Training epoch" in after or not is_rest:
            break
        parts.append(after.rstrip(b"\r"))
    return b"".join(parts)


DIALECTS = (
    Dialect(
        name="nemo-2",
        believes_settings=True,
        title="NVIDIA NeMo 2",
        source="NVIDIA/NeMo nemo/lightning/pytorch/callbacks/progress_printer.py",
        example="Training epoch 0, iteration 9/99 | lr: 1.499e-05 | global_batch_size: 128 | global_step: 9 | "
        "reduced_train_loss: 10.22 | train_step_timing in s: 12.21 | consumed_samples: 1280",
        trap="every metric but global_step is the mean of the printing interval, in four digits; iteration starts anew each epoch",
        needles=(b"Training epoch ",),
        parser=_Nemo2,
        counts_from=0,
    ),
    Dialect(
        name="nemo-automodel",
        title="NeMo-Automodel",
        source="NVIDIA-NeMo/Automodel nemo_automodel/recipes/llm/train_ft.py",
        example="2026-01-01 10:00:10 | INFO | root | step 10 | epoch 0 | loss 1.2345 | grad_norm 1.0000 | lr 1.00e-05 | "
        "mem 24.00 GiB | tps 16384.00(2048.00/gpu) | num_label_tokens 20000",
        trap="the number in brackets is of one device; num_label_tokens is not what tps counts",
        needles=(b"/gpu)",),
        tokens_vary=True,
        parser=Pattern(
            # Validation lines state no tps.
            record=rb"(?<!\w)step <iteration> \| epoch \d+ \| (?P<fields>[^\r\n]{0,300}?)\| "
            rb"tps <tokens_per_second>\(<tokens_per_second_per_device>/gpu\)",
            fields=(rb"\bloss (?P<lm_loss>[-+\w.]+)", rb"\bgrad_norm (?P<grad_norm>[-+\w.]+)"),
            torn=rb"/gpu\) \| \w{0,16}$",
        ),
    ),
)
