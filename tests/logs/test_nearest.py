"""Formats that nobody knows: a refusal quotes the line that comes nearest and a `--pattern` that reads it.

Every invented program trains with 64 samples of 2048 tokens in 0.512 s: 256 000 tokens per second, 125 samples, 1.953125 steps.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from support.reported import Reported
from support.texts import entries_of

from nlp_bench.cli.main import main


def clock(n: int) -> str:
    return f"10:00:{n * 0.512:06.3f}"


SIZES = {"global_batch_size": 64, "sequence_length": 2048}
FORMATS: dict[str, Callable[[int], str]] = {
    "go_logfmt": lambda n: f'time=2026-05-01T{clock(n)}Z level=info msg="train step" step={n} loss=2.31 duration=512ms',
    "glog": lambda n: f"I0501 {clock(n)} 7 train.cc:42] Step {n} took 512.000ms; loss=2.31",
    "nested_json": lambda n: f'{{"ev": "train", "payload": {{"it": {n}, "xent": 2.31, "step_ms": 512.0, "lr": 1e-4}}}}',
    "single_letters": lambda n: f"TRAIN#{n}: L=2.310 dt=0.512s tok=131072",
    "unit_in_brackets": lambda n: f"iteration: {n} -- time per iteration: 512.0 (ms) -- loss: 2.31",
    "angle_brackets": lambda n: f"<{n}> ppl=10.07 | 125.00 seq/s | 40.1GiB",
    "updates": lambda n: f"update {n}: cost 2.3100, speed 1.953125 updates/sec",
    "running_loss": lambda n: f"epoch=0 batch_idx={n} running_loss=2.31 examples_per_sec=125.00",
    "time_since_start": lambda n: f"t+{n * 0.512:.3f}s step {n} loss 2.31",
    "so_far": lambda n: f"[train] {n} steps done, {n * 0.512:.3f} s so far, {n * 131072} tokens, loss 2.31",
    "in_brackets": lambda n: f"Iter {n} (0.512 sec) loss=2.31 lr=1e-4",
    "hash": lambda n: f"#{n} loss:2.31 tps:256000 mem:40.1GB",
    "rest_of_a_rate": lambda n: f"progress {n} of 4000; s_per_step 0.512; train_nll 2.31",
    "table_with_bars": lambda n: (
        ("| step | loss | lr | ms/step |\n" if n == 1 else "") + f"| {n} | 2.3100 | 1.0e-04 | 512.0 |"
    ),
    "objective": lambda n: f"({n}) objective 2.31 after 0.512s",
    "german": lambda n: f"Schritt {n}: Verlust 2.31, Dauer 0.512 s",
    "parts_and_total": lambda n: f"step {n} | loss 2.31 | fwd 0.150s bwd 0.300s opt 0.062s | total 0.512s",
    "tokens_of_a_batch": lambda n: f"2026/05/01 {clock(n)} train: step {n} tokens/batch=131072 batches/s=1.953125",
    "no_word_but_the_rate": lambda n: f"{n}/4000 2.31 256.0k tok/s",
    "thousands_of_tokens": lambda n: f"epoch 1 - {n}/4000 - ce: 2.3100 - 256.0 ktok/s",
    "time_first": lambda n: f"512.0 ms/step :: step {n} :: loss 2.31",
    "ordinal": lambda n: f"finished the {n}th step with loss=2.31 (took 0.512 s)",
    "no_loss": lambda n: f"step {n} throughput: 256000 tok/s",
    "brackets": lambda n: f"[{n}/900] [loss 2.31] [step_time 512ms] [lr 1e-4]",
    "rate_first": lambda n: f"speed=1.953125 it/s step={n} ce=2.31",
    "samples": lambda n: f"update #{n} >> loss 2.31 >> 125.0 samples/s",
    "sequences": lambda n: f"iter:{n};loss:2.31;seqs_per_sec:125.0",
    "clock": lambda n: f"batch {n} | nll 2.31 | elapsed {n * 0.512:.3f}s",
    "clock_text": lambda n: f"iteration {n * 125}  loss 2.31  wall time 0:{n * 64 // 60:02d}:{n * 64 % 60:02d}",
    "minutes": lambda n: f"step {n * 1000}, loss 2.31, elapsed: {n * 512 / 60:.4f} min",
    "json_like": lambda n: f'METRIC {{"it": {n}, "loss": 2.31, "step_time_ms": 512.0}}',
    "quoted": lambda n: f"{{'batch': '{n}', 'nll': '2.31', 'duration_s': '0.512'}}",
    "arrows": lambda n: f"-> it {n} -> loss -> 2.31 -> dt -> 512 ms",
    "unit_in_name": lambda n: f"Iter={n} Perplexity=10.1 StepTime[s]=0.512",
    "microseconds": lambda n: f"step {n}: loss 2.31, step time 512000 us",
    "eta_behind": lambda n: f"it {n}/900 loss 2.31 time 0.512 s eta 0:{n % 60:02d}:10",
    "tokens_and_time": lambda n: f"step {n} tokens 131072 time 0.512s loss 2.31",
    "table": lambda n: ("step loss step_time_ms\n" if n == 1 else "") + f"{n} 2.31 512.0",
    "tokens_seen": lambda n: f"upd {n} tokens seen {n * 131072} elapsed {n * 0.512:.3f} s iter {n}",
    "seconds_per_step": lambda n: f"<train> global_step {n} <loss> 2.31 <speed> 0.512 s/step",
    "words": lambda n: f"Step {n} done in 0.512 seconds, loss is 2.31",
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_proposed_pattern_gives_the_true_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text = "starting\n" + "".join(FORMATS[name](n) + "\n" for n in range(1, 31))
    (refused,) = entries_of(tmp_path, text)
    said = " ".join(refused.reason_texts)
    assert (refused.outcome.value, refused.steady) == ("REFUSED", None), said
    quoted, option = re.search(r"line (\d+)", said), re.search(r"--pattern=('\S*') reads", said)
    assert quoted, said
    assert option, said
    assert FORMATS[name](int(quoted[1]) - 1).split()[-1] in said or name == "table"
    assert main(["report", str(tmp_path / "some.log")]) == 1
    assert option[0].removesuffix(" reads") in capsys.readouterr().out  # a line is not broken inside it
    pattern = (shlex.split(option[1])[0],)
    entry = entries_of(tmp_path, text, pattern=pattern)[0]
    if not entry.steady:
        assert "(give --" in said
        entry = entries_of(tmp_path, text, pattern=pattern, **SIZES)[0]
    assert entry.steady == pytest.approx(256_000, rel=2e-3), said


def test_of_several_times_none_is_guessed(tmp_path: Path) -> None:
    text = "".join(f"step {n} loss 2.31 kernel time 0.3 s network time 0.2 s\n" for n in range(1, 9))
    said = " ".join(entries_of(tmp_path, text)[0].reason_texts)
    assert "line 5" in said
    assert "--pattern '" not in said


def test_a_line_with_a_number_sign_and_no_number_is_no_training_line(reported: Reported) -> None:
    """The colours of an image (`fill="#a1b"`) took the place of a number."""
    assert reported(['<path fill="#a1b" id="x1f77b4"/>'] * 9)["outcome"] == "REFUSED"
