"""Programs that nobody has described: what states tokens per second outright is read, all else by --pattern, and nothing else.

Every invented program trains with 64 samples of 2048 tokens in 0.512 s on 8 devices: 256 000 tokens per second, 32 000 of each.
"""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.reported import Reported
from support.texts import entries_of
from support.unknown_logs import DEVICES, FOREIGN, NOTHING, RATE, READ, REFUSED, UNREAD, log

from nlp_bench.cli.main import main
from nlp_bench.errors import UsageError
from nlp_bench.logs.reader import read_log
from nlp_bench.measure import foreign
from nlp_bench.measure.result import RunResult
from nlp_bench.measure.sizes import Overrides
from nlp_bench.outcome import Outcome

FULL = Overrides(global_batch_size=64, sequence_length=2048, num_gpus=8)


def entry(tmp_path: Path, text: str, options: Overrides = NOTHING) -> RunResult:
    return max(entries_of(tmp_path, text, **vars(options)), key=lambda e: e.num_records or 0)


def said(found: RunResult) -> str:
    """Everything that a reader of the number is told."""
    of_log = found.provenance.remarks if found.provenance else ()
    return " ".join((*found.reason_texts, *found.remarks, *of_log))


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is known."""
    monkeypatch.setattr(foreign, "read_log", lambda path, **_: partial(read_log, only="unknown")(path))


@pytest.mark.parametrize("name", READ)
@pytest.mark.usefixtures("alone")
def test_read(tmp_path: Path, name: str) -> None:
    text, options = READ[name]
    found = entry(tmp_path, text, options)
    assert found.dialect == "unknown"
    assert found.steady == pytest.approx(RATE, rel=2e-3), said(found)
    assert "no known program" in said(found)


@pytest.mark.parametrize("limit", ["40", "400"])
def test_what_an_unknown_program_states_is_a_guess_until_a_pattern_says_it(reported: Reported, limit: str) -> None:
    text = log(lambda n: f"step {n}/60 | loss {9 - n / 20:.4f} | tokens/s: {256000 + 900 * (n * 7 % 5)}", count=60)
    found = reported(text.splitlines(), "--limit", limit)
    assert (found["outcome"], found["limit"]) == ("MEASURED", "NOT PROVEN")
    assert [(each["code"], each["weight"]) for each in found["contradictions"]] == [("WHAT_IS_COUNTED", "DOUBT")]
    assert "--pattern with a group" in found["contradictions"][0]["text"]
    pattern = r"step (?P<iteration>\d+)/(?P<total_iterations>\d+) \| loss (?P<lm_loss>\S+) \| tokens/s: (?P<tokens_per_second>\d+)"
    found = reported(text.splitlines(), "--limit", limit, "--pattern", pattern)
    assert (found["outcome"], found["limit"]) == ("VALID", "PASS" if limit == "400" else "FAIL")


@pytest.mark.parametrize(
    ("text", "given", "word"),
    [
        *(pytest.param(text, (NOTHING, FULL), "--pattern", id=f"unread-{name}") for name, (text, _) in UNREAD.items()),
        *(pytest.param(text, (options,), "", id=f"refused-{name}") for name, (text, options) in REFUSED.items()),
        *(pytest.param(text, (NOTHING, FULL), "", id=f"foreign-{name}") for name, text in FOREIGN.items()),
    ],
)
@pytest.mark.usefixtures("alone")
def test_what_is_not_stated_outright_is_not_read(
    tmp_path: Path, text: str, given: tuple[Overrides, ...], word: str
) -> None:
    for options in given:
        found = entry(tmp_path, text, options)
        assert not found.has_number, (found.steady, found.dialect, said(found))
        assert word in said(found)


def test_a_pattern_describes_quoted_cells_as_the_person_sees_them(tmp_path: Path) -> None:
    text = '"Step","time","time__MIN"\n' + "".join(f'"{n}","0.512","0.5"\n' for n in range(1, 30))
    said = (r'^"(?P<iteration>\d+)","(?P<elapsed_s>[\d.]+)"',)
    found = entry(tmp_path, text, Overrides(global_batch_size=64, sequence_length=2048, num_gpus=8, pattern=said))
    assert found.steady == pytest.approx(RATE)


@pytest.mark.usefixtures("alone")
def test_a_cut_line_is_not_read(tmp_path: Path) -> None:
    text = log(lambda n: f"step {n} | loss 2.31 | tok/s 256000")
    for size in range(len(text) - 34, len(text)):
        found = entry(tmp_path, text[:size])
        assert found.steady == pytest.approx(RATE), text[:size][-40:]
        assert found.num_records == (11 if size < len(text) else 12)


@pytest.mark.usefixtures("alone")
def test_a_loss_that_is_printed_as_a_tensor_is_read(tmp_path: Path) -> None:
    text = log(lambda n: f"step {n}/12 | loss tensor(2.31, device='cuda:0') | tok/s 256000")
    assert "no-loss" not in {reason.code for reason in entry(tmp_path, text).reasons}
    assert entry(tmp_path, text.replace("2.31", "nan")).outcome is Outcome.INVALID


def test_a_known_program_is_believed_instead(tmp_path: Path) -> None:
    text = log(lambda n: f"[titan] step: {n}  loss: 2.31000  memory: 40.00GiB(50.00%)  tps: 32,000  mfu: 2.00%")
    assert entry(tmp_path, text, DEVICES).dialect == "torchtitan"


@pytest.mark.parametrize("num_drawn", [5, 40])
def test_stated_rates_are_believed_before_a_bar_however_often_it_is_drawn(tmp_path: Path, num_drawn: int) -> None:
    bar = "\r".join(f"Training: {n:3d}%|#  | {n}/100 [{n:02d}:00<50:00, 60.00s/it]" for n in range(num_drawn))
    found = entry(tmp_path, f"{bar}\n" + log(lambda n: f"[train] step {n} | loss 2.31 | 256000 tokens/s"))
    assert (found.dialect, found.steady) == ("unknown", pytest.approx(RATE))


PATTERNS: dict[str, tuple[str, ...]] = {
    "value_before_unit": (r"\[ *(?P<iteration>\d+)/(?P<total_iterations>\d+)\].*\((?P<elapsed_ms>[\d.]+) ms/step, (?P<tokens_per_second>[\d.]+k) tok/s",),
    "bare_number_in_front": (r"^(?P<iteration>\d+) \| .*\| (?P<tokens_per_second>\d+) tok/s",),
    "samples_and_length": (r"step (?P<iteration>\d+): .* (?P<samples_per_second>[\d.]+) samples/s", r"seq_len=(?P<sequence_length>\d+)"),
    "iterations_per_second": (r"Iter (?P<iteration>\d+): .*It/sec (?P<iterations_per_second>[\d.]+)",),
    "microseconds": (r"step=(?P<iteration>\d+) .*step_time_us=(?P<elapsed_us>\d+)",),
    "device_rate_and_world": (r"step (?P<iteration>\d+) .* (?P<tokens_per_second_per_device>\d+)$", r"world_size = (?P<num_devices>\d+)"),
    "tokens_seen_and_clock": (r"step (?P<iteration>\d+) .*tokens_seen (?P<consumed_tokens>\d+) elapsed (?P<clock_s>[\d.]+)s",),
    "tokens_seen_and_clock_text": (r"step (?P<iteration>\d+) .*tokens: (?P<consumed_tokens>\d+) \| elapsed: (?P<clock_clock>\S+)",),
    "comma_separated_values": (r"^(?P<iteration>\d+),[\d.]+,[\d.]+,(?P<tokens_per_second>[\d.]+)$",),
    "table": (r"^\| (?P<iteration>\d+) \| (?P<lm_loss>[\d.]+) \| (?P<tokens_per_second>[\d,]+) \|",),
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_a_person_describes_the_lines(tmp_path: Path, name: str) -> None:
    text, options = {**READ, **UNREAD}[name]
    given = Overrides(**{**vars(options), "num_gpus": None, "pattern": PATTERNS[name]})
    found = entry(tmp_path, text, given)
    assert found.dialect == "pattern"
    assert found.steady == pytest.approx(RATE, rel=2e-3), said(found)
    assert not found.doubts


def test_a_pattern_is_marked_as_supplied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reported: Reported
) -> None:
    path = tmp_path / "a.log"
    path.write_text(UNREAD["table"][0])
    (pattern,) = PATTERNS["table"]
    supplied = reported(path, "--pattern", pattern)["supplied"]
    assert supplied == [{"name": "pattern", "value": pattern, "logged": None, "changes_rate": True}]
    assert main(["report", str(path), "--pattern", pattern, "--explain"]) == 0
    assert f"--pattern {pattern}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        (("step (?P<iteration>",), "no regular expression"),
        ((r"step \d+",), "no named group"),
        ((r"(?P<iteration>\d+) (?P<token_per_second>\d+)",), "did you mean tokens_per_second?"),
        ((r"(?P<step>\d+) (?P<tokens_per_second>\d+)",), "group step is no quantity; did you mean iteration?"),
        ((r"(?P<iteration>\d+)",), "time or a rate"),
        ((r"(?P<elapsed_s>\d+)", r"(?P<tokens_per_second>\d+)"), "one expression"),
        ((r"(?P<elapsed_s>\d+)", r"(?P<lm_loss>\d+)"), "no fact of a whole log"),
    ],
)
def test_a_pattern_that_says_nothing_is_refused(patterns: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match="pattern: ") as refused:
        Overrides(pattern=patterns)
    assert words in str(refused.value)


def test_a_pattern_that_reads_no_number_gives_none(tmp_path: Path) -> None:
    text = "".join(f"Schritt {n} Zeit 1,00{n:02d} s Loss 2,{n:02d}\n" for n in range(10, 40))
    digits = r"Schritt (?P<iteration>\d+) Zeit (?P<elapsed_s>[\d.,]+) s"
    sizes = Overrides(global_batch_size=64, sequence_length=2048, pattern=(digits.replace("Zeit", "Dauer"),))
    assert "no line matches --pattern" in said(entry(tmp_path, text, sizes))
    found = entry(tmp_path, text, replace(sizes, pattern=(digits,)))
    assert (found.outcome, found.steady) == (Outcome.REFUSED, None)
    points = re.sub(r"(?<=\d),(?=\d)", ".", text)
    found = entry(tmp_path, points, replace(sizes, pattern=(digits,)))
    assert found.steady == pytest.approx(64 * 2048 / 1.0025, rel=1e-3)


@pytest.mark.parametrize("cut", ["tok_per_s", "tok_per_s_", "tok_per_s_per", "tok_per_s_per_np"])
def test_a_word_that_was_cut_is_no_unit(tmp_path: Path, cut: str) -> None:
    """A loss of 8.9 before `tok_per_s_per_npu=4000` is no rate."""
    text = f"iter=10 train_loss=9.9 tok_per_s_per_npu=4000 lr=1.0e-05\niter=20 train_loss=8.9 {cut}"
    assert entry(tmp_path, text, Overrides(num_gpus=16)).steady is None
