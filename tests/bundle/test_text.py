"""What a person reads of a bundle; the whole texts stand in docs/evidence.md, and tests/test_pages.py prints them anew."""

from pathlib import Path

from support.ours import Bundle
from support.published import published_log

from nlp_bench.evidence.text import made_talk, made_text, verification_text
from nlp_bench.evidence.verify import verify


def test_what_was_made_without_a_number(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(published_log())
    (tmp_path / "evidence.sig").touch()
    made = bundle("evidence", tmp_path / "train.log")
    assert made_text(made).splitlines()[2] == f"  logs/001/train.log ({tmp_path}/train.log): REFUSED"
    said = list(made_talk(made))
    assert said[-1] == "1 of 1 run(s) have no number: the bundle proves how they ended"
    assert said[-2] == f"{tmp_path}/evidence.sig is the signature of an earlier bundle; make it anew with --sign"


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
