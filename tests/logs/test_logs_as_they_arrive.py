"""Logs as they arrive: rotated, quoted, stamped by collectors, cut, with real noise; and what their numbers then say."""

import datetime as dt
import gzip
import json
import lzma
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.reported import Reported
from support.samples import FOLDER

from nlp_bench.cli.main import main

Capture = pytest.CaptureFixture[str]
TOKENS = 64 * 2048
MEGATRON = (
    "iteration {n:8d}/{total:8d} | consumed samples: {samples:12d} | elapsed time per iteration (ms): {ms:.1f} | "
    "global batch size:    64 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 1.000 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)
TITAN = "[titan] 2026-03-02 {clock} - root - INFO - step: {n:2d}  loss: 9.0  grad_norm:  1.0  memory: 40.00GiB(50.00%)  tps: {rate:,}  tflops: 20.00  mfu: 2.00%"
SIZES = ["--sequence-length", "2048", "--num-gpus", "16"]
STEP = r"step (?P<iteration>\d+) \| loss (?P<lm_loss>[\d.]+) \| (?P<elapsed_s>[\d.]+) s"


def megatron(times: Iterable[float], first: int = 1, total: int = 0) -> Iterator[str]:
    values = list(times)
    for n, seconds in enumerate(values, first):
        form = {"n": n, "total": total or len(values), "samples": 64 * n, "ms": 1000 * seconds, "loss": 7 - n / 1000}
        yield MEGATRON.format(**form)


def what_counts(found: dict[str, Any]) -> list[Any]:
    return [
        found[name] for name in ("outcome", "sequence_length", "num_gpus", "global_batch_size", "tokens_per_second")
    ]


def noise(number: int, seed: int = 1) -> "np.ndarray[Any, np.dtype[np.float64]]":
    return 5 * (1 + 0.01 * np.random.default_rng(seed).standard_normal(number))


def test_a_stall_in_a_log_of_rates_costs_the_time_that_it_took(reported: Reported) -> None:
    times = noise(300) / 10
    times[25::50] += 4.0  # a step of eight times the usual time
    rates = (round(TOKENS / 8 / seconds) for seconds in times)
    lines = (TITAN.format(n=n, rate=rate, clock="10:00:00,000") for n, rate in enumerate(rates, 1))
    found = reported(lines, "--num-gpus", "8")
    window = times[found["window"]["first_iteration"] - 1 : found["window"]["last_iteration"]]
    assert found["tokens_per_second"]["steady"] == pytest.approx(TOKENS / window.mean(), rel=1e-4)


@pytest.mark.parametrize("where", [(), range(49, 300, 50), range(149, 150), range(200, 300), range(100, 300)])
def test_rates_without_times_are_held_against_the_clock_of_their_lines(
    reported: Reported, where: Sequence[int]
) -> None:
    times, outside = noise(300) / 10, np.zeros(300)
    # Stalls, or a restart with fewer devices, each of which is as fast as before.
    outside[list(where)] = 15.0 if len(where) < 50 else times[list(where)] / 3
    clock = np.datetime64("2026-01-01T10:00:00") + (1000 * np.cumsum(times + outside)).astype("timedelta64[ms]")
    lines = [
        TITAN.format(n=n, rate=round(TOKENS / 8 / seconds), clock=str(end)[11:].replace(".", ",")).replace(
            "loss: 9.0", f"loss: {9 - n / 300:.5f}"
        )
        for n, (seconds, end) in enumerate(zip(times, clock, strict=True), 1)
    ]
    truth = 20e6 / TOKENS * float((times + outside).mean())
    found = reported(lines, "--num-gpus", "8", "--limit", str(0.99 * truth))
    assert found["verdict"]["verdict"] == ("NOT PROVEN" if where else "FAIL")
    codes = {each["code"] for each in found["contradictions"]}
    assert codes <= {"WALL_CLOCK_OUTSIDE", "STAMPS_VS_TIME_SLOW", "STAMPS_VS_TIME_FAST"}
    assert bool(codes) == bool(where)


@pytest.mark.parametrize(
    ("is_by_hand", "ramp", "weight"), [(True, 16, "DOUBT"), (False, 16, "VOID"), (True, 64, None), (False, 64, None)]
)
def test_one_batch_for_all_lines_of_a_ramp_up_contradicts_what_was_consumed(
    reported: Reported, ramp: int, weight: str | None, *, is_by_hand: bool
) -> None:
    lines, samples = [] if is_by_hand else ["--- arguments ---", "  global_batch_size .............. 64"], 0
    for n, seconds in enumerate(noise(60), 1):
        batch = ramp if n <= 40 else 64
        samples += batch
        line = MEGATRON.format(n=n, total=60, samples=samples, ms=1000 * seconds * batch / 64, loss=10 - n / 60)
        field = "global batch size:    64 | "
        lines.append(line.replace(field, field.replace("64", str(batch)) if is_by_hand else ""))
    found = reported(lines, *SIZES, *(["--global-batch-size", "64"] if is_by_hand else []))
    codes = [(each["code"], each["weight"]) for each in found["contradictions"]]
    assert codes == ([("SAMPLES_VS_BATCH", weight)] if weight else [])


@pytest.mark.parametrize("has_stamps", [False, True])
@pytest.mark.parametrize("event", ["", "  successfully saved checkpoint from iteration {n:7d} to /scratch/run"])
def test_checkpoints_whose_time_nobody_states_keep_no_sustained_limit(
    reported: Reported, event: str, *, has_stamps: bool
) -> None:
    lines, clock = [], dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    for n, seconds in enumerate(noise(60) / 10, 1):
        clock += dt.timedelta(seconds=seconds)
        stamp = f"[{clock:%Y-%m-%d %H:%M:%S}] " if has_stamps else ""
        line = MEGATRON.format(n=n, total=60, samples=64 * n, ms=1000 * seconds, loss=10 - n / 60)
        lines += [stamp + line, *([event.format(n=n)] if event and n % 20 == 0 else [])]
    found = reported(lines, *SIZES, "--limit", "100")
    assert found["verdict"]["verdict"] == "PASS"
    assert found["verdict"]["sustained"] == ("NOT PROVEN" if event and not has_stamps else "PASS")


def test_times_that_are_rounded_to_one_digit_prove_nothing_within_that_digit(
    tmp_path: Path, capsys: Capture, reported: Reported
) -> None:
    times = np.full(200, 0.341)
    times[20::60] = 0.9  # three stalls, which even out no rounding
    log = tmp_path / "coarse.log"
    log.write_text("\n".join(f"step {n} | loss 2.{n} | {seconds:.1f} s" for n, seconds in enumerate(times, 1)))
    words = ["--sequence-length", "2048", "--global-batch-size", "64", "--pattern", STEP]
    found = reported(log, *words, "--limit", "50")
    low, high = found["time_to_report_s"]["ci95"]
    truth = 20e6 * times[1:].mean() / TOKENS
    assert low < truth < high
    assert found["verdict"]["verdict"] == found["verdict"]["sustained"] == "NOT PROVEN"
    main(["report", str(log), *words, "--explain"])
    assert "may all be rounded the same way: +-16 % of it" in " ".join(capsys.readouterr().out.split())
    log.write_text(log.read_text().replace("0.3 s", "0.341 s"))  # in thousandths nothing is hidden
    low, high = reported(log, *words)["time_to_report_s"]["ci95"]
    assert (high - low) / truth < 0.1


def test_summer_time_begins_in_a_log(reported: Reported) -> None:
    times, clock = noise(300) * 2, 3600 + 37 * 60.0
    lines = []
    for n, line in enumerate(megatron(times), 1):
        clock += times[n - 1] + 0.001 + (3600 if n == 150 else 0)
        lines.append(
            f" [2025-03-30 {int(clock) // 3600:02d}:{int(clock) % 3600 // 60:02d}:{int(clock) % 60:02d}] {line}"
        )
    found = reported(lines, *SIZES, "--limit", "2000")
    truth = 20e6 * times[1:].mean() / TOKENS
    assert found["sustained"]["time_to_report_s"] == pytest.approx(truth, rel=0.01)
    assert found["sustained"]["clock"] == "time of day of the lines, less the hour by which it was set forward"
    # It may have been a job that stood still: a limit that only holds without the hour is proven by neither number.
    verdict = reported(lines, *SIZES, "--limit", f"{1.3 * truth}")["verdict"]
    assert verdict["verdict"] == verdict["sustained"] == "NOT PROVEN"


def test_a_date_in_the_name_before_each_line_is_said_to_be_no_clock(reported: Reported) -> None:
    found = reported((f"[run 2026-01-05 10:00:00] {line}" for line in megatron(noise(100))), *SIZES)
    assert "give the log without that name" in found["reasons"][0]


@pytest.mark.parametrize(
    ("day", "form"),
    [
        ("2026-01-05", "%d/%m/%Y %H:%M:%S"),
        ("2026-01-30", "%y/%m/%d %H:%M:%S INFO"),
        ("2027-02-28", "I%m%d %H:%M:%S.%f 1"),
        ("2028-02-28", "I%m%d %H:%M:%S.%f 1"),
        ("2028-02-29", "I%m%d %H:%M:%S.%f 1"),
    ],
)
def test_midnight_between_dates_with_the_day_first_is_no_month(reported: Reported, day: str, form: str) -> None:
    """Nor is one between other dates whose order or year is not known: two digits each with the year first, and without a year."""
    times, clock = noise(300), dt.datetime.fromisoformat(f"{day} 23:50:00+00:00")
    lines = []
    for seconds, line in zip(times, megatron(times), strict=True):
        clock += dt.timedelta(seconds=seconds + 0.001)
        lines.append(f"{clock:{form}} {line}")
    found = reported(lines, *SIZES)
    assert found["outcome"] == "VALID"
    assert found["sustained"]["time_to_report_s"] == pytest.approx(20e6 * times[1:].mean() / TOKENS, rel=0.01)


@pytest.mark.parametrize("has_stamps", [False, True])
def test_parts_of_a_rotated_log_in_the_wrong_order_are_refused(reported: Reported, has_stamps: bool) -> None:
    lines = [
        f"[2026-03-02 10:{n // 12:02d}:{5 * n % 60:02d}] {line}" if has_stamps else line
        for n, line in enumerate(megatron(noise(60)))
    ]
    found = reported([*lines[40:], *lines[20:40], *lines[:20]], *SIZES)
    assert found["outcome"] == "REFUSED"
    assert reported(lines, *SIZES)["outcome"] == "VALID"
    if has_stamps:  # a training that began anew, and was ended where the one before it had gone on
        anew = [*lines[40:], *(line.replace("02 10", "03 10") for line in lines[:40])]
        assert reported(anew, *SIZES)["outcome"] != "REFUSED"


@pytest.mark.parametrize(
    ("order", "where"),
    [
        ((*range(9), 10, 9, *range(11, 30), 31, 30, *range(32, 60)), "iteration 11 in line 10 and iteration 10 in line 11"),
        ((*range(5), *range(45, 60), *range(5, 45)), "iteration 60 in line 20 and iteration 6 in line 21"),
    ],
    ids=["neighbours", "parts by name: 1, 10 to 12, 2 to 9"],
)  # fmt: skip
def test_lines_that_are_not_in_the_order_of_time_are_refused(
    reported: Reported, order: tuple[int, ...], where: str
) -> None:
    lines, stamps = [*megatron(noise(60))], [f"[2026-03-02 10:{n // 12:02d}:{5 * n % 60:02d}]" for n in range(60)]
    found = reported([f"{stamps[n]} {lines[n]}" for n in order], *SIZES)
    assert found["outcome"] == "REFUSED"
    assert where in found["reasons"][0]
    anew = reported([f"{stamp} {lines[n]}" for stamp, n in zip(stamps, order, strict=True)], *SIZES)
    assert anew["outcome"] != "REFUSED"


@pytest.mark.parametrize(
    ("form", "pattern"),
    [("iter {}: loss 2.{}, time 4{}.00ms, mfu 45.00%", ()), ("step {} | loss 2.{} | 4.{} s", ("--pattern", STEP))],
)
def test_a_log_whose_lines_were_sorted_is_refused_with_the_way_to_put_them_right(
    reported: Reported, form: str, pattern: tuple[str, ...]
) -> None:
    lines, options = [form.format(n, n, n % 7) for n in range(200)], ("--global-batch-size", "64", *SIZES, *pattern)
    found = reported(sorted(lines), *options)
    assert found["outcome"] == "REFUSED"
    again = [*lines[:100], *lines[80:150], *lines[110:]]  # a training that began twice anew
    assert reported(again, *options)["outcome"] != "REFUSED"


DUMP = ("------------------------ arguments ------------------------", "  seq_length ...................................... 2048", "  world_size ...................................... 16", "-------------------- end of arguments ---------------------")  # fmt: skip


@pytest.mark.parametrize(
    "form",
    ['{{"log":"{}\\n","stream":"stdout"}}', '{{"@timestamp": "2026-03-02", "log": "{}\\n", "kubernetes": {{"pod_name": "a-0"}}}}',
     '{{"_index":"a","_source":{{"message":"{}","host":{{"name":"n1"}}}}}}', '{{"labels":{{"pod":"a-0"}},"line":"{}"}}'],
)  # fmt: skip
def test_the_settings_of_a_log_are_read_in_what_carried_it(reported: Reported, form: str) -> None:
    lines = [*DUMP, *(f" {line}" for line in megatron(noise(40)))]
    carried, bare = reported(form.format(line) for line in lines), reported(lines)
    assert what_counts(carried) == what_counts(bare)


@pytest.mark.slow
@pytest.mark.parametrize(("form", "between"), [("[{}]", ", "), ('{{"events":[{}]}}', ",")])
def test_a_list_of_json_in_one_line_is_read_whole(reported: Reported, tmp_path: Path, form: str, between: str) -> None:
    """Its line is longer than one that is read whole, and its second half is slower."""
    lines = [*DUMP, *(f" {line}" for line in megatron(noise(60) * np.repeat([1, 2], 30)))]
    text = form.format(between.join(json.dumps({"line": line, "labels": {"pod": "a" * 20_000}}) for line in lines))
    carried, bare = reported(text), reported(lines)
    assert what_counts(carried) == what_counts(bare)
    assert text[carried["provenance"]["first_record"]["offset"] :].startswith('{"line": " iteration')
    packed = tmp_path / "list.json.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert reported(packed)["tokens_per_second"] == bare["tokens_per_second"]


@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the samples")
def test_a_cut_last_line_takes_no_time_from_the_first(reported: Reported) -> None:
    cut = (FOLDER / "samples/internevo__InternEvo__7B_demo_rst.log").read_bytes()[:4964].decode()
    # Within the last line, behind its rate and before its tokens.
    one, two = (reported(text, "--num-gpus", "8") for text in (cut.rpartition("\n")[0] + "\n", cut))
    assert two["tokens_per_second"]["reference"] == one["tokens_per_second"]["reference"]


def test_a_comparison_says_which_run_was_ended_before_its_time(tmp_path: Path, capsys: Capture) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    for seed in range(3):
        (runs / f"run{seed}.log").write_text("\n".join((*DUMP, *megatron(noise(100, seed)))) + "\n")
    lines = [*DUMP, *megatron(noise(100, 7))][: len(DUMP) + 60]
    stopped = tmp_path / "stopped.log"
    lines.append("slurmstepd: error: *** JOB 4711 ON node017 CANCELLED AT 2026-04-08T02:10:00 DUE TO TIME LIMIT ***")
    stopped.write_text("\n".join(lines))
    main(["compare", str(runs), str(stopped), "--same-workload"])
    why = "the run was ended from outside (TIMEOUT): the log stops at iteration 60 of 100"
    assert f"B: {stopped} is MEASURED: {why}" in capsys.readouterr().out


@pytest.mark.parametrize("number", [120, 600])
def test_lines_that_a_collector_stamps_by_the_block_contradict_nothing(reported: Reported, number: int) -> None:
    """A program whose output is a pipe writes 8 KiB at a time, and the rest when it ends, some seconds after its last iteration."""
    times = noise(number) / 6
    start = dt.datetime(2026, 3, 2, 10, tzinfo=dt.timezone.utc)
    ends, block, written = np.cumsum(times), [], []
    for end, line in zip(ends, megatron(times), strict=True):
        block.append(line)
        if sum(map(len, block)) > 8192:
            written += [(end, each) for each in block]
            block = []
    written += [(ends[-1] + 4, each) for each in block]
    stamped = (
        ((start + dt.timedelta(seconds=float(end))).isoformat(timespec="microseconds"), line) for end, line in written
    )
    lines = (f"{stamp.removesuffix('+00:00')}Z {line}" for stamp, line in stamped)
    found = reported(lines, *SIZES, "--limit", "140")
    assert (found["outcome"], found["verdict"]["verdict"], found["reasons"]) == ("VALID", "PASS", [])
    # Times that add up to more than passed are no matter of blocks.
    fast = ((start + dt.timedelta(seconds=float(end) / 3), line) for end, line in written)
    lines = (f"{stamp.isoformat(timespec='seconds')[:-6]}Z {line}" for stamp, line in fast)
    assert any("their times add up to" in reason for reason in reported(lines, *SIZES)["reasons"])


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_finished_run_of_the_trainer_has_the_steady_time_of_its_bar(reported: Reported, is_finished: bool) -> None:
    """The summary alone has the evaluation in one mean, without an interval; a run that was killed before it said more."""
    times, lines, clock = noise(300) * 0.8, [], 0.0
    for n, seconds in enumerate(times if is_finished else times[:290], 1):
        clock += float(seconds)
        passed = f"{int(clock) // 60:02d}:{int(clock) % 60:02d}"
        lines.append(f"{100 * n // 300:3d}%|####      | {n}/300 [{passed}<00:10,  4.00s/it]")
        if n % 10 == 0:
            lines.append(f"{{'loss': {3 - n / 200:.4f}, 'grad_norm': 1.1, 'learning_rate': 5e-05, 'epoch': {n / 100}}}")
        if n == 150:
            clock += 90
            lines.append("{'eval_loss': 2.9, 'eval_runtime': 90.0, 'eval_samples_per_second': 79.6, 'epoch': 1.5}")
    if is_finished:
        lines.append(
            f"{{'train_runtime': {clock + 1:.4f}, 'train_samples_per_second': 14.4, 'train_loss': 2.1, 'epoch': 3.0}}"
        )
    found = reported(lines, "--sequence-length", "2048", "--global-batch-size", "64", "--num-gpus", "8")
    assert found["outcome"] == ("VALID" if is_finished else "MEASURED")
    low, high = found["tokens_per_second"]["ci95"]
    assert low < TOKENS / times[1:].mean() < high
    assert found["window"]["num_records"] > 20


LOG = "".join(f"{line}\n" for line in megatron(noise(50)))


@pytest.mark.parametrize(
    "content",
    [
        b"%PDF-1.7\n%\xe2\xe3\n1 0 obj\n", b"PK\x03\x04" + bytes(26) + b"[Content_Types].xml" + bytes(99),
        b"\x89PNG\r\n\x1a\n" + bytes(99), LOG.encode("utf-16"), LOG.encode("utf-16-be"), gzip.compress(LOG.encode("utf-16")),
        lzma.compress(gzip.compress(LOG.encode())),
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    ],
    ids=["pdf", "docx", "png", "utf-16", "utf-16-be", "utf-16 packed", "packed twice", "git-lfs"],
)  # fmt: skip
def test_what_is_no_text_is_refused_as_that(reported: Reported, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log").write_bytes(content)
    found = reported(tmp_path / "log", *SIZES)
    assert (found["outcome"], found["num_records"]) == ("REFUSED", 0)
    assert found["reasons"][0].startswith("no training line; ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "starting\n[11/28/26 10:00:00] INFO     iteration 1/ 4 | consumed     training.py:90\n" + 30 * " " + "samples: 64 | lm loss: 9.0 |\n",
            "its lines are wrapped as on a terminal, by Python's rich: let the training write with COLUMNS=400",
        ),
    ],
)  # fmt: skip
def test_the_form_that_hides_the_training_lines_is_named(reported: Reported, text: str, said: str) -> None:
    assert reported(text)["reasons"][0].startswith(f"no training line; {said}")


@pytest.mark.parametrize(
    "text",
    [
        '{\n  "hidden_size": 64,\n  "step": 3\n}\n',
        "[11/28/26 10:00:00] INFO     started     main.py:9\n" + 30 * " " + "on 8 GPUs\n",
    ],
)
def test_a_configuration_or_another_programs_messages_are_passed_over(
    reported: Reported, tmp_path: Path, text: str
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/other").write_text(text)
    (tmp_path / "logs/a.log").write_text("".join(f"{line}\n" for line in megatron(noise(50))))
    assert reported(tmp_path / "logs", *SIZES)["num_records"] == 50  # of one run


def test_lines_whose_sequence_length_grows_agree_with_their_own_tokens(reported: Reported) -> None:
    """A curriculum of Megatron-DeepSpeed: its tokens were held against the length of the last line, and the log was INVALID."""
    lines, tokens = list[str](), 0
    for n in range(10, 1001, 10):
        length = min(2048, 64 * (1 + n // 25))
        tokens += 10 * 256 * length
        lines.append(
            f" iteration {n:8d}/    1000 | consumed samples: {256 * n:12d} | consumed tokens: {tokens:14d} | elapsed time per iteration (ms): "
            f"{length / 2.048:.1f} | learning rate: 6.000E-06 | global batch size:   256 | lm loss: {10 - n / 200:.6E} | loss scale: 1.0 | "
            f"grad norm: 1.0 | actual seqlen: {length:5d} | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        )
    run = reported("".join(lines))
    assert run["outcome"] == "VALID"
    assert run["tokens_per_second"]["steady"] == pytest.approx(256 * 2048, rel=1e-3)
