"""The account of a training with restarts, on chains whose seconds are known."""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from support.command import Cli
from support.megatron_log import dump, line
from support.ours import SECONDS, line_of_ours

EPOCH = datetime(2026, 2, 1, 22, 0, tzinfo=timezone.utc)
BATCH, SEQUENCE, TOTAL, SAVE, EVALUATE = 64, 2048, 240, 40, 60


@dataclass
class Chain:
    """Writes a training as Megatron-LM does, and keeps where its seconds went."""

    step_s: float = 7.3
    interval: int = 5
    form: str = "%Y-%m-%d %H:%M:%S"
    millis: bool = False
    now: float = 0.0
    reached: int = 0
    saved: int = 0
    truth: dict[str, float] = field(default_factory=dict)

    def spend(self, part: str, seconds: float) -> None:
        self.now += seconds
        self.truth[part] = self.truth.get(part, 0.0) + seconds

    def stamp(self) -> str:
        text = (EPOCH + timedelta(seconds=self.now)).strftime(self.form)
        return text + (f".{int(self.now * 1000) % 1000:03d}" if self.millis else "")

    def datetime(self, what: str) -> str:
        return f"[{what}] datetime: {self.stamp()} \n"

    def attempt(self, until: int, *, stall_at: int = 0, crash: bool = True, hang_s: float = 3.0) -> str:
        """Return the log of one start, which crashes `hang_s` behind iteration `until`."""
        arguments = {"seq_length": SEQUENCE, "global_batch_size": BATCH, "world_size": 8, "log_interval": self.interval}
        text = [f"{self.stamp()} launcher: start\n", dump(end=True, **arguments)]
        self.spend("startup", 35.0)
        text.append(self.datetime("after megatron is initialized"))
        if self.saved:
            self.spend("startup", 60.0)
            text.append(f"  successfully loaded checkpoint from /c [ t 0, p 0 ] at iteration {self.saved}\n")
        self.spend("startup", 12.0)
        text.append(self.datetime("before the start of training step"))
        for iteration in range(self.saved + 1, until + 1):
            part = "repeated" if iteration <= self.reached else "trained"
            # No line tells of the iterations behind the last one.
            self.spend(part if iteration <= until - until % self.interval else "unknown", self.step_s)
            if iteration == stall_at:
                self.spend("stall", 90.0)
            if iteration % self.interval == 0:
                loss, samples = 9.0 - iteration / 100, iteration * BATCH
                head = f" [{self.stamp()}]"
                given = {
                    "samples": samples,
                    "ms": self.step_s * 1000,
                    "batch": BATCH,
                    "loss": loss,
                    "norm": 1.0,
                    "skipped": 0,
                    "nan": 0,
                }
                text.append(line(iteration, TOTAL, front=f"{head} ", **given))
            if iteration % EVALUATE == 0:
                self.spend("evaluation", 25.0)
                text.append(
                    f" validation loss at iteration {iteration} | lm loss value: 3.1E+00 | lm loss PPL: 2.2E+01 |\n"
                )
            if iteration % SAVE == 0:
                self.spend("checkpoint", 18.0)
                text.append(f"  successfully saved checkpoint from iteration {iteration:7d} to /c [ t 1/1, p 1/1 ]\n")
                self.saved = iteration
        self.reached = max(self.reached, until - until % self.interval)
        if crash:
            self.spend("unknown", hang_s)
            text.append(f"[rank0]:{self.stamp()} NCCL watchdog\n")
            text.append("torch.distributed.DistBackendError: NCCL error\n")
        else:
            text.append(self.datetime("after training is done"))
        return "".join(text)

    def logs(self, *, last_crashes: bool = False) -> list[str]:
        logs = [self.attempt(97, stall_at=52)]
        self.spend("down", 400.0)
        logs.append(self.attempt(135))
        self.spend("down", 1800.0)
        logs.append(self.attempt(205, stall_at=171))
        self.spend("down", 120.0)
        logs.append(self.attempt(225 if last_crashes else TOTAL, crash=last_crashes))
        return logs


def account(cli: Cli, *paths: Path, code: int = 0) -> dict[str, object]:
    done = cli("report", "--training", "--format", "json", *map(str, paths), code=code)
    training: dict[str, object] = json.loads(done.out)["training"]
    return training


def check(training: dict[str, object], chain: Chain) -> None:
    """Each part is within 1 % of the wall clock of the truth, or its rest is in unknown."""
    parts: dict[str, float] = training["account_s"]  # type: ignore[assignment]
    wall_s = chain.now
    assert training["wall_s"] == pytest.approx(wall_s, abs=1.1)
    assert sum(parts.values()) == pytest.approx(training["wall_s"], abs=1e-6)
    assert min(parts.values()) >= 0
    for part, seconds in parts.items():
        assert seconds <= chain.truth.get(part, 0.0) + 0.01 * wall_s or part == "unknown", (part, parts, chain.truth)
    missing = sum(max(chain.truth.get(p, 0.0) - s, 0.0) for p, s in parts.items() if p != "unknown")
    assert missing <= parts["unknown"] + 0.01 * wall_s
    assert parts["unknown"] < chain.truth["unknown"] + 0.03 * wall_s


@pytest.mark.parametrize("millis", [False, True], ids=["seconds", "milliseconds"])
@pytest.mark.parametrize("interval", [1, 5, 10, 15])
@pytest.mark.parametrize("joined", [False, True], ids=["folder", "one-log"])
def test_every_second_once(tmp_path: Path, cli: Cli, millis: bool, interval: int, joined: bool) -> None:
    chain = Chain(millis=millis, interval=interval)
    texts = chain.logs()
    # Names against the order of time.
    for number, text in enumerate(["".join(texts)] if joined else texts):
        (tmp_path / f"job{9 - number}.out").write_text(text)
    training = account(cli, tmp_path)
    check(training, chain)
    assert (training["outcome"], training["attempts"]) == ("VALID", 4)
    tokens = TOTAL * BATCH * SEQUENCE
    assert training["goodput_tokens_per_second"] == pytest.approx(tokens / chain.now, rel=0.02)
    parts: dict[str, float] = training["account_s"]  # type: ignore[assignment]
    assert parts["repeated"] > 0 < parts["stall"]


def test_a_last_attempt_that_crashed(tmp_path: Path, cli: Cli) -> None:
    chain = Chain()
    for number, text in enumerate(chain.logs(last_crashes=True)):
        (tmp_path / f"{number}.log").write_text(text)
    training = account(cli, tmp_path)
    check(training, chain)
    assert training["outcome"] == "MEASURED"


def test_a_hang_before_a_crash_is_not_down(tmp_path: Path, cli: Cli) -> None:
    chain = Chain()
    texts = [chain.attempt(97, hang_s=1800.0)]
    chain.spend("down", 120.0)
    texts.append(chain.attempt(TOTAL, crash=False))
    (tmp_path / "a.log").write_text("".join(texts))
    check(account(cli, tmp_path), chain)


def test_a_chain_of_our_own_jobs_whose_lines_end_with_their_time(tmp_path: Path, cli: Cli) -> None:
    lines = [line_of_ours(number, seconds) for number, seconds in enumerate(SECONDS, start=1)]
    start = "[default0]: > start-up: 100.0 s from process start to the end of the first iteration\n"
    load = "[default0]: > checkpoints: loaded /c in 1.00 s: 30 iterations, 2880 samples, made with tp 8; none\n"
    (tmp_path / "1.log").write_text("".join([start, *lines[:3]]))
    (tmp_path / "2.log").write_text("".join([load, *lines[3:], "[default0]: training finished: 50 iterations\n"]))
    training = account(cli, tmp_path)
    assert (training["outcome"], training["attempts"]) == ("VALID", 2)
    assert training["new_tokens"] == pytest.approx(50 * 96 * 2048, rel=1e-4)
    parts: dict[str, float] = training["account_s"]  # type: ignore[assignment]
    assert parts["trained"] == pytest.approx(10 * sum(SECONDS), abs=0.1)
    assert parts["startup"] == pytest.approx(100 - 10 * SECONDS[0], abs=0.1)


def test_a_clock_without_a_date(tmp_path: Path, cli: Cli) -> None:
    chain = Chain(form="%H:%M:%S")
    (tmp_path / "a.log").write_text("".join(chain.logs()))
    training = account(cli, tmp_path, code=1)
    assert (training["outcome"], training["wall_s"], training["attempts"]) == ("REFUSED", None, 4)


def test_logs_of_one_time_are_no_chain(tmp_path: Path, cli: Cli) -> None:
    for name in "ab":
        (tmp_path / f"{name}.log").write_text(Chain(step_s=7 + (name == "a")).attempt(97))
    assert account(cli, tmp_path, code=1)["outcome"] == "REFUSED"


def test_the_block_of_the_terminal_and_the_page(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a.log").write_text("".join(Chain().logs()))
    words = ("report", "--training", str(tmp_path / "a.log"))
    block = cli(*words).out.splitlines()
    assert len(block) <= 14
    assert max(map(len, block)) <= 110
    assert cli(*words, "--format", "html").out.count("<title>") == 1 + 8
