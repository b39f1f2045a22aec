"""What stands around the records of any log: colours, labels, bars, words of evaluations and checkpoints, lines without meaning."""

import time
from pathlib import Path

import pytest
from support.texts import log_of

from nlp_bench.logs.clean import label_of, pieces
from nlp_bench.logs.dialect import Dialect, Findings
from nlp_bench.logs.dialects import all_dialects
from nlp_bench.logs.progress_bar import bars, loop_of
from nlp_bench.logs.scan import Line


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
    assert pieces(b"text^M") == [b"text"]
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
    step = "step: 20  loss:  6.1384  memory: 49.66GiB(52.28%)  tps: 5,856  mfu: 34.29%"
    assert [event.kind for event in log_of(tmp_path, f"{step}\n{text}\n").events] == ([kind] if kind else [])


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
