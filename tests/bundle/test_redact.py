"""Secrets go, measurements and line numbers stay."""

import io
import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.command import Cli
from support.ours import Bundle
from support.published import published_log
from support.samples import samples
from support.secret_shapes import BLOCKS, HARMLESS, SHAPES

from nlp_bench.evidence.verify import verify
from nlp_bench.redact import MARK, redact, redact_text

SECRET = "s3cr3tV4lue9876543210"  # noqa: S105  # none
CHUNK = 4 << 20


def plain(marked: str) -> bytes:
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


@pytest.mark.slow
@pytest.mark.parametrize("before", range(-40, 5, 13))
@pytest.mark.parametrize("marked", [SHAPES[0], SHAPES[-3], BLOCKS[0], *BLOCKS[-3:]])
def test_a_secret_across_the_cut_of_a_file(marked: str, before: int) -> None:
    """A line of 4 MiB in front, with and without an end: what is read at once ends in the secret."""
    for end in (" ", "\n"):
        filler = "." * (CHUNK - 1 + before) + end
        text, lines = redacted(plain(filler + marked + " end"))
        assert text == black(filler + marked + " end")
        assert lines[0] == 1 + (filler + marked).partition("«")[0].count("\n")


@pytest.mark.slow
def test_a_line_without_an_end_is_searched_in_all_its_length() -> None:
    block = "." * (CHUNK - 10) + f" HF_TOKEN=«{SECRET}» "
    text, _ = redacted(plain(block * 10))
    assert text == black(block * 10)


@settings(max_examples=60)
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


@pytest.mark.slow
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


@pytest.fixture
def leaky_run(our_run: Path) -> Path:
    text = f"fine\ncurl -u me:{SECRET} https://example.org\n\nHF_TOKEN={SECRET}\nMY_TOKEN={SECRET}\n"
    (our_run / "job.err").write_text(text)
    with (our_run / "job.out").open("a") as stream:
        stream.write(f"wandb login {SECRET}\n")
    return our_run


def test_the_redact_report_names_file_line_and_rule_and_makes_nothing(
    leaky_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    printed = cli("bundle", leaky_run, "--redact-report")
    rows = [tuple(re.split(r"  +", line)) for line in printed.out.splitlines() if line.startswith(str(leaky_run))]
    expected = [
        (f"{leaky_run}/job.err", "2", "password of a command"),
        (f"{leaky_run}/job.err", "4", "value of a secret's name"),
        (f"{leaky_run}/job.err", "5", "value of a secret's name"),
        (f"{leaky_run}/job.out", "7", "password of a command"),
    ]
    assert rows == expected
    text = cli("bundle", leaky_run, "--redact-report", "--format", "json").out
    record = json.loads(text)
    assert record["schema"] == "nlp-bench/redactions/1"
    assert [(e["file"], str(line), e["kind"]) for e in record["redactions"] for line in e["lines"]][:4] == expected
    assert SECRET not in printed.out + printed.err + text
    assert list(Path.cwd().iterdir()) == []


def test_the_redact_report_of_a_log_and_of_nothing(
    our_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    # no patch of this checkout
    monkeypatch.setattr("nlp_bench.evidence.make.add_software", lambda _: {"commit": "abc"})
    assert cli("bundle", our_run, "--redact-report").out == "nothing is blacked out\n"
    log = tmp_path / "train.log"
    log.write_text(f"HF_TOKEN={SECRET}\n" * 1200 + published_log())
    lines = cli("bundle", log, "--redact-report", "--sequence-length", "2048").out.splitlines()
    assert lines[2].split() == [str(log), "1", "value", "of", "a", "secret's", "name"]
    assert lines[-1].split()[1:3] == ["200", "more"]
    assert len(lines) == 2 + 1000 + 1


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--redact-report", "--sign", "key"], "no bundle is made"), (["--format", "json"], "--redact-report")],
)
def test_words_that_do_not_go_with_the_redact_report(our_run: Path, words: list[str], message: str, cli: Cli) -> None:
    assert message in cli("bundle", our_run, *words, code=2).err


def test_a_secret_within_a_record_is_a_refusal(our_run: Path, tmp_path: Path, cli: Cli) -> None:
    """Blacking out must not change a number, and the refusal says where the secret stands."""
    lines = (our_run / "job.out").read_text().split("\n")
    lines[3] = f'HF_TOKEN="{lines[3]}"'
    (our_run / "job.out").write_text("\n".join(lines))
    for words in (["--output", str(tmp_path / "e.tar")], ["--redact-report"]):
        said = cli("bundle", our_run, *words, code=1)
        assert "without its secrets the log gives another number: runs/001: runs[0]." in said.err
        assert "runs/001/job.out line 4: value of a secret's name" in said.err
        assert "iteration" not in said.err + said.out
    assert not (tmp_path / "e.tar").exists()
