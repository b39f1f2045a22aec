"""What a person reads: the whole text of a bundle that was made, of one that is verified, and of one that is not."""

import re
from pathlib import Path

from support.command import Ask
from support.ours import Bundle, seal_run
from support.published import published_log

from nlp_bench.evidence.text import made_talk, made_text, verification_text
from nlp_bench.evidence.verify import verify

RUN = "VALID; steady 36361.59 tokens/s, 550.03 s; reference 34063.43 tokens/s, 587.14 s"
NOT_PROVEN = "  not proven by this: who measured, "


def beginning(text: str, length: int = 35) -> list[str]:
    """The beginnings of the lines, and whether the text ends with a line feed."""
    assert text.endswith("\n")
    return [line[:length] for line in text.splitlines()]


def test_what_was_made(bundle: Bundle, our_run: Path) -> None:
    made = bundle()
    size = sum(path.stat().st_size for path in made.path.rglob("*") if path.is_file())
    size -= sum((made.path / name).stat().st_size for name in ("manifest.json", "SHA256SUMS"))
    assert made_text(made).splitlines() == [
        f"{made.path}: 1 run(s), {len(made.manifest.files)} files, {size} bytes unpacked",
        "  options    time for 20,000,000 tokens",
        f"  runs/001 ({our_run}): {RUN}",
        "put this line into the bid:",
        f"  nlp-bench evidence, SHA-256 of manifest.json: {made.digest}",
    ]
    assert not any("no number" in said for said in made_talk(made))


def test_what_was_made_without_a_number(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(published_log())
    (tmp_path / "evidence.sig").touch()
    made = bundle("evidence", tmp_path / "train.log")
    assert made_text(made).splitlines()[2] == f"  logs/001/train.log ({tmp_path}/train.log): REFUSED"
    said = list(made_talk(made))
    assert said[-1] == "1 of 1 run(s) have no number: the bundle proves how they ended"
    assert said[-2] == f"{tmp_path}/evidence.sig is the signature of an earlier bundle; make it anew with --sign"


def test_what_is_verified(bundle: Bundle, our_run: Path) -> None:
    seal_run(our_run)
    made = bundle()
    (made.path.with_name("evidence.sig")).touch()
    found = verify(made.path)
    fields = re.search(r"(\d+) fields derived", verification_text(found))
    assert int(fields[1]) == found.num_fields > 400
    *lines, last = verification_text(found).splitlines()
    assert lines == [
        f"{made.path}: VERIFIED",
        f"  digest     {made.digest}",
        "  options    time for 20,000,000 tokens",
        f"  files      {len(made.manifest.files)} hashes, all as recorded",
        f"  numbers    {found.num_fields} fields derived again from the logs, all the same",
        "  log lines  5 records agree with themselves and with each other",
        "  chain      runs/001: 5 link(s) hold; not sealed: nonce",
        f"  runs/001 ({our_run}): {RUN}",
        f"  note       {made.path}.sig was not checked; give --allowed-signers FILE",
    ]
    assert last.startswith(NOT_PROVEN)
    assert [numbers["outcome"] for run in found.runs for numbers in run["numbers"]] == ["VALID"]


def test_what_differs(bundle: Bundle, our_run: Path, told: Ask) -> None:
    seal_run(our_run)
    made = bundle()
    log = made.path / "runs/001/job.out"
    log.write_text(log.read_text().replace("5.35", "5.30"))
    text = told("verify", made.path, code=1).out
    shown = beginning(text)
    assert shown[:5] == [
        f"{made.path}: DIFFERS"[:35],
        f"  digest     {made.digest}"[:35],
        "  options    time for 20,000,000 tokens"[:35],
        "  files      not as recorded:",
        "    runs/001/job.out was changed: i",
    ]
    assert "  numbers    report/report.json does not follow from the logs:" in text
    for name in ("manifest.json", "runs/001/result.json", "report/report.txt"):
        assert re.search(rf"^  numbers    {name}: \d+ likewise; all of them: --format json$", text, re.MULTILINE)
    after = shown.index("  log lines  some contradict others")
    assert shown[after + 1] == "    runs/001/job.out: line 4 contra"
    assert shown[after + 2] == "  chain      is broken:"
    assert shown[after + 3].startswith("    runs/001: job.out: the 6 lines")
    assert shown[-1] == NOT_PROVEN[:35]
    assert "VALID; steady" not in text  # what a changed log gives is no number to quote


def test_few_differences_of_a_file_are_all_named(bundle: Bundle) -> None:
    folder = bundle().path
    for name, number in (("report/report.json", "36361.58"), ("runs/001/result.json", "34063.43")):
        path = folder / name
        path.write_text(path.read_text().replace(number, "1", 1))
    text = verification_text(verify(folder))
    assert "  numbers    runs/001/result.json does not follow from the logs:\n    run." in text
    assert "likewise" not in text


def test_lines_that_state_their_time_once_are_told(bundle: Bundle, tmp_path: Path) -> None:
    lines = [f" iteration {10 * n}/ 50 | elapsed time per iteration (s): {5.3 + n % 3 / 100} |" for n in range(1, 6)]
    (tmp_path / "train.log").write_text("\n".join([*lines, "exiting program at iteration 50", ""]))
    made = bundle("once", tmp_path / "train.log", sequence_length=2048, global_batch_size=96)
    found = verify(made.path)
    assert found.num_lines == 0
    told = [remark for remark in found.remarks if "state their time once only" in remark]
    assert [remark.split(":")[0] for remark in told] == ["logs/001/train.log"]
    assert "log lines" not in verification_text(found)
