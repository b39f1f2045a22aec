"""`nlp-bench report` as a person calls it."""

import csv
import gzip
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.browsing import simulated_log
from support.command import Cli
from support.processes import execute
from support.published import change_record, write_run

from nlp_bench.measure.foreign import measure_log
from nlp_bench.measure.result import Supplied, supplied_lines
from nlp_bench.measure.sizes import Overrides

PUBLISHED = Path(__file__).parents[2] / "reports/reference/juwels_booster"
SEQUENCE = ["--sequence-length", "2048"]


def runs_of(report: Cli, *words: object) -> tuple[int, list[dict[str, Any]]]:
    found = report(*words, "--format", "json")
    assert found.json["schema"] == "nlp-bench/report/1"
    return found.code, found.json["runs"]


def test_the_contract_in_json(report: Cli, log: Path) -> None:
    code, (run,) = runs_of(report, log, *SEQUENCE, "--num-gpus", 384)
    assert code == 0
    assert list(run) == [
        "source", "dialect", "outcome", "quality", "reasons", "contradictions", "num_records", "global_batch_size", "sequence_length", "num_gpus",
        "supplied", "tokens_per_second", "time_to_report_s", "tokens_per_second_per_gpu", "seconds_per_iteration", "window",
        "steady_state", "sustained", "uncertainty", "sensitivity", "provenance", "workload", "energy", "machine", "efficiency", "until", "rules", "ending", "seals",
    ]  # fmt: skip
    assert (run["dialect"], run["outcome"], run["num_records"]) == ("megatron-lm", "MEASURED", 5)
    assert run["reasons"] == ["the log stops at iteration 50 of 3125000"]
    assert round(run["tokens_per_second"]["reference"], 1) == 34063.4
    assert round(run["tokens_per_second"]["steady"], 1) == 36361.6
    assert round(run["time_to_report_s"]["reference"], 1) == 587.1
    assert round(run["time_to_report_s"]["steady"], 1) == 550.0
    assert round(run["tokens_per_second_per_gpu"], 1) == 94.7
    assert run["window"]["excluded"] == [{"iterations": [1, 10], "why": "warm-up"}]
    rate_low, rate_high = run["tokens_per_second"]["ci95"]
    assert run["time_to_report_s"]["ci95"] == [20_000_000 / rate_high, 20_000_000 / rate_low]


def test_the_table(report: Cli, log: Path) -> None:
    code, out, err = report(log, *SEQUENCE)
    assert (code, err) == (0, "")
    for text in ("34 063 tokens/s", "587.14", "36 400", "550 s", "11-50", "stops at iteration 50 of 3125000"):
        assert text in out
    assert "\x1b" not in out


SUPPLIED = [
    ([], {}, "", ""),
    (SEQUENCE, {"sequence_length": None}, "550*", "--sequence-length 2048 (not in the log)"),
    (["--sequence-length", "4096"], {"sequence_length": None}, "275*", "--sequence-length 4096 (not in the log)"),
    ([*SEQUENCE, "--global-batch-size", "96"], {"sequence_length": None}, " 96 ", "--sequence-length 2048 (not in"),
    (
        [*SEQUENCE, "--global-batch-size", "192"],
        {"sequence_length": None, "global_batch_size": 96},
        "192*",
        "--global-batch-size 192 (the log says 96)",
    ),
]


@pytest.mark.parametrize(("words", "logged", "cell", "said"), SUPPLIED)
def test_what_the_log_does_not_show_is_marked_in_every_format(
    report: Cli, log: Path, words: list[str], logged: dict[str, int | None], cell: str, said: str
) -> None:
    _, (run,) = runs_of(report, log, *words)
    assert {each["name"]: each["logged"] for each in run["supplied"]} == logged
    assert all(each["changes_rate"] for each in run["supplied"])
    texts = {form: report(log, *words, "--format", form)[1] for form in ("table", "markdown", "html", "csv")}
    assert cell in texts["markdown"].replace("\\", "")
    for form in ("table", "markdown", "html"):
        assert ("supplied by hand" in texts[form]) == bool(logged)
        assert said in " ".join(texts[form].replace("\\", "").split())
    (row,) = csv.DictReader(io.StringIO(texts["csv"]))
    assert all(name in row["supplied"] for name in logged)
    assert bool(row["supplied"]) == bool(logged)


@pytest.mark.parametrize(("number", "names"), [(3, "a, b, c"), (4, "4 runs")])
def test_many_runs_that_what_was_supplied_is_about_are_counted(number: int, names: str) -> None:
    supplied = (Supplied(name="num_gpus", value=8, logged=None, changes_rate=False),)
    (line,) = supplied_lines((source, supplied) for source in "abcd"[:number])
    assert line == f"* supplied by hand: --num-gpus 8 (not in the log): {names}"


def test_gpus_that_change_no_rate_are_told_from_those_that_do(report: Cli, log: Path) -> None:
    _, (run,) = runs_of(report, log, *SEQUENCE, "--num-gpus", 384, "--gpu", "A100-40GB")
    found = {each["name"]: each["changes_rate"] for each in run["supplied"]}
    assert found == {"sequence_length": True, "num_gpus": False, "gpu": False}
    assert "384*" in report(log, *SEQUENCE, "--num-gpus", 384, "--format", "markdown")[1].replace("\\", "")


def test_words_that_would_excuse_too_much_are_told_of(report: Cli, tmp_path: Path) -> None:
    lines = simulated_log(200, seed=1).splitlines()
    for index in range(20, 200, 9):
        words, _, rest = lines[index].partition("elapsed time per iteration (s): ")
        lines[index] = f"saving checkpoint at iteration {10 * index}\n{words}elapsed time per iteration (s): 1{rest}"
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    _, (run,) = runs_of(report, tmp_path / "a.log", *SEQUENCE)
    assert run["steady_state"]["refused_mark"] == "checkpoint"
    assert "would excuse more than 10 % of the run's time" in "; ".join(run["reasons"])


def test_many_runs_are_a_table_with_its_sums(report: Cli, log: Path, tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"runs/good{number}").mkdir(parents=True)
        (tmp_path / f"runs/good{number}/a.log").write_bytes(log.read_bytes().replace(b"5.4", f"5.{number}".encode()))
    for number in range(6):
        (tmp_path / f"runs/bad{number}.log").write_text(f"iteration {number}/10 | lm loss: 3.5 |\n" * 3)
    code, out, _ = report(tmp_path / "runs", *SEQUENCE)
    rows, sums, *_ = out.split("\n\n")
    assert code == 1
    assert len(rows.splitlines()) == 3 + 15
    assert max(map(len, rows.splitlines())) <= 120
    assert "15 runs: 9 MEASURED, 6 REFUSED; 9 have a number, 6 have none." in sums
    assert "no number (6): " in sums
    for row in rows.splitlines()[3:]:
        assert ("the log stops at" in row) == ("MEASURED" in row)


def test_other_tokens(report: Cli, log: Path) -> None:
    _, (run,) = runs_of(report, log, *SEQUENCE, "--tokens", 40_000_000)
    assert round(run["time_to_report_s"]["reference"], 1) == 1174.3


def test_standard_input(report: Cli, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(log.read_bytes()))))
    code, (run,) = runs_of(report, "-", *SEQUENCE)
    assert (code, run["source"]) == (0, "standard input")


def test_explain_leaves_standard_output_one_document(report: Cli, log: Path) -> None:
    _, out, err = report(log, "--format", "json", "--explain")
    assert json.loads(out)["runs"]
    assert "no number" in err


@pytest.mark.parametrize(
    ("name", "is_changed"),
    [
        *((name, True) for name in ("3-5", "007", "1e5", "5-Mar", "1:02", "1.2.3", "=1+1", "12345678901234567")),
        *((name, False) for name in ("a.log", "175", "13B", "2.5", "marlin-5", "runs/000003/work")),
    ],
)
def test_no_spreadsheet_makes_another_word_of_a_cell(
    report: Cli, log: Path, here: Path, name: str, *, is_changed: bool
) -> None:
    (here / name).parent.mkdir(parents=True, exist_ok=True)
    (here / name).write_bytes(log.read_bytes())
    (row,) = csv.DictReader(io.StringIO(report(name, *SEQUENCE, "--format", "csv")[1]))
    assert row["source"] == ("'" if is_changed else "") + name


def test_hostile_names_do_not_reach_markup(report: Cli, log: Path, tmp_path: Path) -> None:
    evil = tmp_path / "<script>alert(1)</script>|x\n\x1b[31m.log"  # a folder and a file, by its slash
    evil.parent.mkdir()
    evil.write_bytes(log.read_bytes())
    html = report(evil, *SEQUENCE, "--format", "html")[1]
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    markdown = report(evil, *SEQUENCE, "--format", "markdown")[1]
    assert "<script>" not in markdown.replace("\\<", "")
    cells = [line.replace("\\|", "").count("|") for line in markdown.splitlines()[:3]]
    assert len(set(cells)) == 1
    assert "\x1b" not in report(evil, *SEQUENCE)[1] + markdown + html


def test_a_name_that_is_no_text(report: Cli, log: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"\xff\xfe.log")
    odd.write_bytes(log.read_bytes())
    code, (run,) = runs_of(report, odd, *SEQUENCE)
    assert (code, run["outcome"]) == (0, "MEASURED")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["no/such.log"], "no/such.log does not exist; give"),
        (
            ["\x1b[01;34mru\rn1\x1b[0m"],
            "ru[U+000D]n1[U+001B][0m does not exist (the name has colour codes in it, as of `ls --color=always`",
        ),
        (["file:///a/job%201.log"], "does not exist (write it as a path: /a/job 1.log)"),
        (["https://ci.site/7/job.log"], "does not exist (nothing is fetched from an address: copy it"),
        (["login1:/scratch/job.log"], "does not exist (nothing is fetched from an address: copy it"),
        (["-", "-"], "given twice"),
        (["{log}", "--tokens", "0"], "--tokens: '0' is not a whole number above 0"),
        (["{log}", "--tokens", "1" + 400 * "0"], "is more than 1_000_000_000_000_000_000"),
        (["{log}", "--limit", "nan"], "--limit: 'nan' is not a time above 0"),
        (["{log}", "--colour"], "--colour"),
        (["{log}", "--format", "pdf"], "pdf"),
        (["{empty}"], "holds no run folder"),
        (["{empty}/*.log"], "does not exist"),
        (["--dialects", "{log}"], "takes no PATH"),
        (["--dialects", "--format", "html"], "table, json, markdown"),
        (["{log}", "--output", "{log}"], "cannot be written"),
        (["{log}", "--scaling", "--sweep"], "two views of the same runs"),
        (["{log}", "--baseline-gpus", "8"], "add --scaling"),
        (["{log}", "--scaling", "--format", "records-csv"], "leave one out"),
        (["{log}", "--gpu", "NVIDIA A100-SXM-64GB"], "benchmark/accelerators.toml"),
        (["{log}", "--gpu", "a fast one"], "benchmark/accelerators.toml"),
        (["{log}", "--gpu", "A100", "--precision", "fp8"], "benchmark/accelerators.toml"),
        ([], "PATH"),
    ],
)
def test_usage_errors(report: Cli, log: Path, tmp_path: Path, words: list[str], text: str) -> None:
    (tmp_path / "empty").mkdir()
    code, out, err = report(*(word.format(log=log, empty=tmp_path / "empty") for word in words))
    assert (code, out) == (2, "")
    assert text in err


HEAVY = ("pandas", "matplotlib", "torch", "multiprocessing", "concurrent.futures", "asyncio", "tqdm")
OURS = (
    "rules.file",
    "analysis.sweep",
    "analysis.scaling",
    "measure.machine",
    "measure.energy",
    "config.catalog",
    "launch.end.advice",
    "show.draw",
)
"""Rules, rankings, meters, advice and plots, which a plain log does not pay for."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        ([], (*HEAVY, *(f"nlp_bench.{name}" for name in OURS))),
        *((["--format", form], HEAVY) for form in ("json", "csv", "markdown")),
        (["--help"], ("numpy", *HEAVY)),
    ],
)
def test_a_plain_report_starts_light(log: Path, words: list[str], heavy: tuple[str, ...]) -> None:
    program = (
        "import sys\nfrom importlib.util import find_spec\nfrom nlp_bench.cli.main import main\n"
        f"try: main(['report', {str(log)!r}, '--sequence-length', '2048', *{words!r}])\n"
        "except SystemExit: pass\n"
        f"print(sorted(set({heavy!r}) & set(sys.modules)), all(map(find_spec, {[name for name in heavy if name.startswith('nlp_bench.')]!r})))"
    )
    assert execute(sys.executable, "-c", program, check=True).stdout.splitlines()[-1] == "[] True"


class TestFolders:
    """Run folders, and what JUBE makes around them."""

    @pytest.mark.parametrize("text", ["[" * 200_000, '{"schema": [1]}'])
    def test_a_run_json_of_nobody_is_a_row(self, report: Cli, tmp_path: Path, text: str) -> None:
        (write_run(tmp_path / "run") / "run.json").write_text(text)
        code, (run,) = runs_of(report, tmp_path / "run")
        assert (code, run["outcome"], run["tokens_per_second"]["steady"]) == (1, "UNKNOWN", None)

    def test_a_list_in_a_run_json_is_named(self, report: Cli, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "run")
        change_record(folder, "run.json", training__lr=[1, 2])
        code, (run,) = runs_of(report, folder)
        assert (code, run["outcome"]) == (1, "UNKNOWN")
        assert "training.lr" in " ".join(run["reasons"])

    def test_a_tree_of_jube_counts_each_real_folder_once(self, report: Cli, tmp_path: Path) -> None:
        first = write_run(tmp_path / "nlp_benchmark_run/000000/000003_train/work")
        write_run(tmp_path / "nlp_benchmark_run/000000/000004_train/work", "FAILED", reasons=["rank 3 ended with 1"])
        check = tmp_path / "nlp_benchmark_run/000000/000000_check/work"
        check.mkdir(parents=True)
        (check / "run.json").write_text("{}")
        measure = tmp_path / "nlp_benchmark_run/000000/000005_measure/work"
        measure.mkdir(parents=True)
        (tmp_path / "nlp_benchmark_run/000000/configuration.xml").touch()
        (measure / "train").symlink_to(first)
        (measure / "loop").symlink_to(tmp_path / "nlp_benchmark_run")
        code, runs = runs_of(report, tmp_path / "nlp_benchmark_run")
        assert code == 1
        assert [run["outcome"] for run in runs] == ["VALID", "FAILED"]
        assert runs[0]["source"].endswith("000003_train/work")
        assert runs[1]["tokens_per_second"]["reference"] is None
        assert len(runs_of(report, measure)[1]) == 1  # the link to the step before, not the one out of JUBE's run
        assert len(runs_of(report, first, tmp_path / "nlp_benchmark_run")[1]) == 2

    def test_a_run_that_has_not_ended_is_a_row(self, report: Cli, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "run")
        (folder / "outcome.json").unlink()
        code, (run,) = runs_of(report, folder)
        assert (code, run["outcome"]) == (1, "UNKNOWN")
        assert "nlp-bench sync" in run["reasons"][0]

    def test_our_log_named_directly_is_held_to_its_run_json(self, report: Cli, tmp_path: Path) -> None:
        log = write_run(tmp_path / "run") / "job.out"
        assert runs_of(report, log)[0] == 0
        log.write_bytes(log.read_bytes()[:-1])
        code, (run,) = runs_of(report, log, *SEQUENCE)
        assert (code, run["outcome"], run["tokens_per_second"]["steady"]) == (1, "INCOMPLETE", None)

    def test_options_are_not_used_against_run_json(self, report: Cli, tmp_path: Path) -> None:
        out = report(write_run(tmp_path / "run"), "--sequence-length", "17").out
        assert "34 063 tokens/s" in out
        assert "not used here" in " ".join(out.split())


def test_the_published_results_come_out_to_the_printed_digit(report: Cli) -> None:
    out = report(PUBLISHED, code=0).out
    for time_s in ("329.07", "554.70", "1367.92", "382.30"):
        assert time_s in out
    _, runs = runs_of(report, PUBLISHED)
    assert {run["dialect"] for run in runs} == {"reference-table"}
    assert all(run["tokens_per_second"]["steady"] is None for run in runs)
    assert all(run["reasons"] == ["published value, raw log not available"] for run in runs)


def test_a_reference_table_that_contradicts_itself_says_so(report: Cli, tmp_path: Path) -> None:
    text = (PUBLISHED / "results.csv").read_text()
    (tmp_path / "mine.csv").write_text(text.replace("554.70", "454.70"))
    _, runs = runs_of(report, tmp_path / "mine.csv")
    assert runs[2]["reasons"][1] == "published time 454.70 s, recomputed 554.70 s"
    (tmp_path / "mine.csv").write_text(text.replace("36055.39", "fast"))
    assert report(tmp_path / "mine.csv")[0] == 2


def test_in_a_table_of_many_runs_the_reason_stands_apart_from_the_verdict(report: Cli, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number:02d}.log" for number in range(13)]
    for path in paths:
        path.write_text("nothing\n")
    assert "  REFUSED  NOT PROVEN  no whole training line" in report(*paths, "--limit", "330", code=1).out


# Each number with the lines, options and derivations that it comes from: what is special; the golden corpus has the rest.


def test_rates_alone_are_explained_by_their_mean(log: Path, report: Cli) -> None:
    rates = (400, 4000, 4040, 3960)
    log.write_text(
        "".join(
            f"[titan] 2026-01-01 10:00:00,000 - root - INFO - step: {step:2d}  loss: 9.0  grad_norm:  1.0  "
            f"memory: 40.00GiB(50.00%)  tps: {rate:,}  tflops: 20.00  mfu: 2.00%\n"
            for step, rate in enumerate(rates, start=1)
        )
    )
    out = report(log, "--num-gpus", 8, "--explain").out
    assert "reference none: the log has rates and no times" in out
    said = "31997.87 tokens/s = the harmonic mean of the logged rates over 3 iteration(s), each taken to have as many tokens"
    assert f"steady    {said}" in out
    assert "from      num_gpus = 8: command line --num-gpus" in out


def test_a_compressed_log_is_not_quoted(log: Path, report: Cli) -> None:
    packed = log.with_suffix(".gz")
    packed.write_bytes(gzip.compress(log.read_bytes()))
    out = report(packed, *SEQUENCE, "--explain").out
    assert "lines 2 to 5" in out
    assert "[default3]" not in out


def test_a_quoted_line_stays_one_short_line(log: Path, report: Cli) -> None:
    log.write_bytes(b"\x1b[31m" + b"x" * 3000 + b"\xff: " + log.read_bytes())
    out = report(log, *SEQUENCE, "--explain").out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) < 700


def test_a_refused_log_says_what_was_found(log: Path, report: Cli) -> None:
    out = report(log, "--explain").out
    assert "no number" in out
    assert "sequence_length: not known" in out
    assert "records   5, lines 1 to 5" in out


def test_of_a_hundred_starts_only_the_sum_is_told(log: Path) -> None:
    (line,) = [text for text in log.read_text().splitlines() if re.search(r"iteration +10/", text)]
    log.write_text("".join(re.sub(r"/ *\d+", f"/ {1000 + number}", line, count=1) + "\n" for number in range(100)))
    (entry, *others) = measure_log(str(log), Overrides(sequence_length=2048))
    assert len(others) == 99
    (left,) = (left for left in entry.provenance.left_out if "start" in left.what)
    assert (left.count, left.lines) == (99, None)


@pytest.mark.parametrize(("words", "peak"), [("H100", "NVIDIA H100 SXM"), ("V100", "NVIDIA V100 SXM2"), ("MI300X", "")])
def test_a_short_name_of_several_gpus_is_taken_as_one_of_them_with_a_line(
    report: Cli, log: Path, words: str, peak: str
) -> None:
    code, _, err = report(str(log), "--sequence-length", "2048", "--gpu", words)
    assert code == 0
    assert [peak in line for line in err.splitlines() if "--gpu" in line] == [True] * bool(peak)
