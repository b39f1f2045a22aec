"""The tag rehearse: any machine can be meant, none has to be here."""

import pytest

from nlp_bench.cli.main import main
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import REFERENCE, apply_tags, for_rehearsal
from nlp_bench.errors import UsageError


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "nowhere/slurm.conf")
    monkeypatch.delenv("NLP_BENCH_SYSTEM", raising=False)


def test_the_tag_chooses_nothing() -> None:
    assert apply_tags(Request(), ["rehearse"]) == Request()
    with pytest.raises(UsageError, match="'rehearce' is unknown; did you mean rehearse"):
        apply_tags(Request(), ["rehearce"])
    with pytest.raises(UsageError, match=r"'xyz' is unknown \(known: .*, local, (?!.*local,)"):
        apply_tags(Request(), ["xyz"])


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
def test_check_takes_it_without_slurm(tags: list[str]) -> None:
    assert main(["check", "--tags", *tags]) == 0


def test_a_launcher_of_one_machine_still_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--tags", "175", "local", "rehearse"]) == 2
    assert "local launcher has this machine only" in capsys.readouterr().err
