"""When silence is a stall: by the longest interval, the first one apart, and only while the watch itself is awake."""

import errno
from pathlib import Path

import pytest

from nlp_bench.config.run import Limits
from nlp_bench.errors import UsageError
from nlp_bench.launch.nodes.supervise import LogWatch

LINE = " iteration {:8d}/      40 | consumed samples: 1 | elapsed time per iteration (s): 1.0000 |\n"


def watch(path: Path, *, saves: bool = False, **limits: float) -> LogWatch:
    values = {"stall_factor": 5.0, "stall_least_s": 10.0, "stall_start_s": 100.0, **limits}
    return LogWatch(path, Limits(**values), saves=saves)  # type: ignore[arg-type]


def add(path: Path, text: str) -> None:
    with path.open("a") as log:
        log.write(text)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "job.out").write_text(LINE.format(40))  # of an earlier start
    return tmp_path / "job.out"


def test_the_start_has_a_limit_of_its_own(log: Path) -> None:
    found = watch(log)
    assert found.look(99) is None
    assert found.look(2) == "stalled before the first iteration, silent for 101 s (limit 100 s, longest interval 0.0 s)"


def test_a_file_server_that_stumbles_ends_no_training(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch looks twice a second for days: one EIO or ESTALE must not take the run down with the one who looks."""
    found = watch(log)
    add(log, LINE.format(1))

    def stumble(*_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "open", stumble)
        assert found.look(1) is None
    assert found.look(1) is None
    assert found.iteration == 1  # read at the next look


def test_the_first_interval_says_nothing_of_the_others(log: Path) -> None:
    found = watch(log)
    assert found.look(60) is None
    add(log, LINE.format(1))
    assert found.look(1) is None
    assert found.look(50) is None  # one line: still the limit of the start
    add(log, LINE.format(2))
    found.look(4)
    assert found.longest_s == 54  # behind the first line, the second interval counts
    assert found.limit_s() == 270


def test_silence_behind_some_iterations_is_a_stall(log: Path) -> None:
    found = watch(log)
    for number in range(1, 6):
        add(log, LINE.format(number))
        assert found.look(3) is None
    assert found.look(15) is None
    assert found.look(1) == "stalled after iteration 5, silent for 16 s (limit 15 s, longest interval 3.0 s)"


def test_any_growth_is_a_sign_of_life(log: Path) -> None:
    found = watch(log)
    add(log, LINE.format(1) + LINE.format(2))
    found.look(1)
    for _ in range(10):
        add(log, " saving a checkpoint\n")
        assert found.look(9) is None


@pytest.mark.parametrize(("saves", "last"), [(True, 3), (False, 40)])
def test_checkpoints_and_the_end_take_their_time(log: Path, saves: bool, last: int) -> None:
    found = watch(log, saves=saves)
    add(log, "".join(LINE.format(number) for number in (1, 2, last)))
    found.look(1)
    assert found.limit_s() == 100


def test_a_factor_of_none_never_ends_a_run(log: Path) -> None:
    assert watch(log, stall_factor=0.0).look(1e6) is None


def test_a_log_that_is_not_there_or_begins_anew(log: Path) -> None:
    found = watch(log)
    log.unlink()
    assert found.look(1e6) is None
    log.write_text(LINE.format(7)[:30])
    assert found.look(1) is None
    assert found.iteration == 7


def test_limits_are_checked() -> None:
    with pytest.raises(UsageError, match=r"limits.retries: 11 is more than 10"):
        Limits(retries=11)
    with pytest.raises(UsageError, match=r"limits.notice_s: -1"):
        Limits(notice_s=-1)
    assert Limits().join_s(1, is_packed=False) == 70
    assert Limits().join_s(96, is_packed=False) == 600
    assert Limits().join_s(1, is_packed=True) == 600
