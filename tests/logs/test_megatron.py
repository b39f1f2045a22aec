"""The line of Megatron-LM: units, prefixes, cut and wrapped fields, two roads to the same values, facts around it."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.texts import log_of

from nlp_bench.logs.dialect import Dialect, Findings
from nlp_bench.logs.dialects import all_dialects
from nlp_bench.logs.dialects.megatron import CAREFUL, CLEAN, PROGRAM, grammar
from nlp_bench.logs.record import Log, LogRecord
from nlp_bench.logs.scan import Line, Scanner
from nlp_bench.logs.source import Block

S_LINE = (
    "iteration       10/ 3125000 | consumed samples:          960 | elapsed time per iteration (s): 7.2310 | "
    "learning rate: 4.438E-07 | global batch size:    96 | lm loss: 1.010967E+01 | loss scale: 4096.0 | "
    "grad norm: 178.553 | number of skipped iterations:   0 | number of nan iterations:   0 | "
    "samples per second: 13.276 | TFLOPs: 101.54 | model TFLOP/s/GPU: 99.25 | tokens per second: 27189.6 |"
)


def family() -> Dialect:
    return next(dialect for dialect in all_dialects() if dialect.name == "megatron-lm")


def careful(text: str, *, is_ended: bool = True, following: tuple[str, ...] = ()) -> Log:
    """What the parser, without the scanner, makes of one line."""
    findings, parser = Findings(family()), family().parser()
    line = Line(1, 0, text.encode(), is_ended, lambda count: [after.encode() for after in following[:count]])
    parser.take(line, findings)
    parser.finish(findings)
    return findings.result(num_bytes=len(text), damage=None, common={})


def parse(text: str, *, is_ended: bool = True, following: tuple[str, ...] = ()) -> list[LogRecord]:
    log = careful(text, is_ended=is_ended, following=following)
    return [record for attempt in log.attempts for record in attempt.records]


def facts(tmp_path: Path, *lines: str) -> dict[str, float | str]:
    (attempt, *_) = log_of(tmp_path, (f"{line}\n" for line in (*lines, S_LINE))).attempts
    return {name: fact.value for name, fact in attempt.facts.items()}


def test_fields_that_no_figure_needs() -> None:
    (record,) = parse("[default3]: " + S_LINE)
    assert (record.grad_norm, record.model_tflops, record.total_iterations) == (178.553, 99.25, 3125000)


@pytest.mark.parametrize(
    ("one", "two", "is_same"),
    [
        ("", "", True),
        (" [2026-01-01 10:00:00.000000] ", "", True),
        ("[default7]: [2026-01-01 10:00:00] ", "[default7]: [2026-01-01 10:00:01] ", True),
        (" 12:  ", " 13:  ", False),
        ("[rank0]: ", "[rank1]: ", False),
        ("[1,3]<stdout>: ", "[1,4]<stdout>: ", False),
        ("node01: ", "node02: ", False),
        ("[20]: ", "[200]: ", False),
        ("[2026/11/20 08:00:02.123] [default3]: ", "  [default3]:", True),
    ],
)
def test_the_words_in_front_tell_the_process(tmp_path: Path, one: str, two: str, is_same: bool) -> None:
    # A process that prints an iteration again with another time has started anew; another process only echoes.
    log = log_of(tmp_path, f"{one}{S_LINE}\n{two}{S_LINE.replace('7.2310', '7.5')}\n")
    assert (len(log.attempts), log.num_echoes) == ((2, 0) if is_same else (1, 1))


def test_a_cut_line_is_never_whole_and_never_gives_a_part_of_a_number() -> None:
    for record in (record for length in range(len(S_LINE)) for record in parse(S_LINE[:length], is_ended=False)):
        assert not record.is_whole
        assert record.elapsed_s in {None, 7.2310}
        assert record.global_batch_size in {None, 96}
        assert record.lm_loss in {None, 10.10967}
        assert record.samples_per_second in {None, 13.276}


def test_two_records_on_one_line() -> None:
    first, second = parse(S_LINE + "[default1]: " + S_LINE.replace("10/", "20/", 1))
    assert (first.iteration, second.iteration, second.is_whole) == (10, 20, True)


def test_a_spliced_number_is_not_believed() -> None:
    (record,) = parse(S_LINE.replace("consumed samples:          960", "consumed samples: 9[rank1] warning 60"))
    assert (record.consumed_samples, record.is_whole) == (None, False)
    assert parse(S_LINE.replace("(s): 7.2310", "(s): 7.2[rank1] warning 310"))[0].elapsed_s is None


def test_the_validation_line_is_no_record() -> None:
    (record,) = parse(S_LINE + " validation loss at iteration 10 | lm loss value: 99.0 | lm loss PPL: 10.4 | ")
    assert (record.lm_loss, record.is_whole) == (10.10967, True)


def test_lines_of_others_that_look_alike() -> None:
    assert parse("iteration: 10 / 100 | elapsed_time_per_iteration_ms: 2200.0 | lm_loss: 2 |") == []
    log = careful("iteration 10/ 100 | images: 12 | accuracy: 0.5 |")
    assert (log.dialect, log.num_unreadable) == (None, 0)


@pytest.mark.parametrize("width", range(40, 300))
def test_a_record_that_was_wrapped_anywhere_is_one_record(width: int) -> None:
    (whole,) = parse(S_LINE)
    parts = [S_LINE[i : i + width] for i in range(0, len(S_LINE), width)]
    ends = {"".join(parts[:n]).rstrip()[-26:] for n in range(1, len(parts))}
    if "|" not in parts[0] or "of nan iterations:   0 |" in {end[-24:] for end in ends}:
        return  # nothing tells that the number of the iteration is complete, or that anything follows
    (record,) = parse(parts[0], following=(*parts[1:], "[default3]: " + S_LINE.replace("10/", "20/", 1)))
    assert record == whole


def test_a_record_that_was_wrapped_at_blanks_is_one_record() -> None:
    (whole,) = parse(S_LINE)
    lines = re.findall(r".{1,79}(?: |$)", S_LINE)
    (record,) = parse(lines[0].rstrip(), following=tuple(line.rstrip() + "\r" for line in lines[1:]))
    assert record == whole


@pytest.mark.parametrize(
    "after",
    [
        "[default1]: warning | global batch size:    8 | number of nan iterations: 0 |",
        "5 warnings | number of nan iterations: 0 |",
        "[default3]: " + S_LINE,
        "time (ms) | forward: 92.25 | optimizer: 42.31",
        "",
    ],
)
def test_a_cut_record_takes_no_words_of_other_lines(after: str) -> None:
    cut = S_LINE[: S_LINE.index("global batch")]
    (record,) = parse(cut + "global bat", following=(after, S_LINE))
    assert (record.iteration, record.global_batch_size, record.num_nan, record.is_whole) == (10, None, None, False)


@pytest.mark.parametrize(
    ("field", "name", "value", "program"),
    [
        ("throughput (token/sec/GPU): 142.6", "tokens_per_second_per_device", 142.6, "megatron-lm"),
        ("tokens/s/GPU inst/harmonic mean: 25032.8/22288.1", "tokens_per_second_per_device", 25032.8, "primus"),
        ("lm-loss: 1.5E+00", "lm_loss", 1.5, "megatron-deepspeed"),
        ("actual seqlen:  2048", "sequence_length", 2048, "megatron-deepspeed"),
        ("approx flops per GPU: 68.3TFLOPS", "tflops", None, "gpt-neox"),
    ],
)
def test_fields_of_forks(field: str, name: str, value: float, program: str) -> None:
    log = careful(f"iteration 1/ 10 | {field} | elapsed time per iteration (ms): 14.8 | number of nan iterations: 0 |")
    (record,) = log.attempts[0].records
    assert (getattr(record, name), record.is_whole, log.dialect) == (value, True, program)


def rows(text: str) -> list[dict[str, float]]:
    """What the scanner makes of one line."""
    data = bytearray(text.encode() + b"\n")
    scanner = Scanner(family().needles, grammar())
    [(found, _)] = scanner.scan(Block(data, 0, len(data), len(data), 0, 1, is_last=True))
    findings = Findings(family())
    findings.rows(found)
    log = findings.result(num_bytes=len(data), damage=None, common={})
    return [values_of(record) for attempt in log.attempts for record in attempt.records]


def values_of(record: LogRecord) -> dict[str, float]:
    places = {"line_number", "offset", "is_whole"}
    values = {name: getattr(record, name) for name in vars(record) if name not in places}
    return {name: value for name, value in values.items() if value is not None}


NUMBERS = st.one_of(
    st.integers(0, 10**12).map(str),
    st.floats(0, 1e9, allow_nan=False).map(lambda x: f"{x:.3f}"),
    st.floats(0, 1e9, allow_nan=False).map(lambda x: f"{x:.6E}"),
    st.sampled_from(["nan", "1.5/1.4", "1.2B", "", "0", "-1.0"]),
)
FIELDS = st.sampled_from([key.decode() for key in (*CLEAN, *CAREFUL)] + ["learning rate", "num zeros", "loss scale"])


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(st.tuples(FIELDS, NUMBERS), max_size=8), st.integers(1, 9999))
def test_both_roads_read_a_clean_line_alike(fields: list[tuple[str, str]], iteration: int) -> None:
    fields = [("elapsed time per iteration (ms)", "12.5"), *fields, ("number of nan iterations", "  0")]
    text = f" iteration {iteration:8d}/{9999:8d} |" + "".join(f" {key}: {value} |" for key, value in fields)
    fast = rows(text)
    if fast:
        assert fast == [values_of(record) for record in parse(text)]


def test_a_field_that_names_a_program_is_no_row_of_the_scanner() -> None:
    tail = " elapsed time per iteration (ms): 12.5 | number of nan iterations:   0 |"
    for key in (*CAREFUL, *(key for key in CLEAN if key in PROGRAM)):
        if key == b"lm-loss":
            continue  # an early name; the program is known by what surrounds it
        assert rows(f" iteration 1/ 2 | {key.decode()}: 1 |{tail}") == [], key
    assert len(rows(f" iteration 1/ 2 |{tail}")) == 1


def test_the_dump_is_believed_more_than_a_command_line(tmp_path: Path) -> None:
    found = facts(
        tmp_path,
        "+ python pretrain.py --seq-length 1024 --global-batch-size 8 --log-interval 10",
        "------------------------ arguments ------------------------",
        "  seq_length ...................................... 2048",
        "  world_size ...................................... 64",
        "-------------------- end of arguments ---------------------",
    )
    expected = {"sequence_length": 2048, "num_devices": 64, "global_batch_size": 8, "log_interval": 10}
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "num_devices"),
    [
        ("[-------trainer.py:300] : -world_size:        16", 16),
        ("using world size: 64, data-parallel-size: 1, tensor-model-parallel size: 4", 64),
        ("using world size: 64 and model-parallel size: 4 ", 64),
        ("torchrun --nnodes=4 --nproc-per-node=8 train.py", 32),
        ("ThroughputAverageExtension initialized with seq_len: 8192 world_size: 16 log", 16),
        ("  max_seq_length .................................. 2048", None),
        ("  seq_length ...................................... None", None),
        ("  seq_length ...................................... 2048 and more", None),
        ("--seq-length $SEQ_LEN", None),
        ("--seq-length 2048.5", None),
        ("--nnodes 1:4 --nproc_per_node 8", None),
        ("--nproc_per_node 8", None),
        ("+ srun --nodes=8 torchrun --nnodes 8 --nproc-per-node 8 check_nccl.py", None),
        ("tensor parallel world_size: 4", None),
        ("[2021-05-27 21:32:10,182] [INFO] [config.py:904:print]   world_size ................... 16", None),
        ("    > device: tokens are there", None),
    ],
)
def test_facts(tmp_path: Path, line: str, num_devices: int | None) -> None:
    found = facts(tmp_path, line)
    assert found.get("num_devices") == num_devices
    assert num_devices or not {"sequence_length", "device"} & found.keys()


@pytest.mark.parametrize(
    ("extra", "batch"),
    [
        (["gas ............................. 4"], None),
        ([], 8 * 16),
        (["deepspeed ....................... True"], None),
        (["pipeline_model_parallel_size .... 2"], None),
        (["global_batch_size ............... 7"], 7),
    ],
)
def test_the_batch_as_a_product(tmp_path: Path, extra: list[str], batch: int | None) -> None:
    dump = ["batch_size ...................... 8", "model_parallel_size ............. 4", *extra]
    dump.append("world_size ...................... 64")
    rule = "-------------------- arguments --------------------", "---------------- end of arguments ----------------"
    found = facts(tmp_path, rule[0], *(f"  {line}" for line in dump), rule[1])
    assert found.get("global_batch_size") == batch
