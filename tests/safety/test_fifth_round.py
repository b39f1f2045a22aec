"""Faults that were named as left by earlier rounds, and those of a fifth."""

import os
import re
from pathlib import Path

import pytest
from support.ours import write_our_run
from support.published import published_log

import nlp_bench
from nlp_bench.cli.main import main
from nlp_bench.config.scheduler import get_scheduler
from nlp_bench.errors import UsageError
from nlp_bench.evidence.make import make_bundle
from nlp_bench.evidence.manifest import Options
from nlp_bench.evidence.verify import Demands, verify
from nlp_bench.launch.end.log_facts import gather


def test_logs_beside_run_folders_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_our_run(tmp_path / "all/run")
    for name in ("slurm-1.out", "train.log.gz"):
        (tmp_path / "all" / name).write_text(published_log())
    main(["report", str(tmp_path / "all")])
    assert (
        f"passed over: {tmp_path}/all/slurm-1.out and 1 more: logs beside run folders; name it"
        in capfd.readouterr().err
    )


def test_a_bundle_says_which_links_it_leaves_out_and_has_the_log(tmp_path: Path) -> None:
    run = write_our_run(tmp_path / "run")
    (tmp_path / "elsewhere.err").write_text("what went wrong\n")
    (run / "job.err").unlink(missing_ok=True)
    (run / "job.err").symlink_to(tmp_path / "elsewhere.err")
    made = make_bundle([str(run)], tmp_path / "evidence", Options(), with_ranks=False, force=False)
    assert "runs/001: left out: job.err, a link; a bundle holds files only" in made.remarks
    (run / "job.out").rename(tmp_path / "job.out")
    (run / "job.out").symlink_to(tmp_path / "job.out")
    with pytest.raises(
        UsageError, match=r"job\.out is a link, and a bundle holds files only; put the log itself there"
    ):
        make_bundle([str(run)], tmp_path / "another", Options(), with_ranks=False, force=False)


def test_too_few_bytes_for_a_bundle_are_named(tmp_path: Path) -> None:
    made = make_bundle(
        [str(write_our_run(tmp_path / "run"))], tmp_path / "e.tar.gz", Options(), with_ranks=False, force=False
    )
    with pytest.raises(UsageError, match="unpacks to more than 1 bytes; --max-bytes N allows more"):
        verify(made.path, Demands(), max_bytes=1)


@pytest.mark.parametrize("order", ["le", "be"])
def test_utf_16_without_its_mark_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], order: str) -> None:
    (tmp_path / "x.log").write_bytes(published_log().encode(f"utf-16-{order}"))
    assert main(["report", str(tmp_path / "x.log")]) != 0
    assert f"UTF-16 is not read; convert it: iconv -f UTF-16{order.upper()} -t UTF-8" in "".join(capsys.readouterr())


def test_the_api_takes_no_word_for_a_switch(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(published_log())
    log = nlp_bench.read_log(tmp_path / "x.log", sequence_length=2048)
    with pytest.raises(UsageError, match="same_workload: 'no' is neither True nor False"):
        nlp_bench.compare(log, log, same_workload="no")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="model: 13 is neither a text nor a path; give it in quotes"):
        nlp_bench.plan(13, "juwels-booster")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"give each as an argument of its own \(\*paths\)"):
        nlp_bench.read_logs([tmp_path / "x.log"])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"give each as an argument of its own \(\*paths\)"):
        nlp_bench.read_logs(tmp_path.glob("*.log"))  # type: ignore[arg-type]
    with (tmp_path / "x.log").open() as file, pytest.raises(UsageError, match="give the name of the file"):
        nlp_bench.read_log(file)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="pattern: 5 is no text"):
        nlp_bench.read_log(tmp_path / "x.log", pattern=5)  # type: ignore[arg-type]


def measured(folder: Path, *lines: str, **options: int) -> "nlp_bench.Result":
    """Return what is measured of a log of these lines."""
    (folder / "some.log").write_text("\n".join(lines) + "\n")
    return nlp_bench.measure(nlp_bench.read_log(folder / "some.log", **options))  # type: ignore[arg-type]


def titan(steps: int = 60) -> list[str]:
    return [
        f"[rank0]:[titan] 2026-01-01 10:{n // 15:02}:{4 * (n % 15):02},000 - root - INFO - step: {n}  loss: {9 - n / 20:.5f}  grad_norm:  1.0000  "
        f"memory: 40.00GiB(50.00%)  tps: {4000 + n % 7}  tflops: 200.00  mfu: 20.00%"
        for n in range(1, steps + 1)
    ]


def nano(steps: int = 60) -> list[str]:
    return [f"iter {n}: loss {9 - n / 20:.4f}, time {500 + n % 7:.2f}ms, mfu 40.00%" for n in range(steps)]


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    [
        (
            ["+ torchrun --nnodes=64 --nproc_per_node=8 preflight.py", "+ torchrun --nnodes=1 --nproc_per_node=8 train.py", *titan()],
            {},
            "number of GPUs is 512 in line 1 and 8 in line 2",
        ),
        (["+ echo 'usage: torchrun --nnodes=64 --nproc_per_node=8 train.py'", *titan()], {}, "not in the log: number of GPUs"),
        (
            ["tokens per iteration will be: 983,040", "torch.OutOfMemoryError", "tokens per iteration will be: 491,520", *nano()],
            {"sequence_length": 1024, "num_gpus": 8},
            "tokens per iteration is 983040 in line 1 and 491520 in line 3",
        ),
        (
            ["Num_devices: 256, shape (256,)", "Num_devices: 8, shape (8,)"]
            + [f"completed step: {n}, seconds: {4 + n % 7 / 1000}, TFLOP/s/device: 100.0, Tokens/s/device: 4096.0, loss: {9 - n / 20:.3f}" for n in range(40)],
            {},
            "number of GPUs is 256 in line 1 and 8 in line 2",
        ),
    ],
)  # fmt: skip
def test_of_two_different_sizes_neither_counts(
    tmp_path: Path, lines: list[str], options: dict[str, int], said: str
) -> None:
    """A start that failed, a program before the training: the first of its sizes made the number many times too fast."""
    result = measured(tmp_path, *lines, **options)
    assert result.tokens_per_second.steady is None
    assert result.outcome.value == "REFUSED"
    assert said in result.reasons[0]


MEGATRON = [
    f" [2026-01-01 10:{n // 12:02}:{5 * (n % 12):02}] iteration {n}/ 60 | consumed samples: {64 * n} | elapsed time per iteration (ms): {5000 + n % 7}.1 | "
    f"global batch size: 64 | lm loss: {9 - n / 20:.6E} | grad norm: 1.000 |"
    for n in range(1, 61)
]


@pytest.mark.parametrize(
    "decoy",
    [
        "# srun pretrain_gpt.py --seq-length 8192", "usage: pretrain_gpt.py [-h] [--seq-length 8192]",
        "+ python tasks/main.py --task LAMBADA --seq-length 8192", "submitted next job: sbatch train.sh --seq-length 8192",
    ],
)  # fmt: skip
def test_a_length_that_no_training_states_does_not_count(tmp_path: Path, decoy: str) -> None:
    for lines in ([decoy, *MEGATRON], [*MEGATRON, decoy], [*MEGATRON, "+ python pretrain_gpt.py --seq-length 8192"]):
        assert "not in the log: sequence length" in measured(tmp_path, *lines).reasons[0]
    honest = measured(tmp_path, "+ python pretrain_gpt.py --seq-length 4096", *MEGATRON, decoy)
    assert honest.log.sequence_length == 4096


def llm_c(loss: str) -> list[str]:
    head = ["| total batch size      | 524288 |", "| sequence length T     | 1024 |", "| num_processes         | 8 |"]
    return head + [
        f"step {n:4d}/60 | loss {7 - n / 20:.6f} (+0.10z)| norm 1.0000 (-0.10z)| lr 1.00e-04 | {500 + n % 7}.00 ms | 40.0% bf16 MFU | 1048576 tok/s"
        if n < 20
        else f"step {n:4d}/60 | loss {loss} (+nanz)| norm {loss} (+nanz)| lr 1.00e-04 | {500 + n % 7}.00 ms | 40.0% bf16 MFU | 1048576 tok/s"
        for n in range(1, 61)
    ]


@pytest.mark.parametrize(
    "lines",
    [
        *map(llm_c, ("nan", "-nan", "inf")),
        [f"Epoch 0:  {n}%|###  | {n}/100 [{n // 30:02}:{2 * (n % 30):02}<01:00,  2.00s/it, v_num=0, train_loss=nan]" for n in range(1, 101)],
    ],
)  # fmt: skip
def test_a_loss_that_is_no_number_has_none(tmp_path: Path, lines: list[str]) -> None:
    result = measured(tmp_path, *lines, sequence_length=1024, global_batch_size=512, num_gpus=8)
    assert (result.outcome.value, result.tokens_per_second.steady) == ("INVALID", None)
    assert "loss is nan" in result.reasons[0] or "loss is inf" in result.reasons[0]


def test_transformers_print_a_loss_of_zero_where_it_is_no_number(tmp_path: Path) -> None:
    lines = [
        f"{{'loss': {9 - n / 20:.4f}, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.1, 'num_input_tokens_seen': {65536 * n}, 'train_runtime': {2.0 * n}}}"
        for n in range(1, 21)
    ]
    lines += [line.replace(line[9:15], "0.0", 1).replace("1.2", "nan") for line in lines]
    result = measured(tmp_path, *lines, num_gpus=8, sequence_length=2048)
    assert result.tokens_per_second.steady is None
    assert "the loss is no number any more" in result.reasons[0]


def test_lines_without_the_loss_of_the_others_are_doubted(tmp_path: Path) -> None:
    lines = [re.sub(r" lm loss: \S+ \|", "", line) if n >= 20 else line for n, line in enumerate(MEGATRON)]
    result = measured(tmp_path, *lines, sequence_length=4096)
    assert result.outcome.value == "MEASURED"
    assert [found.code.name for found in result.contradictions] == ["SILENT_LINES"]


def test_a_pattern_that_takes_a_part_of_a_number_is_refused(tmp_path: Path) -> None:
    lines = [f"step {n} loss {9 - n / 20:.3f} took {512.5 + n % 7} ms" for n in range(1, 61)]
    greedy = r"step (?P<iteration>\d+) loss (?P<lm_loss>[\d.]+).*(?P<elapsed_ms>[\d.]+) ms"
    sizes = {"sequence_length": 2048, "global_batch_size": 64}
    (tmp_path / "x.log").write_text("\n".join(lines) + "\n")
    for pattern in (greedy, r"step (?P<iteration>\d+) .*?(?P<elapsed_ms>\d\d\.\d) ms"):
        with_part = nlp_bench.measure(nlp_bench.read_log(tmp_path / "x.log", pattern=pattern, **sizes))  # type: ignore[arg-type]
        assert with_part.tokens_per_second.steady is None
        assert "pattern: elapsed_ms takes" in with_part.reasons[0]
    whole = nlp_bench.read_log(tmp_path / "x.log", pattern=greedy.replace(".*", ".*?", 1), **sizes)  # type: ignore[arg-type]
    assert nlp_bench.measure(whole).tokens_per_second.steady == pytest.approx(64 * 2048 / 0.5155, rel=0.01)


def test_times_that_change_a_thousandfold_are_of_another_unit(tmp_path: Path) -> None:
    lines = [
        re.sub(r"\(ms\): (\d)(\d+)\.1", r"(ms): \1.\2", line) if n >= 30 else line for n, line in enumerate(MEGATRON)
    ]
    lines = [re.sub(r"^ \[.*?\]", "", line) for line in lines]
    result = measured(tmp_path, *lines, sequence_length=4096)
    assert result.outcome.value == "INVALID"
    assert "change for good by a factor of" in result.reasons[0]


def test_a_run_of_ours_whose_lines_lost_their_loss_has_no_number(tmp_path: Path) -> None:
    run = write_our_run(tmp_path / "run")
    log = run / "job.out"
    lines = log.read_text().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if "lm loss" in line)
    lines[last] = re.sub(r" lm loss: \S+ \|", "", lines[last])
    log.write_text("".join(lines))
    found = nlp_bench.measure(nlp_bench.read_log(run))
    assert (found.outcome.value, found.tokens_per_second.steady) == ("INVALID", None)
    assert f"have no loss, the first of them line {last + 1}" in found.reasons[0]


def test_the_rule_on_the_loss_is_not_shown_where_lines_have_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = 'schema = "nlp-bench/rules/1"\ntitle = "mine"\nmodels = ["175"]\n[rules.finite-loss]\ncheck = "finite-loss"\nwhy = "mine"\n'
    (tmp_path / "mine.toml").write_text(rules)
    lines = [re.sub(r" lm loss: \S+ \|", "", line) if n >= 20 else line for n, line in enumerate(MEGATRON)]
    (tmp_path / "x.log").write_text("\n".join(lines) + "\n")
    words = ["report", str(tmp_path / "x.log"), "--sequence-length", "4096", "--rules", str(tmp_path / "mine.toml")]
    main([*words, "--explain"])
    assert "40 of 60 lines have no loss" in capsys.readouterr().out
    skipped = [line + " number of skipped iterations: 1 |" if n >= 20 else line for n, line in enumerate(lines)]
    (tmp_path / "x.log").write_text("\n".join(skipped) + "\n")
    main([*words, "--explain"])
    assert "lines have no loss" not in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_link_to_somebody_elses_file_puts_no_line_of_it_into_a_record(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    secret = tmp_path / "secret"
    secret.write_text("RuntimeError: password=xyz123\n")
    for name in ("job.out", "job.err"):
        (tmp_path / "run" / name).symlink_to(secret)
    scheduler = get_scheduler("local")
    assert gather(tmp_path / "run", scheduler).error == "RuntimeError: password=xyz123"  # one's own
    os.chown(secret, 65534, 65534)
    assert gather(tmp_path / "run", scheduler).error is None


def test_another_logging_interval_is_thought_of_where_lines_seem_to_be_missing(tmp_path: Path) -> None:
    lines = [line for n, line in enumerate(MEGATRON, 1) if n > 40 or n % 5 == 0]
    result = measured(tmp_path, *lines, sequence_length=4096)
    assert "unless the program logged every 5 iterations there" in " ".join(result.reasons)


def test_two_modes_are_named_as_they_are(tmp_path: Path) -> None:
    lines = [re.sub(r"\(ms\): 5", "(ms): 25", line) if n % 2 else line for n, line in enumerate(MEGATRON)]
    lines = [re.sub(r"^ \[.*?\]", "", line) for line in lines]
    said = " ".join(measured(tmp_path, *lines, sequence_length=4096).reasons)
    assert "two modes: intervals take either 66.7 % less or 66.7 % more than the mean" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["watch", "nowhere"], "DIR nowhere does not exist; give a run folder"),
        (["watch", ".", "--while-pid", "0"], "--while-pid: "),
    ],
)
def test_watch_names_what_cannot_be_watched(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(words) == UsageError.exit_code
    assert said in capsys.readouterr().err


def test_a_size_against_the_log_proves_no_limit(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("\n".join(["+ python pretrain_gpt.py --seq-length 4096", *MEGATRON]) + "\n")
    for length, word in ((4096, "PASS"), (8192, "NOT PROVEN")):
        found = nlp_bench.measure(nlp_bench.read_log(tmp_path / "x.log", sequence_length=length), limit=500).verdict
        assert found is not None
        assert found.word == word
    assert found.reasons == ("the option --sequence-length 8192 is used although the log says 4096",)
    assert found.sustained == "NOT PROVEN"


def test_options_that_make_other_tokens_than_the_log_counts_prove_no_limit(tmp_path: Path) -> None:
    lines = (f"step {i} took {2 + 0.01 * (7 * i % 5):.4f} s tokens 196608 loss {9 - i / 50:.3f}" for i in range(1, 60))
    (tmp_path / "x.log").write_text("\n".join(lines) + "\n")
    form = r"step (?P<iteration>\d+) took (?P<elapsed_s>[\d.]+) s tokens (?P<tokens>\d+) loss (?P<lm_loss>[\d.]+)"
    for batch, word in ((96, "PASS"), (192, "NOT PROVEN")):
        run = nlp_bench.read_log(tmp_path / "x.log", pattern=[form], sequence_length=2048, global_batch_size=batch)
        found = nlp_bench.measure(run, limit=900).verdict
        assert found is not None
        assert found.word == word
    assert found.reasons == ("the options give 2 times the tokens that the log itself counts",)
