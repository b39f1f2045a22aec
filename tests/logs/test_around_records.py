"""What stands around the records of any log: colours, labels, bars, times of day, words of evaluations, what it says of model and machine."""

import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
from support import megatron_log
from support.reported import Reported
from support.texts import entry_of, log_of

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect, Findings
from nlp_bench.logs.dialects import all_dialects
from nlp_bench.logs.progress_bar import bars, loop_of
from nlp_bench.logs.scan import Line

STEP = "step: 20  loss:  6.1384  grad_norm:  0.5  memory: 49.66GiB(52.28%)  tps: 5,856  tflops: 339.16  mfu: 34.29%\n"


@pytest.mark.parametrize(
    "text",
    [
        b"\x1b[36mstep: 1\x1b[39m",
        b"\x1b[1;38;5;123mstep: 1\x1b[0m\x1b[K",
        b"\x1b]0;title\x07step: 1",
        b"\x1b(Bstep: 1",
        b"^[[36mstep: 1^[[39m",
        rb"\u001b[36mstep: 1\u001b[0m",
        rb"\x1b[36mstep: 1\x1b[0m",
        rb"\033[36mstep: 1\033[0m",
        rb"\e[36mstep: 1\e[0m",
        "\u241b[36mstep: 1\u241b[0m".encode(),
        b"[36mstep: 1[39m",
        b"[0;36mstep: 1[0m",
        b"[1m[34mstep: 1[m",
    ],
)
def test_colours_come_off(text: bytes) -> None:
    assert pieces(text) == [b"step: 1"]


def test_colours_inside_brackets_come_off() -> None:
    assert pieces(b"[[32m20260101 10:00:00[0m][[36mrank-7/8[0m] x") == [b"[20260101 10:00:00][rank-7/8] x"]


@pytest.mark.parametrize(
    "text",
    [
        b"took [10ms] of [5m], [1m30s], [2m 12s] and [30min] or [15m/it]",
        b"[mpi] [megatron/training.py:12] height [m] [4ms, 5ms]",
        b"a[3] [rank0]: [1,0]<stdout>: [titan] q ^[",
    ],
)
def test_words_in_brackets_stay(text: bytes) -> None:
    assert pieces(text) == [text]


def test_a_carriage_return_starts_the_line_anew() -> None:
    assert pieces(b"\r 10%|#  |\r 20%|## |\rdone\r") == [b" 10%|#  |", b" 20%|## |", b"done"]
    assert pieces(b"text\r") == [b"text"]
    assert pieces(b"\r") == []


@pytest.mark.parametrize(
    ("prefix", "label"),
    [
        (b"", b""),
        (b" [2026-01-01 10:00:00.000000] ", b""),
        (b"2026-01-01T10:00:00.123456789Z ", b""),
        (b"[2026-01-01T10:00:00+08:00] ", b""),
        (b"[20260101 10:00:00][rank-7/8][INFO ] ", b"[rank-7/8][INFO ]"),
        (b"Jan  1 10:00:00 node7 ", b"node7"),
        (b"24-11-05 12:34:56.789012 - 3: ", b"- 3:"),
        (b"[default7]: [2026-01-01 10:00:00] ", b"[default7]:"),
        (b" 12:  ", b"12:"),
        (b"[1,3]<stdout>: ", b"[1,3]<stdout>:"),
    ],
)
def test_labels_have_no_time(prefix: bytes, label: bytes) -> None:
    assert label_of(prefix) == label


@pytest.mark.parametrize(
    ("text", "done", "total", "clock_s", "seconds", "loop"),
    [
        (b"  1%|          | 1/100 [00:27<44:53, 27.20s/it]", 1, 100, 27.0, 27.2, "train"),
        (b"100%|##########| 40/40 [00:31<00:00,  1.25it/s, loss=3]", 40, 40, 31.0, 0.8, "train"),
        (b"Train:  50%|#    | 5/10 [1:00:00<1 day, 0:00:01, 50.0s/it]{'loss': 1}", 5, 10, 3600.0, 50.0, "train"),
        (b"0:  50%|#    | 5/10 [00:05<?, ?it/s]", 5, 10, 5.0, None, "train"),
        (b"Epoch 0: :   0%|     | 5/10 [00:05<00:05, v_num=, global_step=4.0]", 5, 10, 5.0, None, "epoch"),
        (b"Epoch 3: : 129it [43:14, 20.11s/it, v_num=0]", 129, None, 2594.0, 20.11, "epoch"),
        (b"Epoch 1/3:  50%|#    | 5/10 [00:05<00:05,  1.00it/s]", 5, 10, 5.0, 1.0, "train"),
        (b"Training Epoch: 3/3, step 5/10 completed (loss: 0.7):  50%|#   | 5/10 [00:05<00:05, 1.00s/it]", 5, 10, 5.0, 1.0, "train"),
        (b"Evaluating:  50%|#    | 5/10 [00:05<00:05,  1.00it/s]", 5, 10, 5.0, 1.0, "other"),
        (b"Validation DataLoader 0:  50%|#    | 5/10 [00:05<00:05,  1.00it/s]", 5, 10, 5.0, 1.0, "other"),
        *(
            (stamp + b" 50%|#    | 5/10 [00:05<00:05,  1.00s/it]", 5, 10, 5.0, 1.0, "train")
            for stamp in (
                b"2026-11-27T03:00:00.123456789Z ", b"2026-11-27T03:00:00.123456Z 01E+", b"2026-11-27T03:00:00.1Z stderr F ",
                b"2026-11-27 03:00:00,123 ", b"03:00:00 ", b"trainer-1  | ", b"2026-11-27 03:00:00 | ",
            )
        ),
        (b"2026-11-27T03:00:00.1Z stderr F Map:  50%|#    | 5/10 [00:05<00:05,  1.00s/it]", 5, 10, 5.0, 1.0, "other"),
        (b"Loading checkpoint shards:  50%|#    | 5/10 [00:05<00:05,  1.00s/it]", 5, 10, 5.0, 1.0, "other"),
    ],
)  # fmt: skip
def test_bar(text: bytes, done: int, total: int | None, clock_s: float, seconds: float | None, loop: str) -> None:
    (bar,) = bars(text)
    assert bar[:4] == (bar.description, done, total, clock_s)
    assert bar.seconds_per_unit == (seconds and pytest.approx(seconds))
    assert loop_of(bar) == loop


@pytest.mark.parametrize(
    "text",
    [
        b"Downloading data:   1%|1         | 4/299 [00:00<00:39, 7.45MB/s]",
        b"Map:  50%|#    | 5000/10000 [00:05<00:05, 2500.00 examples/s]",
        b" 82%|######## | 80/97 [08:32<",
        b"Finished 5/10 [00:05<00:05]",
        b" 50%|#    | 5/10 [00:05<00:05,  1.00it/s, 2.0s]",
    ],
)
def test_no_bar_of_steps(text: bytes) -> None:
    assert not list(bars(text))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("saving checkpoint at iteration 20 to /scratch/run", "checkpoint"),
        ("  successfully saved checkpoint at iteration 20", "checkpoint"),
        ("Saving the checkpoint (or staging if async is enabled).", "checkpoint"),
        ("    save-checkpoint .................: (12.0, 13.0)", "checkpoint"),
        (" validation loss at iteration 20 | lm loss value: 8.1E+00 |", "evaluation"),
        ("evaluating on the validation set", "evaluation"),
        ("[titan] 2026-01-01 10:00:00,000 - root - INFO - validate step: 20  loss:  8.1", "evaluation"),
        ("[default3]: profiling iteration 10 on ranks 0 1", "profiler"),
        ("--profile: profiling iteration by iteration", None),
        ("loading checkpoint from /scratch/run", None),
        ("no checkpoint found in /scratch/saved", None),
        ("--save-checkpoint-interval 100", None),
        ("WARNING: the checkpoint will not be saved", None),
        ("not saving a checkpoint", None),
        ("checkpointing saved activations: full recompute", None),
        ("/scratch/saved/checkpoint_store is mounted", None),
        ("no validation loss is computed", None),
    ],
)
def test_events(tmp_path: Path, text: str, kind: str | None) -> None:
    assert [event.kind for event in log_of(tmp_path, f"{STEP}{text}\n").events] == ([kind] if kind else [])


UNITS = (
    b"1", b" ", b"[1;", b"^[", b"|", b"1/", b"{", b": ", b"'a': 1, ", b"%| 1/2 [00:01<", b':::MLLOG {"key": ', b":::MLLOG [",
    b"| a: 1 ", b"steps: 1 loss: 1 ", b" ....", b"--seq-length ", b"iteration 1/1 |", b"2026-01-01 ", b"12% 1/2 [",
)  # fmt: skip
"""What a careless expression would try in many ways."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "dialect", [dialect for dialect in all_dialects() if dialect.needles], ids=lambda each: each.name
)
def test_long_lines_cost_no_more_than_their_length(dialect: Dialect) -> None:
    parser, findings = dialect.parser(), Findings(dialect)
    begin = time.process_time()
    for unit in UNITS:
        text = b" ".join([*dialect.needles, unit * (30_000 // len(unit)), *dialect.needles])
        parser.take(Line(1, 0, text, True, lambda k, text=text: [text] * min(k, 2)), findings)
    parser.finish(findings)
    assert time.process_time() - begin < 2


BEGIN = datetime(2026, 11, 20, 23, 59, 56, tzinfo=timezone.utc)
FORMS = {
    "Megatron-LM": (" [%Y-%m-%d %H:%M:%S] ", 1.0),
    "Megatron-LM of 2026": (" [%Y-%m-%d %H:%M:%S.%f] ", 0.001),
    "Python's logging": ("%Y-%m-%d %H:%M:%S,250 - INFO - ", 0.01),
    "slashes": ("%Y/%m/%d %H:%M:%S ", 1.0),
    "ISO with a zone": ("%Y-%m-%dT%H:%M:%S.500Z ", 0.1),
    "ISO with an offset": ("%Y-%m-%dT%H:%M:%S-05:00 ", 1.0),
    "behind a rank": ("[default3]:%Y-%m-%d %H:%M:%S ", 1.0),
    "Primus": ("[%Y%m%d %H:%M:%S][rank-7/8] ", 1.0),
    "nanotron": ("%m/%d/%Y %H:%M:%S [INFO|DP=0]: ", 1.0),
    "rich": ("[%m/%d/%y %H:%M:%S] INFO ", 1.0),
    "twice twelve hours": ("%m/%d/%Y %I:%M:%S %p ", 1.0),
    "the same, year first": ("[%Y-%m-%d %I:%M:%S.%f %p] ", 0.001),
    "the same, in small letters": ("%Y-%m-%d %I:%M:%S %P ", 1.0),
    "absl": ("I%m%d %H:%M:%S.123456 140110 ", 1e-6),
    "mmengine": ("%m/%d %H:%M:%S - mmengine - INFO - ", 1.0),
}


def line(n: int, front: str = "", *, is_careful: bool = False, **more: float) -> str:
    """Return a line; the careful parser reads it where it has a colour."""
    text = megatron_log.line(n, 500, front, ms=2000, batch=8, loss=2, skipped=0, nan=0, **more)
    return text.replace("\n", " \x1b[0m\n") if is_careful else text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_careful", [False, True])
def test_stamps_over_midnight(tmp_path: Path, form: str, is_careful: bool) -> None:
    pattern, resolution_s = FORMS[form]
    moments = [datetime.fromtimestamp(BEGIN.timestamp() + 2.001 * n, timezone.utc) for n in range(1, 6)]
    lines = (line(n, moment.strftime(pattern), is_careful=is_careful) for n, moment in enumerate(moments, 1))
    (attempt,) = log_of(tmp_path, lines).attempts
    assert np.diff(attempt.records.column("stamp_s")) == pytest.approx(2.0, abs=0.002)
    assert attempt.records.stamp_resolution_s == resolution_s
    assert attempt.records.column("iteration").tolist() == [1, 2, 3, 4, 5]


def test_the_field_of_the_trainer_is_believed_more(tmp_path: Path) -> None:
    text = line(1, "[2026-11-20 10:00:00] ", stamp=1763639990.5)
    assert log_of(tmp_path, text).attempts[0].records[0].stamp_s == 1763639990.5


@pytest.mark.parametrize(
    "stamp",
    ["", "[default3]: ", "[10:00:00] ", "host 12:00:00:01 ", "2026-02-30 10:00:00 ", f"{'x' * 100} 2026-01-01 10:00:00 "],
)  # fmt: skip
def test_no_stamp(tmp_path: Path, stamp: str) -> None:
    (attempt,) = log_of(tmp_path, line(1, stamp, is_careful=True)).attempts
    assert (attempt.records[0].stamp_s, attempt.records.stamp_resolution_s) == (None, None)


def test_a_stamp_at_some_lines_and_one_line_with_two_records(tmp_path: Path) -> None:
    second = line(2, "[2026-11-20 10:00:00] ").rstrip("\n")
    log = log_of(tmp_path, line(1) + second + line(3, "[default1]: "))
    assert [record.stamp_s is not None for record in log.attempts[0].records] == [False, True, False]


def test_a_bar_has_the_stamp_before_it_never_that_of_the_message_behind_it(tmp_path: Path) -> None:
    drawn = [f"{12 * n}%|#{'#' * n}| {n}/8 [{n // 2:02}:{n % 2 * 30:02}<00:00, 30.0s/it]" for n in range(9)]
    for before, behind, stamps in (("", "2026-01-01 10:00:0{} [WARNING] x", 0), ("[2026-01-01 10:00:0{}] ", "", 9)):
        lines = (f"{before.format(n)}{bar}{behind.format(n)}\n" for n, bar in enumerate(drawn))
        (attempt,) = log_of(tmp_path, lines).attempts
        assert [record.clock_s for record in attempt.records] == [30.0 * n for n in range(9)]
        assert sum(record.stamp_s is not None for record in attempt.records) == stamps


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("Total number of parameters in billions: 8.03", 8.03e9),
        ("number of parameters: 124.34M", 124.34e6),
        ("number parameters: 8.030 billion", 8.03e9),
        ("Model llama3 8B size: 8,030,261,248 total parameters", 8030261248.0),
        ("Number of trainable parameters = 148,796,794", 148796794.0),
        ("total params: 7392727040", 7392727040.0),
        ("step: 1 total para3ms: 3\nstep: 2 total params: 7392727040", 7392727040.0),
        (" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 1557686272", None),
        ("Number of parameters in most loaded shard in billions: 8.0305", None),
        ("Number of parameters in embedding layers in billions: 1.05", None),
        ("number of parameters: 124.34M\nnum_experts ........ 8", None),
        ("number of parameters: 12", None),
    ],
)
def test_parameters(tmp_path: Path, text: str, parameters: float | None) -> None:
    found = log_of(tmp_path, f"{text}\n{STEP}").attempts[0].fact("parameters")
    assert found is None if parameters is None else found == pytest.approx(parameters, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("|   0  NVIDIA H100 80GB HBM3          On  |", "NVIDIA H100 80GB HBM3"),
        ("device: NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"),
        ("using AMD Instinct MI300X for it", "AMD Instinct MI300X"),
        ("NVIDIA Driver Version: 555.42", None),
        ("step: 1 on MI900X\nstep: 2 on MI300X", "MI300X"),  # lines that differ in their digits alone
    ],
)
def test_devices(tmp_path: Path, text: str, device: str | None) -> None:
    fact = log_of(tmp_path, f"{text}\n{STEP}").attempts[0].facts.get("device")
    assert (fact and fact.value) == device


def test_a_step_faster_than_the_accelerators_peak_is_refused(tmp_path: Path) -> None:
    text = f"NVIDIA A100-SXM4-40GB\nTotal number of parameters in billions: 70.0\n{STEP}"
    entry = entry_of(tmp_path, text, num_gpus=8)
    assert (entry.outcome.value, entry.has_number) == ("REFUSED", False)
    assert "more than the 312 of A100" in entry.reason_texts[0]
    assert entry_of(tmp_path, text.replace("70.0", "7.0"), num_gpus=8).outcome.value == "MEASURED"


NEMO = "".join(
    f"Training epoch 0, iteration {i}/99 | global_batch_size: 128 | global_step: {i} | train_step_timing in s: 8.0\n"
    for i in range(4)
)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("GPTConfig(num_layers=32, seq_length=8192, fp8=None)", 131072),
        ("  encoder_seq_length: 2048", 32768),
        ("  model.encoder_seq_length=2048", 32768),
        ("  seq_length: 8192\n  seq_length: 4096", None),
        ("  max_seq_length: 8192", None),
    ],
)
def test_the_printed_configuration_of_nemo(tmp_path: Path, text: str, rate: float | None) -> None:
    for steps, numbers in ((NEMO, (rate, 32)), (STEP, (None, None))):
        entry = entry_of(tmp_path, f"{text}\nGLOBAL_RANK: 0, MEMBER: 1/32\n{steps}")
        assert (entry.steady, entry.num_gpus) == numbers


def test_a_shape_alone_states_no_number_of_parameters(reported: Reported) -> None:
    """What layers of that width have at least serves to doubt a rate; nobody printed it."""
    shape = "  num_layers .................... 40\n  hidden_size ................... 5120\n  seq_length .................... 2048\n"
    same = {"ms": 16700, "batch": 1024}
    lines = "".join(megatron_log.line(n, 200, samples=1024 * n, loss=9 - n / 100, **same) for n in range(1, 21))
    run = reported(f"{shape}{lines}", "--num-gpus", "8")
    assert run["tokens_per_second"]["steady"] == pytest.approx(1024 * 2048 / 16.7)
    assert "num_parameters" not in run["workload"]["logged"]
    run = reported(f"{shape}{lines.replace('16700.0', '2.0')}", "--num-gpus", "8")
    assert run["outcome"] == "REFUSED"
    assert "implausible" in run["reasons"][0]


def test_thousands_of_drawings_without_a_loss_in_one_line_are_read_at_once(tmp_path: Path) -> None:
    drawings = "\r".join(f" {i // 100}% {i}/10000 [10:00<1:13:20, 2.00it/s]" for i in range(1, 8000))
    lines = f"{{'gradient_norm': 1.2,\n 'param_norm': 300.0}}\n{drawings}\n"
    begin = time.process_time()
    assert log_of(tmp_path, lines).num_records == 7999
    assert time.process_time() - begin < 3
