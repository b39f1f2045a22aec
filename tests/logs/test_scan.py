"""The scanner: what is a row, what is a line, and that the engine in C and the one in Python are the same."""

import math
import random
import re
import struct
import subprocess
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.mutate import HONEST, WILD

from nlp_bench.build.providers import has_c_compiler
from nlp_bench.build.scanner import FLAGS
from nlp_bench.logs import scan
from nlp_bench.logs.record import Records
from nlp_bench.logs.scan import Grammar, Line, Shapes
from nlp_bench.logs.source import Block

GRAMMAR = Grammar(
    start=b"iteration",
    keys={
        b"consumed samples": ("consumed_samples", 1.0, True),
        b"elapsed time per iteration (s)": ("elapsed_s", 1.0, False),
        b"elapsed time per iteration (ms)": ("elapsed_s", 1000.0, False),
        b"lm loss": ("lm_loss", 1.0, False),
        b"number of nan iterations": ("num_nan", 1.0, True),
    },
    required=("elapsed_s",),
    reads_stamps=True,
)
COLUMNS = ("iteration", "total_iterations", "consumed_samples", "elapsed_s", "lm_loss", "num_nan", "stamp_s")
NEEDLES = (b"iteration", b"....", b"-----", b"device:")
ROW = (
    b" [2026-11-20 08:00:01] iteration       10/     500 | consumed samples:          960 | "
    b"elapsed time per iteration (ms): 7241.7 | learning rate: 4.438E-07 | lm loss: 1.098846E+01 | "
    b"number of nan iterations:   0 |"
)
STAMP_S = datetime(2026, 11, 20, 8, 0, 1, tzinfo=timezone.utc).timestamp()
Engine = Callable[[tuple[bytes, ...], Grammar | None], Any]


def parts_of(engine: Any, block: Block) -> tuple[Records, list[Line]]:
    """Return all parts of a block as one."""
    parts = list(engine.scan(block, Shapes()))
    return Records.in_file_order([rows for rows, _ in parts]), [line for _, lines in parts for line in lines]


def c_engine(*, is_simple: bool) -> Engine:
    library = scan._library()
    if library is None:
        if has_c_compiler():
            pytest.fail(scan.why_slow())
        pytest.skip("no C compiler, so that scan.c is not built here")
    return lambda needles, grammar: scan._CEngine(library, needles, grammar, is_simple=is_simple)


def test_a_site_s_fast_math_does_not_reach_the_scanner() -> None:
    if not has_c_compiler():
        pytest.skip("no C compiler")
    fast = ["cc", "-ffast-math", "-std=c11", "-fsyntax-only", str(scan.OBJECT.with_name("scan.c"))]
    assert b"-fno-fast-math" in subprocess.run(fast, capture_output=True, check=False).stderr
    subprocess.run([*fast, *FLAGS], check=True)


@pytest.fixture(params=["python", "c", "c without vectors"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return scan._PythonEngine if request.param == "python" else c_engine(is_simple=request.param != "c")


def block_of(text: bytes, begin: int = 0, end: int | None = None, offset: int = 0, number: int = 1) -> Block:
    end = len(text) if end is None else end
    return Block(bytearray(text), begin, end, len(text), offset, number, is_last=True)


def scanned(engine: Engine, text: bytes, grammar: Grammar | None = GRAMMAR) -> tuple[Records, list[Line]]:
    rows, lines = parts_of(engine(NEEDLES, grammar), block_of(text))
    assert {column.dtype for column in rows.columns.values()} <= {np.dtype(np.float64)}
    assert {rows.offsets.dtype, rows.numbers.dtype, rows.labels.dtype} == {np.dtype(np.int64)}
    return rows, lines


def table(rows: Records) -> NDArray[np.float64]:
    """Return a row for each line, NaN where it lacks a field."""
    lacking = np.full(len(rows.offsets), np.nan)
    return np.column_stack([rows.columns.get(name, lacking) for name in COLUMNS])


def plain(rows: Records, lines: list[Line], block: Block) -> tuple[Any, ...]:
    """Return everything a scan says, comparable: the bytes of the numbers, NaN included."""
    texts = [(*line[:4], line.following(3)) for line in lines]
    return (
        sorted((name, column.tobytes()) for name, column in rows.columns.items()),
        *(array.tolist() for array in (rows.offsets, rows.numbers, rows.whole, rows.labels)),
        texts,
        block.num_line_ends,
    )


def test_a_row(engine: Engine) -> None:
    rows, lines = scanned(engine, b"noise\n" + ROW + b"\r\n")
    assert lines == []
    assert table(rows).tolist() == [[10, 500, 960, 7241.7 / 1000.0, 10.98846, 0, STAMP_S]]
    assert (rows.offsets.tolist(), rows.numbers.tolist(), rows.labels.tolist()) == ([6], [2], [0])


def test_the_missing_is_nan(engine: Engine) -> None:
    rows, _ = scanned(engine, b"iteration 1/ 2 | elapsed time per iteration (s): .5 |\n")
    assert np.array_equal(table(rows), [[1, 2, np.nan, 0.5, np.nan, np.nan, np.nan]], equal_nan=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b" |", b"", id="no bar"),
        pytest.param(b"iterations:   0 |", b"iterations:   0 | and more", id="words behind the last bar"),
        pytest.param(b"iterations:   0 |", b"iterations:   0", id="cut before the last bar"),
        pytest.param(b"7241.7", b"7241.7x", id="letters in a number"),
        pytest.param(b"7241.7", b"", id="no number"),
        pytest.param(b"7241.7", b"7 241.7", id="a blank in a number"),
        pytest.param(b"7241.7", b"7,241.7", id="a comma in a number"),
        pytest.param(b"7241.7", b"7.241,7", id="a decimal comma"),
        pytest.param(b"7241.7", b"7'241.7", id="an apostrophe in a number"),
        pytest.param(b"7241.7", b"7\xe2\x80\xaf241.7", id="a narrow blank in a number"),
        pytest.param(b"7241.7", b"nan", id="nan"),
        pytest.param(b"7241.7", b"inf", id="inf"),
        pytest.param(b"7241.7", b"1e999", id="beyond double precision"),
        pytest.param(b"7241.7", b"1_0", id="underscore"),
        pytest.param(b"7241.7", b"0x10", id="hexadecimal"),
        pytest.param(b"7241.7", b"1e", id="half an exponent"),
        pytest.param(b"7241.7", b"." * 1, id="only a point"),
        pytest.param(b"7241.7", b"1" * 65, id="a very long number"),
        pytest.param(b"960", b"96.0", id="a count with a point"),
        pytest.param(b"960", b"-1", id="a count below zero"),
        pytest.param(b"960", b"1" * 19, id="a count of 19 digits"),
        pytest.param(b"10/", b"1e1/", id="an iteration that is no count"),
        pytest.param(b"10/", b"10", id="no slash"),
        pytest.param(b"learning rate:", b"learning rate", id="no colon"),
        pytest.param(b"learning rate:", b"lm loss :", id="a key twice"),
        pytest.param(b"elapsed time per iteration (ms)", b"elapsed time", id="a required key is missing"),
        pytest.param(b"4.438E-07", b"4.4 [rank1]: iteration 11/ 500", id="a second record in a value"),
        pytest.param(b"960", b"\x1b[1m960", id="a colour"),
        pytest.param(b"960", b"960\r", id="a carriage return inside"),
        pytest.param(b" [2026", b"\xc2\xb5 [2026", id="not ASCII in front"),
        pytest.param(b"4.438E-07", b"\xff", id="not ASCII in a value"),
        pytest.param(b" iteration  ", b"_iteration  ", id="another word that ends like it"),
        pytest.param(b"iteration  ", b"iteration: iteration  ", id="the word twice"),
        pytest.param(b"iteration       10", b"iteration10", id="no blank behind the word"),
    ],
)
def test_what_departs_from_the_grammar_is_a_line(engine: Engine, old: bytes, new: bytes) -> None:
    text = ROW.replace(old, new, 1)
    assert text != ROW
    rows, lines = scanned(engine, text + b"\n")
    assert len(rows.offsets) == 0
    assert [line[:4] for line in lines] == [(1, 0, text, True)]


@pytest.mark.parametrize(
    ("prefix", "seconds"),
    [
        (b"", None),
        (b"[default3]: ", None),
        (b"[2026-11-20 08:00:01] ", STAMP_S),
        (b"[default3]: [2026/11/20 08:00:01.250] ", STAMP_S + 0.25),
        (b"2026-11-20T08:00:01,000001 - root - INFO - ", STAMP_S + 0.000001),
        (b"[rank0]:2026-11-20 08:00:01 [INFO] ", STAMP_S),
        (b"2024-02-29 00:00:00 ", datetime(2024, 2, 29, tzinfo=timezone.utc).timestamp()),
        (b"took 5 s at 100% ", None),
    ],
)
def test_the_time_in_front_of_a_row(engine: Engine, prefix: bytes, seconds: float | None) -> None:
    rows, _ = scanned(engine, prefix + ROW[ROW.index(b"iteration") :] + b"\n")
    assert np.array_equal(table(rows)[:, 6], [math.nan if seconds is None else seconds], equal_nan=True)


@pytest.mark.parametrize(
    "prefix",
    [
        b"[20261120 08:00:01] ", b"11/20/2026 08:00:01 ", b"I1120 08:00:01.250000 ", b"[08:00:01] ", b"2026-11-20 08:00:01Z ",
        b"2026-11-20 08:00:01-05:00 ", b"2026-11-20 08:00:01.25+0100 ", b"2026-13-20 08:00:01 ", b"2026-02-29 08:00:01 ",
        b"2026-11-20 24:00:01 ", b"2026-11-20 08:00:01.1234567890 ", b"12026-11-20 08:00:01 ", b"0000-11-20 08:00:01 ",
        b"2026-11-20 08:00:01:250 ", b"7:00:00:00 2026-11-20 08:00:01 ", b"2026-11-20 08:00:60 ", b"2026-11-20 08:60:01 ",
    ],
)  # fmt: skip
def test_a_row_with_another_form_of_time_is_a_line(engine: Engine, prefix: bytes) -> None:
    rows, lines = scanned(engine, prefix + ROW[ROW.index(b"iteration") :] + b"\n")
    assert (len(rows.offsets), len(lines)) == (0, 1)


def test_a_line_without_its_end_is_no_row(engine: Engine) -> None:
    rows, lines = scanned(engine, ROW + b"\n" + ROW)
    assert len(rows.offsets) == 1
    assert [line[:4] for line in lines] == [(2, len(ROW) + 1, ROW, False)]


def test_following_lines_reach_into_the_lookahead(engine: Engine) -> None:
    text = b"device: 1\nsecond\nthird\r\nfourth\ncut"
    block = block_of(text, end=10)
    _, [line] = parts_of(engine(NEEDLES, None), block)
    assert line.following(0) == []
    assert line.following(2) == [b"second", b"third\r"]
    assert line.following(9) == [b"second", b"third\r", b"fourth"]


def test_places_count_from_the_file(engine: Engine) -> None:
    text = b"left over\n" + ROW + b"\ndevice: 1\n\n"
    rows, [line] = parts_of(engine(NEEDLES, GRAMMAR), block := block_of(text, begin=10, offset=5000, number=70))
    assert (rows.offsets.tolist(), rows.numbers.tolist()) == ([5000], [70])
    assert line[:2] == (71, 5000 + len(ROW) + 1)
    assert block.num_line_ends == 3


@pytest.mark.slow
def test_more_rows_and_lines_than_the_arrays_hold(engine: Engine) -> None:
    row = b"iteration 1/ 2 | lm loss: 1 | elapsed time per iteration (s): 1 |\n"
    late = row.replace(b"lm loss: 1", b"consumed samples: 7")
    rows, lines = scanned(engine, (row + b"device: 1\n") * 20_000 + late)
    assert rows.numbers.tolist() == [*range(1, 40_000, 2), 40_001]
    assert [line.number for line in lines] == list(range(2, 40_001, 2))
    # A field that the last line alone has is missing in all others.
    assert np.array_equal(
        table(rows)[[0, -2, -1], 2:5], [[np.nan, 1, 1], [np.nan, 1, 1], [7, 1, np.nan]], equal_nan=True
    )


DIGITS = st.text("0123456789", max_size=25)
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(1e-9, 1e9).flatmap(lambda x: st.integers(0, 17).map(lambda n: f"{x:.{n}f}")),
    st.floats(1e-30, 1e30).flatmap(lambda x: st.integers(0, 18).map(lambda n: f"{x:.{n}E}")),
    st.integers(0, 2**70).map(str),
    st.tuples(
        st.sampled_from(["", "-", "+"]), DIGITS, st.sampled_from(["", "."]), DIGITS, st.sampled_from(["", "e5", "E-7"])
    ).map("".join),
)


@pytest.mark.slow
@settings(max_examples=1000)
@given(NUMBERS)
def test_numbers_are_those_of_python_to_the_last_bit(text: str) -> None:
    line = b"iteration 1/ 2 | elapsed time per iteration (ms): %b | lm loss: %b |\n" % (text.encode(), text.encode())
    is_plain = (
        re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text) and len(text) <= 64 and math.isfinite(float(text))
    )
    for is_simple in (False, True):
        rows, _ = scanned(c_engine(is_simple=is_simple), line)
        assert len(rows.offsets) == bool(is_plain)
        if is_plain:
            assert table(rows)[0, 3:5].tobytes() == struct.pack("=dd", float(text) / 1000.0, float(text))


SEEDS = (
    ROW,
    b"2026-11-20 08:00:01,250 [default3]: iteration 7/ 9 | elapsed time per iteration (s): 7.2310 | TFLOPs: 101.54 |",
    b"iteration\t1 /2| lm loss:1|elapsed time per iteration (s) :\t1e0 | number of nan iterations: 0|  \r",
    b"iteration 1/ 2 | elapsed time per iteration (s): 1 | a word iteration 5: 1 |",
    b"jwb123:4567:4567 [0] NCCL INFO Channel 12/0 : 12[0] -> 34[1] [send] via NET/IBext/1/GDRDMA",
    b"  world_size ................ 8",
    b"---------------- arguments ----------------",
    b"device: cuda",
    b"",
)
STAMP_PIECES = (
    b"2026", b"-", b"/", b"02", b"29", b"30", b"11", b" ", b"T", b"08:00:01", b":", b".", b",", b"5", b"123", b"Z", b"+", b"[", b"]",
    b"2026-11-20 08:00:0", b"2024-02-29 23:59:59", b"1900/02/29 00:00:00", b"[2026-", b"[2", b"026-", b"\t", b"default", b"3",
)  # fmt: skip
NEEDLE_SETS = [
    NEEDLES,
    (b"i",),
    (b"it", b"|"),
    (b"tion", b"GDRDMA", b"\xff"),
    tuple(b"%d/ " % i for i in range(30)),
    tuple(b"iteration|lm loss|elapsed|--|NCCL INFO| ...|via|jwb|[send]|world|x|qq".split(b"|")),
]


@pytest.mark.parametrize("needles", NEEDLE_SETS)
@pytest.mark.parametrize("grammar", [GRAMMAR, None])
def test_the_engines_are_the_same(needles: tuple[bytes, ...], grammar: Grammar | None) -> None:
    """Lines of logs behind pieces of time stamps, spliced, cut and changed; an engine keeps its tables and arrays for all of them."""
    dice = random.Random(5)  # noqa: S311  # a fixed sequence of texts
    words = needles if grammar is None else tuple(dict.fromkeys((*needles, grammar.start)))
    engines = [
        make(words, grammar) for make in (scan._PythonEngine, c_engine(is_simple=False), c_engine(is_simple=True))
    ]
    num_rows = 0
    for _ in range(400):
        lines = [
            bytearray(b"".join((*dice.choices(STAMP_PIECES, k=dice.randrange(4)), dice.choice(SEEDS))))
            for _ in range(dice.randrange(1, 40))
        ]
        for line in lines:
            if line and dice.random() < 0.5:
                line[dice.randrange(len(line))] = dice.choice(b"|:/ \t\n\r0123456789.ei\x1b\xff")
        text = b"\n".join(lines)
        for _ in range(dice.randrange(5) if text else 0):
            text = dice.choice((*HONEST, *WILD))(text, dice) or text
        end = dice.choice((len(text), text.rfind(b"\n") + 1))
        results = []
        for engine in engines:
            rows, found = parts_of(engine, block := block_of(text, end=end, offset=100, number=10))
            results.append(plain(rows, found, block))
            num_rows += len(rows.offsets)
        assert results[0] == results[1] == results[2]
    assert num_rows > 1000 or not grammar


def test_needles_are_found_at_every_place_around_the_vectors(engine: Engine) -> None:
    for needle in (b"i", b"ab", b"abc", b"device:"):
        made = engine((needle,), None)
        for length in (0, 1, 31, 32, 33, 34, 35, 64, 66, 100):
            for at in range(length + 1):
                text = b"\n" * at + needle + b"\n" * (length - at)
                _, lines = parts_of(made, block := block_of(text))
                assert [line[:3] for line in lines] == [(at + 1, at, needle)]
                assert block.num_line_ends == length


def test_tables_made_for_a_log_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_MAX_FALSE", 1000)
    noise = b"extra_x camera_x opera_x\n" * 6000  # a block of full size
    text = noise + ROW + b"\n" + noise + b"stera_x and device: 1\n"
    needles = (*NEEDLES, b"stera_x", b"tok/s")
    results, made = [], c_engine(is_simple=False)(needles, GRAMMAR)
    parts_of(made, block_of(b"a log of another kind\n" * 15_000))
    first = made.plan
    for engine in [made] * 5 + [scan._PythonEngine(needles, GRAMMAR)]:
        block = block_of(text)
        results.append(plain(*parts_of(engine, block), block))
    assert made.plan is not first
    assert all(result == results[0] for result in results)


def test_an_object_from_before_a_change_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    c_engine(is_simple=False)
    monkeypatch.setattr(scan, "_INTERFACE", -1)
    scan._library.cache_clear()
    assert scan._library() is None
    assert "is of another version" in scan.why_slow()
    monkeypatch.undo()
    scan._library.cache_clear()
    assert not scan.why_slow()
