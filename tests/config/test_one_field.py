"""An option is one field of config/request.py: the command line, run.json and JUBE's files follow from it.

After a change of the options: NLP_BENCH_WRITE_DOCS=1 pytest tests/config/test_one_field.py writes the command of JUBE's check step and
the table of docs/jube.md; a new parameter takes its line in jube/parameters.yaml by hand.
"""

import dataclasses
import json
import os
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from support.pages import ROOT, check_part, check_text
from support.processes import NLP_BENCH, execute

from nlp_bench.cli.parser import FOREIGN, parser_of
from nlp_bench.cli.runs import Check, Submit
from nlp_bench.config.options import field_texts, spellings
from nlp_bench.config.request import Request, from_options

if TYPE_CHECKING:
    import subprocess

WORKFLOW, PARAMETERS = ROOT / "benchmark/jube/nlp_benchmark.yaml", ROOT / "jube/parameters.yaml"
JUBE = {one.metadata["jube"]: one.name for one in dataclasses.fields(Request) if one.metadata["jube"]}
OF_COMMANDS = [*dataclasses.fields(Check), *dataclasses.fields(Submit)]
FIELDS = {one.metadata["jube"]: one.name for one in OF_COMMANDS if one.metadata.get("jube")}
"""With those of a run the parameters of its submission."""
NO_FIELDS = {"point", "taskspernode"}
"""Parameters of the workflow alone: which points there are, and what has one value only."""


def parameters() -> dict[str, str]:
    sets = yaml.safe_load(PARAMETERS.read_text(encoding="utf-8"))["parameterset"]
    own = [one for one in sets if one["name"] in {"modelParameter", "tuningParameter", "systemParameter"}]
    return {one["name"]: one["_"] for each in own for one in each["parameter"]}


def test_every_parameter_of_jube_is_a_field_and_every_field_of_jube_a_parameter() -> None:
    assert parameters().keys() - NO_FIELDS == FIELDS.keys()
    assert {value for name, value in parameters().items() if name in JUBE} == {"default"}


def test_the_train_step_hands_the_parameters_of_the_submission_on() -> None:
    own = FIELDS.keys() - JUBE.keys() - {"repeats"}
    words = [f"{spellings(Submit, FIELDS[name])[0]} ${name}" for name in parameters() if name in own]
    assert " ".join(words) == "--chain $chain --snapshot-code $snapshot_code --retries $retries"
    text = WORKFLOW.read_text(encoding="utf-8")
    assert all(f" {word}" in text for word in words)


def test_the_names_that_users_of_jube_know() -> None:
    known = """nlp_model_size tp_size pp_size micro_batch_size gas global_batch_size sequence_length nodes gpus_per_node taskspernode
    queue account timelimit nhidden nlayers nheads"""
    assert set(known.split()) <= parameters().keys()


def test_the_check_step_hands_every_parameter_on() -> None:
    def word(name: str, field: str) -> str:
        option = spellings(Request, field)[0]
        return f'{option}{"=" if option in FOREIGN else " "}"${name}"'.replace(" ", "\0")

    words = ["$nlp_bench", "check", '--jube-run\0"$jube_benchmark_rundir"', "--output\0."]
    words += ['--taskspernode\0"$taskspernode"', '--repeats\0"$repeats"']
    words += [word(name, JUBE[name]) for name in parameters() if name in JUBE]
    indent = " " * 8
    lines = textwrap.wrap(" ".join(words), 130, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    text = WORKFLOW.read_text(encoding="utf-8")
    begin, end = text.index("        $nlp_bench check"), text.index("  - name: setup_venv")
    check_text(WORKFLOW, text[:begin] + "\n".join(lines).replace("\0", " ") + "\n" + text[end:])


def test_default_is_nothing_asked() -> None:
    words = [word for field in JUBE.values() for word in (spellings(Request, field)[0], "default")]
    assert from_options(parser_of("check").read(words)) == Request()


def test_the_page_lists_every_parameter() -> None:
    rows = ["| parameter | option of `check` and `submit` | what it says |", "|---|---|---|"]
    for name in parameters():
        if name in FIELDS:
            kind = Submit if FIELDS[name] in field_texts(Submit) else Check
            options = ", ".join(f"`{one}`" for one in spellings(kind, FIELDS[name]))
            rows.append(f"| `{name}` | {options} | {field_texts(kind)[FIELDS[name]]} |")
    check_part(ROOT / "docs/jube.md", "parameters", "\n".join(rows) + "\n")


NEW = {
    "class ParallelOptions:": """
    expert: int = _spread("--ep", "--expert-model-parallel-size", jube="ep_size", default=1)
    \"\"\"Ranks that share the experts of a layer.\"\"\"
""",
    "class SlurmOptions:": """
    wckey: str = _job(metavar="KEY", default="")
    \"\"\"Workload key that is charged.\"\"\"
""",
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose request.py has one field more for the layout and one for the job."""
    made = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "src/nlp_bench", made / "src/nlp_bench", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("benchmark", "jube"):
        (made / name).symlink_to(ROOT / name)
    path = made / "src/nlp_bench/config/request.py"
    text = path.read_text(encoding="utf-8")
    for head, field in NEW.items():
        text = re.sub(rf'({head}\n    """.*"""\n)', lambda found, field=field: found[0] + field, text, count=1)
    path.write_text(text, encoding="utf-8")
    return made


def nlp_bench(package: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": str(package / "src"), "COLUMNS": "200"}
    return execute(*NLP_BENCH, *words, cwd=package, env=environment)


@pytest.mark.slow
def test_a_new_option_is_one_field(package: Path) -> None:
    for command in ("check", "submit", "rehearse"):
        shown = nlp_bench(package, command, "--help").stdout
        assert re.search(r"--ep, --expert-model-parallel-size N\s+ranks that share the experts of a layer\n", shown)
        assert re.search(r"--wckey KEY\s+workload key that is charged\n", shown)
    run = ("check", "--model", "13", "--system", "juwels-booster", "--offline", "--mock-data", "--output", "made")
    assert nlp_bench(package, *run).returncode == 0
    record = json.loads((package / "made/run.json").read_text())
    assert (record["parallel"]["expert"], record["system"]["slurm"]["wckey"]) == (1, "")
    assert nlp_bench(package, *run, "--ep", "2", "--wckey", "W").returncode == 0
    record = json.loads((package / "made/run.json").read_text())
    assert (record["parallel"]["expert"], record["system"]["slurm"]["wckey"]) == (2, "W")
    refused = nlp_bench(package, *run, "--expert-model-parallel-size", "0").stderr
    assert "--expert-model-parallel-size: '0' is not a whole number above 0" in refused
    record["parallel"]["expert"] = 0
    (package / "made/run.json").write_text(json.dumps(record))
    again = ("submit", "--run", "made/run.json", "--print", "--wckey", "V")
    assert "parallel.expert: 0 must be greater than 0" in nlp_bench(package, *again).stderr
    del record["parallel"]["expert"], record["system"]["slurm"]["wckey"]  # a run.json of before the option
    (package / "made/run.json").write_text(json.dumps(record))
    assert nlp_bench(package, *again).returncode == 0
    assert "it takes no --ep; " in nlp_bench(package, *again, "--ep", "2").stderr
    names = "from nlp_bench.config.request import Request; print([f.metadata['jube'] for f in Request.__dataclass_fields__.values()])"
    done = execute(sys.executable, "-c", names, env=os.environ | {"PYTHONPATH": str(package / "src")}, check=True)
    assert "ep_size" in done.stdout
