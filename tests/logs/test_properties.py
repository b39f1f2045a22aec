"""What must hold for every dialect, tried on the fixtures' logs."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fixtures import fixtures
from support.fuzzing import Base, bases, problem
from support.mutate import NOISE
from support.texts import entries_of, log_of

from nlp_bench.logs.record import Log

FIXTURES = [(name, fixture["log"].lstrip("\n").encode()) for name, fixture in fixtures()]
MANY = settings(max_examples=150, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SEVERAL_LINES = {name for name, fixture in fixtures() if fixture.get("is_wrapped")}
"""Logs whose records go on over lines that another process would cut."""


def said(log: Log) -> list[dict[str, Any]]:
    """What the records say, without where they stand."""
    places = {"line_number", "offset"}
    records = [record for attempt in log.attempts for record in attempt.records]
    return [{name: value for name, value in vars(record).items() if name not in places} for record in records]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> list[Base]:
    return bases(tmp_path_factory.mktemp("bases"))


@pytest.mark.slow
@MANY
@given(which=st.integers(0, 10**6), part=st.floats(0, 1))
def test_a_prefix_never_invents_a_rate(tmp_path: Path, known: list[Base], which: int, part: float) -> None:
    base = known[which % len(known)]
    text = base.text[: int(part * len(base.text))]
    rates = [entry.steady for entry in entries_of(tmp_path, text, **vars(base.overrides)) if entry.steady is not None]
    assert all(base.slowest * 0.99 <= rate <= base.fastest * 1.01 for rate in rates), (base.name, part, rates)


WHOLE = [text for name, text in FIXTURES if name not in SEVERAL_LINES and text.endswith(b"\n")]


@pytest.mark.slow
@MANY
@given(which=st.integers(0, 10**6), places=st.lists(st.tuples(st.floats(0, 1), st.sampled_from(NOISE[:3])), max_size=5))
def test_lines_of_other_ranks_change_nothing(tmp_path: Path, which: int, places: list[tuple[float, bytes]]) -> None:
    text = WHOLE[which % len(WHOLE)]
    lines = text.splitlines(keepends=True)
    # A record over several lines is one write of its program: others come before or after it.
    starts = [n for n, line in enumerate(lines) if not line.startswith((b" ", b"\t"))] + [len(lines)]
    for part, words in sorted(places, reverse=True):
        lines.insert(starts[int(part * (len(starts) - 1))], words)
    assert said(log_of(tmp_path, b"".join(lines))) == said(log_of(tmp_path, text))


@pytest.mark.parametrize(("name", "text"), FIXTURES, ids=[name for name, _ in FIXTURES])
def test_windows_line_ends_change_nothing(tmp_path: Path, name: str, text: bytes) -> None:
    del name
    if b"\r" not in text:
        assert said(log_of(tmp_path, text.replace(b"\n", b"\r\n"))) == said(log_of(tmp_path, text))


@pytest.mark.parametrize(("name", "text"), FIXTURES, ids=[name for name, _ in FIXTURES])
def test_megabytes_without_meaning_change_nothing(tmp_path: Path, name: str, text: bytes) -> None:
    del name
    if not text.endswith(b"\n"):
        return  # a last line that was cut goes on with what follows
    noise = b"node12:4711:4733 [3] UCC WARN something has no meaning at all\n"
    assert said(log_of(tmp_path, 20_000 * noise + text + 1000 * noise)) == said(log_of(tmp_path, text))


@pytest.mark.slow
def test_some_hundred_mutations(tmp_path: Path, known: list[Base]) -> None:
    found = [problem(tmp_path / "mutated.log", known[seed % len(known)], seed) for seed in range(0, 1000, 3)]
    assert [text for text in found if text] == []
