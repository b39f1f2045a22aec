"""What fixtures cannot say of bars and events: single values, and lines that would take a careless reader hours."""

import time

import pytest

from nlp_bench.logs.dialects import all_dialects
from nlp_bench.logs.findings import Findings
from nlp_bench.logs.progress_bar import bars, loop_of
from nlp_bench.logs.scan import Line

NAMES = ("deepspeed", "deepspeed-chat-rlhf", "hf-trainer", "lightning", "mlperf-mllog", "nemo-1", "nemo-2", "tqdm")


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
        (
            b"Training Epoch: 3/3, step 5/10 completed (loss: 0.7):  50%|#   | 5/10 [00:05<00:05,  1.00s/it]",
            5,
            10,
            5.0,
            1.0,
            "train",
        ),
        (b"Evaluating:  50%|#    | 5/10 [00:05<00:05,  1.00it/s]", 5, 10, 5.0, 1.0, "other"),
        (b"Validation DataLoader 0:  50%|#    | 5/10 [00:05<00:05,  1.00it/s]", 5, 10, 5.0, 1.0, "other"),
        (b"Loading checkpoint shards:  50%|#    | 5/10 [00:05<00:05,  1.00s/it]", 5, 10, 5.0, 1.0, "other"),
    ],
)
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
    ],
)
def test_no_bar_of_steps(text: bytes) -> None:
    assert not list(bars(text))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "unit",
    [
        b"1",
        b" ",
        b"1/",
        b"{",
        b"'a': 1, ",
        b"%| 1/2 [00:01<",
        b':::MLLOG {"key": ',
        b":::MLLOG [",
        b"| a: 1 ",
        b"steps: 1 loss: 1 ",
    ],
)
def test_long_lines_cost_no_more_than_their_length(name: str, unit: bytes) -> None:
    (dialect,) = (d for d in all_dialects() if d.name == name)
    body = unit * (1_000_000 // len(unit))
    text = b" ".join([*dialect.needles, body, *dialect.needles])
    parser, findings = dialect.parser(), Findings(dialect)
    begin = time.process_time()
    parser.take(Line(1, 0, text, True, lambda k: [text] * min(k, 2)), findings)
    parser.finish(findings)
    assert time.process_time() - begin < 5
