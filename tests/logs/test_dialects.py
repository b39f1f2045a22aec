"""Every dialect reads what its format string writes, and says what is missing; what must hold for each, tried on the fixtures' logs."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fixtures import fixtures
from support.fuzzing import Base, bases
from support.fuzzing import problem as problem_of_mutated
from support.mutate import NOISE
from support.samples import Sample, problem, samples
from support.texts import entries_of, log_of

from nlp_bench.logs.dialects import all_dialects
from nlp_bench.logs.record import Log

FIXTURES = fixtures()
CASES = [pytest.param(fixture, case, id=name) for name, fixture in FIXTURES for case in fixture["case"]]


def test_every_dialect_has_a_fixture() -> None:
    assert {d.name for d in all_dialects()} - {fixture["dialect"] for _, fixture in FIXTURES} == set()


@pytest.mark.parametrize(("fixture", "case"), CASES)
def test_fixture(tmp_path: Path, fixture: dict[str, Any], case: dict[str, Any]) -> None:
    entries = entries_of(tmp_path, fixture["log"].lstrip("\n"), **case.get("options", {}))
    entry = max(entries, key=lambda e: (e.has_number, e.num_records or 0))
    assert entry.dialect == fixture["dialect"]
    assert entry.outcome.value == case["outcome"], entry.reason_texts
    for word in case.get("says", ()):
        assert word in " ".join((*entry.reason_texts, *entry.remarks))
    for key in ("num_records", "num_gpus", "global_batch_size", "sequence_length"):
        if key in case:
            assert getattr(entry, key) == case[key], key
    for key in ("steady", "reference"):
        if key in case:
            found = getattr(entry, key)
            assert found is None if case[key] is False else found == pytest.approx(case[key], rel=1e-3), key


def test_every_example_is_read_by_its_dialect(tmp_path: Path) -> None:
    for dialect in all_dialects():
        sizes = {"sequence_length": 128, "global_batch_size": 8, "num_gpus": 8}
        assert entries_of(tmp_path, dialect.example + "\n", **sizes)[0].dialect == dialect.name, dialect.name


TEXTS = [(name, fixture["log"].lstrip("\n").encode()) for name, fixture in FIXTURES]
MANY = settings(max_examples=150, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SEVERAL_LINES = {name for name, fixture in FIXTURES if fixture.get("is_wrapped")}
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


WHOLE = [text for name, text in TEXTS if name not in SEVERAL_LINES and text.endswith(b"\n")]


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


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in TEXTS])
def test_windows_line_ends_change_nothing(tmp_path: Path, text: bytes) -> None:
    if b"\r" not in text:
        assert said(log_of(tmp_path, text.replace(b"\n", b"\r\n"))) == said(log_of(tmp_path, text))


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in TEXTS])
def test_megabytes_without_meaning_change_nothing(tmp_path: Path, text: bytes) -> None:
    if not text.endswith(b"\n"):
        return  # a last line that was cut goes on with what follows
    noise = b"node12:4711:4733 [3] UCC WARN something has no meaning at all\n"
    assert said(log_of(tmp_path, 20_000 * noise + text + 1000 * noise)) == said(log_of(tmp_path, text))


@pytest.mark.slow
def test_some_hundred_mutations(tmp_path: Path, known: list[Base]) -> None:
    found = [problem_of_mutated(tmp_path / "mutated.log", known[seed % len(known)], seed) for seed in range(0, 1000, 3)]
    assert [text for text in found if text] == []


SAMPLES = samples()  # the 107 real logs of third parties: read in place, never part of the project
DISPUTED = {
    # 14 x 512 tokens / 0.79772 s are expected; the window leaves out iterations 2 and 3 (a front that fades) and 11 (a checkpoint), too:
    # 11 x 512 / 0.76482 s = 7363.8. Of that time 0.673 s are iteration 10, a stall, which counts.
    "nanotron__tiny-llama-doc__15_iterations_stage_change_checkpoint.log": "steady is 7363",
    # Expected to lack the batch size; the log prints `Total train batch size (…) = 1,024`.
    "tqdm__awsome-distributed-training__esm2_hf_train.log": "does not name ['--global-batch-size']",
}


@pytest.mark.skipif(not SAMPLES, reason="the real logs do not lie beside this checkout")
@pytest.mark.parametrize("sample", SAMPLES, ids=[sample.path.stem for sample in SAMPLES])
def test_sample(sample: Sample) -> None:
    found, disputed = problem(sample), DISPUTED.get(sample.path.name)
    assert found is None if disputed is None else found and disputed in found


MINDFORMERS = "Epoch:[  {epoch}/  3], step:[ {step}/ 100], loss: 8.500, per_step_time: 2000ms, lr: 1e-05\n"
XTUNER = (
    "01/01 10:00:00 - mmengine - INFO - Epoch(train) [{epoch}][ {step}/50]  lr: 2.0e-04  time: 2.0000  loss: 2.5000\n"
)
EASYLM = " 12% {step}/10000 [10:00<1:13:20, 2.00it/s]\n"
TORCHTUNE = "Step {step} | loss:1.23 lr:2e-05 tokens_per_second_per_gpu:2048.0 grad_norm:1.23 \n"
BAR = "1|{step}|Loss: 0.94: 100%|###| 3/3 [00:24<00:00,  8.00s/it]\n"
TITAN = "[rank0]:[titan] root - INFO - step: {step}  loss:  6.1384  memory: 49.66GiB(52.28%)  tps: 5,856  mfu: 34.29%\n"
OLMO = "[2026-01-01 10:00:10] INFO [step={step}/1000]\n    throughput/device/tokens_per_second={rate}\n"


def iterations(log: Log) -> list[float]:
    return [record.iteration for attempt in log.attempts for record in attempt.records]


@pytest.mark.parametrize(("line", "total"), [(MINDFORMERS, 100), (XTUNER, 50)])
def test_iterations_are_numbered_through_all_epochs(tmp_path: Path, line: str, total: int) -> None:
    log = log_of(tmp_path, (line.format(epoch=epoch, step=step) for epoch in (1, 2, 3) for step in (10, 20)))
    assert iterations(log) == [epoch * total + step for epoch in (0, 1, 2) for step in (10, 20)]
    known = 300 if total == 100 else None
    assert {record.total_iterations for record in log.attempts[0].records} == {known}, (
        "XTuner does not say how many epochs"
    )


@pytest.mark.slow
@pytest.mark.parametrize("line", [MINDFORMERS, XTUNER, TORCHTUNE, TITAN, OLMO, BAR])
def test_a_log_of_many_blocks_is_read_to_its_end(tmp_path: Path, line: str) -> None:
    """Where a dialect has shown itself, the rest is searched for its words alone."""
    log = log_of(tmp_path, (line.format(epoch=1, step=step, rate=4096.0) for step in range(1, 6_000)))
    assert iterations(log) == list(range(1, 6_000))


def test_of_two_names_for_one_quantity_the_first_counts(tmp_path: Path) -> None:
    log = log_of(tmp_path, XTUNER.format(epoch=1, step=10).replace("loss: 2.5000", "loss: 2.5000  total_loss: 9.5000"))
    assert log.attempts[0].records[0].lm_loss == 2.5


def test_a_bar_counts_once_the_program_has_been_seen(tmp_path: Path) -> None:
    assert log_of(tmp_path, EASYLM.format(step=1)).dialect is None
    log = log_of(
        tmp_path, [EASYLM.format(step=1), "{'gradient_norm': 1.2,\n 'param_norm': 300.0}\n", EASYLM.format(step=2)]
    )
    assert (log.dialect, iterations(log)) == ("easylm", [2])


def test_records_that_say_less_are_read_where_there_are_no_others(tmp_path: Path) -> None:
    assert iterations(log_of(tmp_path, (BAR.format(step=step) for step in (1, 2, 2, 3)))) == [1, 2, 3]
    assert iterations(log_of(tmp_path, TORCHTUNE.format(step=7) + BAR.format(step=8) + BAR.format(step=9))) == [7]


@pytest.mark.parametrize(
    ("line", "devices"),
    [
        ("+ torchrun --nnodes=4 --nproc_per_node=8 train.py\n", 32),
        ("+ torchrun --nnodes=4 --nproc_per_node=8 -m torchtitan.train --job.config_file a.toml\n", 32),
        ("+ srun --nodes=8 torchrun --nnodes 8 --nproc-per-node 8 check_nccl.py\n", None),
        ("+ torchrun --nproc_per_node=8 train.py\n", None),
        ("torchrun --nnodes=4 --nproc_per_node=8 train.py\n", None),
        ("Building 3-D device mesh with ['pp', 'dp', 'tp'], [2, 4, 8]\n", 64),
        ("device mesh with parallelism: pp=1, dp_replicate=2, dp_shard=8, cp=1, tp=4\n", 64),
    ],
)
def test_a_fact_may_be_a_product(tmp_path: Path, line: str, devices: int | None) -> None:
    (attempt,) = log_of(tmp_path, [line, *(TITAN.format(step=step) for step in (1, 2, 3))]).attempts
    assert attempt.count("num_devices") == devices


def test_a_line_of_the_next_record_whose_head_is_lost_ends_the_one_before(tmp_path: Path) -> None:
    first, second, third = (OLMO.format(step=step, rate=f"{1000 * step}.5") for step in (1, 2, 3))
    log = log_of(tmp_path, first + second.splitlines()[1] + "\n    throughput/total_tokens=9\n" + third)
    assert [(r.iteration, r.tokens_per_second_per_device, r.consumed_tokens) for r in log.attempts[0].records] == [
        (1, 1000.5, None),
        (3, 3000.5, None),
    ]
