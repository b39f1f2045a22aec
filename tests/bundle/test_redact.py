"""Secrets go, measurements and line numbers stay."""

import io
import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ours import Bundle
from support.published import published_log
from support.samples import samples
from support.secret_shapes import BLOCKS, HARMLESS, SHAPES

from nlp_bench.bundle.verify import verify
from nlp_bench.redact import MARK, redact, redact_text

SECRET = "s3cr3tV4lue9876543210"  # noqa: S105  # none
CHUNK = 4 << 20


def plain(marked: str) -> bytes:
    """The text as a job prints it."""
    return marked.replace("«", "").replace("»", "").encode()


def black(marked: str) -> bytes:
    """What must become of it."""
    return re.sub("«[^»]*»", MARK.decode(), marked).encode()


def redacted(text: bytes) -> tuple[bytes, list[int]]:
    """What comes out of a file, and the lines that were named."""
    target = io.BytesIO()
    found = redact(io.BytesIO(text), target)
    return target.getvalue(), [redaction.line for redaction in found]


@pytest.mark.parametrize("marked", [*SHAPES, *BLOCKS])
def test_a_secret_goes_and_all_around_it_stays(marked: str) -> None:
    assert redact_text(plain(marked))[0] == black(marked)
    text, found = redact_text(b"before\n" + plain(marked) + b"\nand after\n")
    assert text == b"before\n" + black(marked) + b"\nand after\n"
    lines = {number for number, line in enumerate(marked.split("\n"), start=2) if "«" in line}
    assert {redaction.line for redaction in found} == lines
    assert redact_text(text) == (text, [])


@pytest.mark.parametrize("line", [published_log().rstrip(), *HARMLESS])
def test_what_is_no_secret_stays(line: str) -> None:
    assert redact_text(line.encode()) == (line.encode(), [])


@pytest.mark.skipif(not samples(), reason="the logs of third parties do not lie beside the checkout")
def test_real_logs_lose_nothing() -> None:
    assert {sample.path.name: found for sample in samples() if (found := redacted(sample.path.read_bytes())[1])} == {}


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
def test_secrets_in_utf_16(codec: str) -> None:
    marked = "start of the job, für Jülich\n" + "\n".join([*SHAPES[:9], BLOCKS[0]]) + "\nend\n"
    text, lines = redacted(plain(marked).decode().encode(codec))
    assert text.decode(codec) == black(marked).decode()
    assert lines == [number for number, line in enumerate(marked.split("\n"), start=1) if "«" in line]


@pytest.mark.parametrize("before", range(-40, 5, 13))
@pytest.mark.parametrize("marked", [SHAPES[0], SHAPES[-3], BLOCKS[0], BLOCKS[-1]])
def test_a_secret_across_the_cut_of_a_file(marked: str, before: int) -> None:
    """A line of 4 MiB in front, with and without an end: what is read at once ends in the secret."""
    for end in (" ", "\n"):
        filler = "." * (CHUNK - 1 + before) + end
        text, lines = redacted(plain(filler + marked + " end"))
        assert text == black(filler + marked + " end")
        assert lines[0] == 1 + (end == "\n") + (marked in BLOCKS) * (2 if marked == BLOCKS[-1] else 1)


def test_a_line_without_an_end_is_searched_in_all_its_length() -> None:
    block = "." * (CHUNK - 10) + f" HF_TOKEN=«{SECRET}» "
    text, _ = redacted(plain(block * 10))
    assert text == black(block * 10)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*SHAPES, *BLOCKS, *HARMLESS, "x" * 50, ""]), max_size=12), st.integers(700, 1500))
def test_the_size_of_what_is_read_at_once_changes_nothing(parts: list[str], size: int) -> None:
    whole = plain("\n".join(parts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nlp_bench.redact._CHUNK_BYTES", size)
        patch.setattr("nlp_bench.redact._REACH", 600)
        text, lines = redacted(whole)
    expected, found = redact_text(whole)
    assert text == expected
    assert lines == [redaction.line for redaction in found]


@pytest.mark.parametrize("unit", ["token=", "password='", "eyJ-", "curl -u ", "\x1b[m", "-----BEGIN PRIVATE KEY-----"])
def test_a_hostile_log_takes_no_longer_for_its_length(unit: str) -> None:
    """Twice as long takes about twice as long, not four times."""

    def seconds(size: int) -> float:
        begin = time.process_time()
        redacted((unit * (size // len(unit))).encode())
        return time.process_time() - begin

    seconds(1 << 10)
    assert seconds(1 << 17) < 8 * seconds(1 << 15) + 0.2


def test_a_bundle_lists_what_was_blacked_out_and_never_the_secret(bundle: Bundle, our_run: Path) -> None:
    (our_run / "environment.json").write_text(json.dumps({"variables": {"A_PASSWORD": SECRET}}, indent=1))
    with (our_run / "job.out").open("a") as stream:
        stream.write(f"pushing to https://me:{SECRET}@example.org\n")
    made = bundle()
    listed = [(r["file"], r["kind"], r["lines"]) for r in made.manifest.redactions]
    assert ("runs/001/environment.json", "value of a secret's name", [3]) in listed
    assert ("runs/001/job.out", "user and password in a URL", [7]) in listed
    assert not any(SECRET in path.read_text() for path in made.path.rglob("*") if path.is_file())
    assert verify(made.path).is_verified
