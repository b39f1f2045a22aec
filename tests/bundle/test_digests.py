"""Which lines of a file are not as they were."""

import hashlib
import random
from pathlib import Path

import pytest

from nlp_bench.evidence.derive import differences
from nlp_bench.evidence.hashes import changes, line_digests


def told(folder: Path, before: str, after: str) -> list[tuple[str, int, int]] | None:
    path = folder / "log"
    path.write_text(before)
    recorded = line_digests(path)
    path.write_text(after)
    found = changes(path, recorded)
    return None if found is None else [tuple(change) for change in found]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("a\nb\nc\nd\n", []),
        ("a\nX\nc\nd\n", [("changed", 2, 1)]),
        ("X\nb\nc\nY\n", [("changed", 1, 1), ("changed", 4, 1)]),
        ("a\nb\nX\nc\nd\n", [("inserted", 3, 1)]),
        ("a\nd\n", [("removed", 2, 2)]),
        ("a\nb\nc\nd\ne\n", [("inserted", 5, 1)]),
        ("", [("removed", 1, 4)]),
        ("a\nb\nc\nd", [("changed", 4, 1)]),
        ("a\nX\nc\n", [("changed", 2, 1), ("removed", 4, 1)]),
    ],
)
def test_changed_inserted_and_removed_lines(tmp_path: Path, after: str, expected: list[object]) -> None:
    assert told(tmp_path, "a\nb\nc\nd\n", after) == expected


def test_a_digest_can_be_made_by_hand(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntwo")
    heading, first, last = line_digests(tmp_path / "log").split()[-3:]
    assert heading == "lines_per_digest=1"
    assert first == hashlib.sha256(b"one\n").hexdigest()[:8]
    assert last == hashlib.sha256(b"two").hexdigest()[:8]


def test_large_logs_have_a_digest_for_several_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nlp_bench.evidence.hashes.MAX_DIGESTS", 10)
    lines = [f"{n}\n" for n in range(1, 96)]
    after = [*lines]
    after[41] = "changed\n"
    assert told(tmp_path, "".join(lines), "".join(after)) == [("changed", 41, 10)]
    (tmp_path / "log").write_text("\n".join("abcdefghijk"))  # eleven lines, ten line ends
    assert line_digests(tmp_path / "log").startswith("nlp-bench/lines/1 sha256/8 lines_per_digest=2\n")


def test_what_is_no_list_of_digests(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a\n")
    assert changes(tmp_path / "log", "") is None
    assert changes(tmp_path / "log", "nlp-bench/lines/1 sha256/8 lines_per_digest=0\n") is None


def test_many_changes_take_no_square_of_time(tmp_path: Path) -> None:
    dice = random.Random(1)  # noqa: S311  # the same noise each time
    before = "".join(f"{dice.random()}\n" for _ in range(60_000))
    after = "".join(f"{dice.random()}\n" for _ in range(59_999))
    assert told(tmp_path, before, after) == [("changed", 1, 59_999)]


@pytest.mark.parametrize(
    ("stated", "derived", "expected"),
    [
        ({"a": 1.0}, {"a": 1.0 + 1e-12}, []),
        ({"a": 36361.59}, {"a": 36361.61}, ["a: bundle says 36361.59, the log gives 36361.61"]),
        ({"a": None}, {"a": 0}, ["a: bundle says null, the log gives 0"]),
        ({"a": True}, {"a": 1}, ["a: bundle says true, the log gives 1"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["a[1]: bundle says 2, the log gives 3"]),
        ({"a": [1]}, {"a": [1, 3]}, ["a: bundle has 1 entries, the log gives 2"]),
        ({"a": 1, "b": 2}, {"a": 1}, ["b: bundle says 2, the log gives nothing"]),
        ({}, {"b": 2}, ["b: bundle says nothing, the log gives 2"]),
        ([], {}, [": bundle says [], the log gives {}"]),
        ({"a": 10**400}, {"a": 1.5}, [f"a: bundle says {str(10**400)[:157]}..., the log gives 1.5"]),
    ],
)
def test_differences_name_the_field_and_both_values(stated: object, derived: object, expected: list[str]) -> None:
    assert list(differences(stated, derived)) == expected


def test_what_only_a_newer_program_tells_is_no_difference() -> None:
    assert list(differences({"a": 1}, {"a": 1, "new": 2}, ignore_new=True)) == []
