"""The writers of a run's folder: what submit, the job script, sync and measure leave there."""

import os
from pathlib import Path

from support.ours import write_our_run

from nlp_bench import marker
from nlp_bench.config.request import Request
from nlp_bench.config.resolve import resolve
from nlp_bench.doctor import nodes as doctor_nodes
from nlp_bench.doctor.nodes import RECORDS, Choice, read_node
from nlp_bench.doctor.nodes import prepare as prepare_test
from nlp_bench.doctor.place import look_around
from nlp_bench.errors import NlpBenchError, explained
from nlp_bench.launch.end.ending import Ending, read_ending, write_ending
from nlp_bench.launch.end.log_facts import ScriptRecord, write_record
from nlp_bench.launch.folder import prepare as prepare_run
from nlp_bench.launch.jube_rehearsal import row
from nlp_bench.launch.nodes.torchrun import write_launched
from nlp_bench.launch.prediction import warnings_of
from nlp_bench.launch.submission import Submission, read_submission
from nlp_bench.machine import recorder
from nlp_bench.machine.node import node_name
from nlp_bench.outcome import Outcome
from soak.writer import Writer, command, prepared_once

ROOT = Path(__file__).resolve().parents[2]
RUN = resolve(Request(model="13", system="juwels-booster", account="project"), ask_scheduler=False)
for step in ("_checks", "_devices", "_exchange", "vendor_tests"):  # they take seconds; their answers are not the matter
    setattr(doctor_nodes, step, lambda *_: {})


def _run(folder: Path) -> None:
    prepare_run(RUN, root=ROOT, run_dir=folder)
    warnings_of(RUN, folder)


def _submission_is_read(folder: Path) -> None:
    read_submission(folder)


def _ending_is_read(folder: Path) -> str | None:
    ending = read_ending(folder)
    if (folder / "ready").exists() and ending is None:
        return "there is a marker without an outcome"
    return marker.contradiction(folder)


def _rehearsed(folder: Path) -> None:
    from nlp_bench.files import write_text

    write_text(folder / marker.METRICS, row(RUN, {}, "failed", "why"))
    marker.write_rehearsed(folder, "rehearsal failed: no job was submitted")


def _marker_is_ours(folder: Path) -> str | None:
    return "the marker stands for nothing" if marker.is_bare(folder) else None


def _facts(folder: Path) -> None:
    import threading

    options = recorder.parse([str(folder), "--parent", "1"])
    (folder / "machine").mkdir(exist_ok=True)
    stop = threading.Event()
    stop.set()  # one sample
    try:
        recorder.record(options, folder / "machine/node1", stop)
    except OSError as error:  # of the lines; the recorder notes it, and the run goes on
        raise NlpBenchError(f"cannot write {folder / 'machine'}: {explained(error)}") from error


def _test_of_nodes(folder: Path) -> None:
    test, choice = folder / "test", Choice(names=("node1",), number=1)
    if not (test / "plan.json").exists():  # a whole one is refused
        prepare_test(_place(), choice, test, join_s=60)
    (test / RECORDS).mkdir(exist_ok=True)
    doctor_nodes.test_this_node(test)


def _place() -> object:
    if not _PLACES:
        _PLACES.append(look_around(Request(model="tiny", system="slurm-sandbox", launcher="slurm"), runs=None))
    return _PLACES[0]


def _node_is_read(folder: Path) -> str | None:
    record = folder / _NODE
    return (
        "the record of a node cannot be read"
        if record.exists() and not read_node(folder / "test", record.stem)
        else None
    )


_PLACES: list[object] = []
FAILED = Ending.of(Outcome.FAILED, "exit-status", "exit status 5")
_NODE = f"test/{RECORDS}/{node_name(os.environ)}.json"
ended_run = prepared_once(lambda folder: write_our_run(folder / "run"))

WRITERS = (
    Writer(name="run.json, submit.job, forecast.json", write=_run),
    Writer(name="run.json of check", write=command("check", "--offline", "--model", "13", "--system", "juwels-booster", "--output", "HERE"), is_command=True),
    Writer(name="submit.json", prepare=lambda folder: Submission(comment="nlp-bench 1", submitted="2026").write(folder),
        write=lambda folder: Submission(job_ids=["7"], comment="nlp-bench 1", submitted="2026").write(folder), check=_submission_is_read),
    Writer(name="outcome.json and ready", write=lambda folder: write_ending(folder, FAILED, exit_status=5, job_id="7"), check=_ending_is_read),
    Writer(name="ended.json", write=lambda folder: write_record(folder, ScriptRecord(exit_status=5, signal="TERM", job_id="7", restarts=0))),
    Writer(name="ready of a rehearsal", write=_rehearsed, check=_marker_is_ours),
    Writer(name="command.txt and environment.json", write=lambda folder: write_launched(folder, ["torchrun", "x"], {"A": "1"}, "")),
    Writer(name="machine", write=_facts),
    Writer(name="doctor's test", write=_test_of_nodes, check=_node_is_read, steps=_NODE),
    Writer(name="measure", prepare=ended_run, write=command("measure", "HERE/run"), is_command=True),
)  # fmt: skip
