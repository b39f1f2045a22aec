"""The tag rehearse: any machine can be meant, none has to be here."""

import pytest
from support.command import Cli

from nlp_bench.config.request import Request
from nlp_bench.config.resolve import REFERENCE, apply_tags, for_rehearsal
from nlp_bench.errors import UsageError


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "nowhere/slurm.conf")
    monkeypatch.delenv("NLP_BENCH_SYSTEM", raising=False)


def test_the_tag_chooses_nothing() -> None:
    assert apply_tags(Request(), ["rehearse"]) == Request()
    for tag, said in (("rehearce", "; did you mean rehearse"), ("xyz", r" \(known: .*, local, (?!.*local,)")):
        with pytest.raises(UsageError, match=f"'{tag}' is unknown{said}"):
            apply_tags(Request(), [tag])


@pytest.mark.parametrize(
    ("request_", "system"),
    [
        (Request(model="175"), REFERENCE),
        (Request(model="13"), REFERENCE),
        (Request(model="tiny"), "local"),
        (Request(), "local"),
        (Request(model="tiny", nodes=4), REFERENCE),
        (Request(model="175", nodes=1), "local"),
        (Request(model="175", system="dgx-h100"), "dgx-h100"),
        (Request(model="175", launcher="local"), None),
    ],
)
def test_which_machine_is_meant(request_: Request, system: str | None) -> None:
    assert for_rehearsal(request_).system == system


@pytest.mark.parametrize(
    "tags", [["175", "rehearse"], ["13", "juwels-booster", "slurm", "rehearse"], ["tiny", "local", "rehearse"]]
)
def test_check_takes_it_without_slurm(tags: list[str], cli: Cli) -> None:
    cli("check", "--tags", *tags)


def test_a_launcher_of_one_machine_still_has_one(cli: Cli) -> None:
    assert "local launcher has this machine only" in cli("check", "--tags", "175", "local", "rehearse", code=2).err
