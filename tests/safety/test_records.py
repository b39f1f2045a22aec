"""A corpus of damaged records: whatever a field of run.json, outcome.json, submit.json or result.json is, no reader fails with a traceback."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from support.command import Cli
from support.following import offline
from support.ours import write_our_run

from nlp_bench.cli.main import main
from nlp_bench.launch.submission import Submission

MISSING = object()
VALUES = (MISSING, None, [], {}, "x", -1, 0, True, 1.5, 10**400, float("nan"), [None], {"a": []})
READERS = {
    "run.json": ("measure HERE", "report HERE", "watch --once HERE", "submit --print --run HERE/run.json"),
    "outcome.json": ("measure HERE", "sync HERE", "watch --once HERE", "report HERE"),
    "submit.json": ("sync HERE", "watch --once HERE", "submit --run HERE/run.json --run-dir HERE"),
    "result.json": ("history add HERE --file HERE/h.db", "report HERE"),
    "environment.json": ("report HERE", "export mlperf HERE --output HERE/out"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every record; the others are copies of it."""
    folder = write_our_run(tmp_path_factory.mktemp("records") / "run")
    main(["measure", str(folder)])
    offline("175", "juwels-booster", account="x").write(folder)
    lost = Submission(pid=1, host="elsewhere", place=None, attempts=[{"job_id": "6", "outcome": "NODE_FAIL"}])
    environment = {"host": "x", "packages": {"torch": "2"}, "variables": {"A": "1"}}
    for name, record in {"submit": {"job_id": None, **asdict(lost)}, "environment": environment}.items():
        (folder / f"{name}.json").write_text(json.dumps({"schema": f"nlp-bench/{name}/1", **record}))
    return folder


def fields_of(record: Any, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in record.items():
        found.append((*above, key))
        if isinstance(value, dict) and len(above) < 1:
            found += fields_of(value, (*above, key))
    return found


def changed(record: dict[str, Any], field: tuple[str, ...], value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(record))
    place = copy
    for key in field[:-1]:
        place = place[key]
    if value is MISSING:
        del place[field[-1]]
    else:
        place[field[-1]] = value
    return copy


@pytest.fixture
def read(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Any:
    """Put one text in a record's place and call one reader; an exit code that is not 0 comes with a sentence."""
    here, state = tmp_path / "run", {"number": 0}
    monkeypatch.setenv("PATH", str(tmp_path))  # Slurm's commands are out of reach

    def call(name: str, text: str) -> None:
        command = READERS[name][state["number"] % len(READERS[name])]
        state["number"] += 1
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(whole, here)
        (here / name).write_text(text)
        if command.startswith(("sync", "watch")) and name != "outcome.json":
            (here / "outcome.json").unlink()
        done = cli(*(word.replace("HERE", str(here)) for word in command.split()), code=None)
        assert done.code in {0, 1, 2}, (command, text[:200])
        assert "Traceback" not in done.err
        assert done.code == 0 or done.err.strip() or done.out.strip(), (command, text[:200])

    return call


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_field_that_is_missing_or_of_another_type(read: Any, whole: Path, name: str) -> None:
    """Without it and as null each; of the other values every second, one field those that the next has not."""
    record = json.loads((whole / name).read_text())
    for number, field in enumerate(fields_of(record)):
        values = VALUES if len(field) == 1 else VALUES[:6]
        for value in (*values[:2], *values[2 + number % 2 :: 2]):
            read(name, json.dumps(changed(record, field, value)))


@pytest.mark.parametrize("value", [0.5, True, {"--load": 1}])
def test_arguments_of_the_trainer_that_are_no_list(read: Any, whole: Path, value: object) -> None:
    """Found by tests/soak/fuzz_files.py."""
    record = json.loads((whole / "run.json").read_text())
    for _ in READERS["run.json"]:
        read("run.json", json.dumps(changed(record, ("tuning", "train_args"), value)))


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_no_record(read: Any, whole: Path, name: str) -> None:
    text = (whole / name).read_text()
    cut, deep = text[: len(text) // 2], "[" * 100_000
    for content in ("", "[]", "null", "1", '"x"', "{", cut, "\0" * 100, "\ufeff" + text, deep):
        for _ in READERS[name]:
            read(name, content)


@pytest.mark.parametrize("name", ["run.json", "outcome.json", "submit.json"])
def test_newer_records_are_refused_and_older_ones_are_read(whole: Path, tmp_path: Path, name: str, cli: Cli) -> None:
    here = shutil.copytree(whole, tmp_path / "run")
    record = json.loads((here / name).read_text())
    command = "sync" if name == "submit.json" else "measure"
    if command == "sync":
        (here / "outcome.json").unlink()
    family = record["schema"].rpartition("/")[0]
    (here / name).write_text(json.dumps({**record, "schema": f"{family}/0"}))
    cli(command, here)
    (here / name).write_text(json.dumps({**record, "schema": f"{family}/2"}))
    assert "install a newer one" in cli(command, here, code=1).err


def test_a_kind_of_network_that_nobody_knows(whole: Path, cli: Cli) -> None:
    """Found by tests/soak/fuzz_files.py."""
    record = json.loads((whole / "run.json").read_text())
    (whole.parent / "odd.json").write_text(json.dumps(changed(record, ("model", "family"), "/")))
    said = cli("submit", "--print", "--run", whole.parent / "odd.json", code=2).err
    assert "model.family: '/' is not one of gpt, t5, mt5, bert" in said
