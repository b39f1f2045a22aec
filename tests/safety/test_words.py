"""Names and secrets: what goes into scripts is quoted or refused, what is secret stays out of the records."""

import json
import os
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.following import offline, program
from support.processes import ROOT, execute

from nlp_bench.config.run import Run, read_run
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.launch.ambient import variables
from nlp_bench.launch.folder import prepare
from nlp_bench.launch.nodes.torchrun import write_launched
from nlp_bench.launch.script import interpreter, software_lines
from nlp_bench.launch.submission import Submission, read_submission
from nlp_bench.redact import is_secret

if TYPE_CHECKING:
    from nlp_bench.config.system import System

SECRET = "s3cr3tV4lue9876543210"  # noqa: S105  # none
WEIRD = (
    "a b", " lead", "tail ", "it's", 'say "x"', "$HOME", "$(touch pwned)", "`touch pwned`", "a;touch pwned", "a&b|c", "a\nb", "a\n#SBATCH --x",
    "tab\there", "back\\slash", "-rf", "~", "*?[x]", "ä ö ü", "日本語", "\U0001f600", "x" * 200, "#TITLE#", "%s%j", "{a,b}", "!!", "a\rb",
    os.fsdecode(b"no\xffutf8"),
)  # fmt: skip
"""submitit's set of folder names (its test_slurm.py quotes blanks and signs) and more of the kind."""


@pytest.fixture
def run() -> Run:
    return offline("tiny", "local")


@pytest.mark.parametrize("name", WEIRD)
def test_a_weird_folder_is_one_word_of_the_script(tmp_path: Path, run: Run, name: str) -> None:
    """The real script of the local launcher runs up to its first command, in a folder of that name."""
    folder = tmp_path / name
    folder.mkdir()
    script = prepare(run, root=ROOT, run_dir=folder)
    assert read_run(folder) == run
    (stub := tmp_path / "stub").mkdir()
    program(stub, "python", 'for word; do :; done\nprintf %s "$word" > "$SAID"\n[ "$3" != launch ]')
    content = script.read_bytes().replace(os.fsencode(interpreter(ROOT)), os.fsencode(stub / "python"))
    script.write_bytes(content)
    variables = {**os.environ, "SAID": str(tmp_path / "said")}
    done = execute("bash", "submit.job", cwd=folder, env=variables, errors="surrogateescape")
    assert done.returncode == 1, done.stderr
    assert (tmp_path / "said").read_bytes() == os.fsencode(folder)  # what `sync` was given last
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("name", ["A=1; touch pwned; B", "", "1A", "A B", "A-B", "A\n", "ä", "A.B"])
def test_a_name_of_the_environment_is_a_name(run: Run, name: str) -> None:
    with pytest.raises(UsageError, match="no name of a variable"):
        replace(run.system, environment={name: "v"})


@pytest.mark.parametrize("value", ["v;touch pwned", "$(touch pwned)", "a\nb", "it's", "=x", "", "ä"])
def test_a_value_of_the_environment_is_one_word(tmp_path: Path, run: Run, value: str) -> None:
    lines = software_lines(replace(run.system, environment={"A": value}))
    script = "\n".join([*lines, 'printf %s "$A"'])
    assert execute("bash", "-c", script, cwd=tmp_path, check=True).stdout == value
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["x\ntouch pwned", "../../x", "a/b", ".", "..", "", " x", "x" * 101, "x\0", "\u202ex"])
def test_a_run_json_of_a_stranger_names_no_folder_and_no_command(tmp_path: Path, run: Run, name: str) -> None:
    record = run.record()
    for room in ("model", "system"):
        changed = {**record, room: {**record[room], "name": name}}
        (tmp_path / "run.json").write_text(json.dumps(changed))
        with pytest.raises(UsageError, match=rf"{room}.name: .* is no name"):
            read_run(tmp_path)


@pytest.mark.parametrize("job_id", ["--help", "1; x", "7\n", "", "-1", [], 1.5, "a"])
def test_a_job_of_a_stranger_is_no_word_of_slurms_commands(tmp_path: Path, job_id: object) -> None:
    Submission(job_ids=["7"]).write(tmp_path)
    record = json.loads((tmp_path / "submit.json").read_text())
    (tmp_path / "submit.json").write_text(json.dumps({**record, "job_ids": ["7", job_id]}))
    with pytest.raises(NlpBenchError, match="no job of Slurm"):
        read_submission(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("WANDB_API_KEY", SECRET, True), ("MY_PAT", SECRET, True), ("DB_PASS", SECRET, True), ("SSH_KEY", SECRET, True), ("PROXY", f"http://me:{SECRET}@host", True),
        ("X", f"hf_{SECRET}", True), ("TOKENIZERS_PARALLELISM", "false", False), ("HF_TOKEN_PATH", "/secrets/x", False), ("NUM_TOKENS", "4096", False),
        ("PWD", "here", False), ("NCCL_DEBUG", "INFO", False), ("WANDB_API_KEY", "$WANDB_API_KEY", False), ("MONKEY", "banana", False),
        ("NCCL_CONF_PASSPHRASE", "two words", True), ("MYSQL_PWD", "a/b", True), ("SSHPASS", "x1", True), ("DB_PASSWORD", "12345", True), ("A_PASSWORD", "/3kf+d==", True),
        ("TOKENIZER_MODEL", "gpt2", False), ("BOS_TOKEN", "<s>", False), ("I_MPI_PIN", "omp", False), ("SSH_KEY", "/p/home/me/id", False),
    ],
)  # fmt: skip
def test_what_is_a_secret(name: str, value: str, secret: bool) -> None:
    assert is_secret(name, value) is secret


def test_a_secret_in_a_system_file_is_refused_with_the_way_out(run: Run) -> None:
    with pytest.raises(UsageError, match=r'write WANDB_API_KEY = "\$WANDB_API_KEY"') as caught:
        replace(run.system, environment={"WANDB_API_KEY": SECRET})
    assert SECRET not in str(caught.value)
    with pytest.raises(UsageError, match="holds what looks like a secret") as caught:
        replace(run.system, software=replace(run.system.software, apex=f"https://me:{SECRET}@host/apex"))
    assert SECRET not in str(caught.value)
    with pytest.raises(UsageError, match="train_args"):
        replace(run, tuning=replace(run.tuning, train_args=("--wandb-api-key", SECRET)))


def test_a_secret_is_kept_by_name_and_still_reaches_the_ranks(tmp_path: Path, run: Run) -> None:
    system: System = replace(run.system, environment={"WANDB_API_KEY": "$WANDB_API_KEY", "A": "1"})
    with pytest.raises(UsageError, match="export WANDB_API_KEY first"):
        variables(system, {})
    assert variables(system, {"WANDB_API_KEY": SECRET}) == {"WANDB_API_KEY": SECRET, "A": "1"}
    script = prepare(replace(run, system=system), root=ROOT, run_dir=tmp_path)
    words = "\n".join([*software_lines(system), "env | grep ^WANDB"])
    environment = {"WANDB_API_KEY": SECRET, "PATH": os.environ["PATH"]}
    assert execute("bash", "-c", words, env=environment, check=True).stdout == f"WANDB_API_KEY={SECRET}\n"
    assert "export WANDB_API_KEY\n" in script.read_text()


def test_no_record_of_a_run_holds_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NLP_BENCH_PROXY", f"http://me:{SECRET}@host")
    monkeypatch.setenv("SLURM_JWT", SECRET)
    names = (
        """NCCL_X_PASS NCCL_CONF_PASSPHRASE SLURM_X_COOKIE TORCH_X_WEBHOOK PYTHON_X_AUTH CUDA_X_SAS NLP_BENCH_X_DSN"""
    )
    secret = names.split()
    for name in secret:
        monkeypatch.setenv(name, f"two words {SECRET}")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    added = {"WANDB_API_KEY": SECRET, "HF_TOKEN": "$HF_TOKEN", "A": "it's"}
    write_launched(tmp_path, ["torchrun", "--wandb-api-key", SECRET, "--lr", "1"], added, "")
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert not [name for name, text in texts.items() if SECRET in text]
    assert json.loads(texts["environment.json"])["variables"]["NCCL_DEBUG"] == "INFO"
    variables = json.loads(texts["environment.json"])["variables"]
    assert {name: variables[name] for name in ("SLURM_JWT", *secret)} == dict.fromkeys(("SLURM_JWT", *secret), "***")
    assert "--lr 1" in texts["command.txt"]
    done = execute("bash", "-c", texts["command.txt"], env={"PATH": os.environ["PATH"]})
    assert "WANDB_API_KEY: is a secret and is not kept here; export it first" in done.stderr


@pytest.mark.parametrize(("nodes", "said"), [("1", ""), ("2", "to be typed on each of 2 nodes within a minute")])
def test_the_command_of_several_nodes_says_so(tmp_path: Path, nodes: str, said: str) -> None:
    """Typed on one of two it waited for 83 s without a word, and ended in a traceback of torchrun's."""
    write_launched(tmp_path, ["true", "--nnodes", nodes], {}, "")
    found = execute("bash", tmp_path / "command.txt", check=True).stderr
    assert said in found
    assert bool(said) == bool(found)


class Bomb:
    """Pickled, it makes a file where it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.slow
def test_a_cache_of_the_data_runs_no_code(tmp_path: Path) -> None:
    import pickle

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # megatron-core's, of packages that are not installed
        from megatron.core.datasets import blended_dataset, gpt_dataset

        from nlp_bench.train.samples import guard
    guard()
    pwned, bomb = tmp_path / "pwned", tmp_path / "x.npy"
    for content in (pickle.dumps(Bomb(pwned)), b"", b"\x93NUMPY"):
        bomb.write_bytes(content)
        for module in (gpt_dataset, blended_dataset):
            with pytest.raises(NlpBenchError, match="cut short or no index of megatron-core"):
                module.numpy.load(str(bomb), allow_pickle=True, mmap_mode="r")
    np.save(bomb, np.array([Bomb(pwned)], dtype=object), allow_pickle=True)
    with pytest.raises(NlpBenchError, match="cut short or no index of megatron-core"):
        gpt_dataset.numpy.load(str(bomb), allow_pickle=True, mmap_mode="r")
    assert not pwned.exists()
    np.save(bomb, np.arange(9))
    assert gpt_dataset.numpy.load(str(bomb), allow_pickle=True, mmap_mode="r").sum() == 36
    assert gpt_dataset.numpy.int32 is np.int32
    held = gpt_dataset.numpy.load(str(bomb), allow_pickle=True, mmap_mode="r")
    # Another job that began at once builds the same index.
    gpt_dataset.numpy.save(str(bomb), np.ones(5), allow_pickle=True)
    assert held.sum() == 36
    assert gpt_dataset.numpy.load(str(bomb), allow_pickle=True, mmap_mode="r").sum() == 5
    assert list(tmp_path.iterdir()) == [bomb]


@pytest.mark.slow
def test_an_index_that_a_node_sees_late_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as above
        from megatron.core.datasets import gpt_dataset

        from nlp_bench.train import samples
    samples.guard()
    index = tmp_path / "x.npy"
    np.save(tmp_path / "part.npy", np.arange(9))
    showing = threading.Timer(0.3, lambda: (tmp_path / "part.npy").rename(index))
    showing.start()
    assert gpt_dataset.numpy.load(str(index), allow_pickle=True, mmap_mode="r").sum() == 36
    showing.join()
    monkeypatch.setattr("nlp_bench.files.SEEN_WITHIN_S", 0.0)
    late = r"y\.npy, which rank 0 has written, is not seen here after 60 s: the file system shows it late"
    with pytest.raises(NlpBenchError, match=late):
        gpt_dataset.numpy.load(str(tmp_path / "y.npy"), allow_pickle=True, mmap_mode="r")
