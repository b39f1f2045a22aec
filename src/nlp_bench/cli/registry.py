"""The registry of subcommands; it imports none of them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Entry(NamedTuple):
    """A subcommand in the registry."""

    module: str  # the module of nlp_bench.cli that has its class, of the subcommand's name
    text: str  # what it does, for the overview
    verbs: Mapping[str, str] = MappingProxyType({})
    """Of verbs with options of their own (`plan predict`, class PlanPredict) the module."""


TASKS = {
    "measure": {
        "report": Entry("report", "any training log or run directory to tokens per second"),
        "measure": Entry("runs", "turn one run's log into result.json and metrics.txt"),
    },
    "plan": {
        "check": Entry("runs", "resolve and validate one run; nothing is started"),
        "plan": Entry(
            "plan", "every legal configuration, its memory and its time, before any job",
            dict.fromkeys(("predict", "calibrate", "learn"), "plan.constants"),
        ),
        "rehearse": Entry("plan.rehearse", "the trainer's own step of any rank of any job, without a GPU"),
    },
    "run": {
        "init": Entry("setup", "make a working folder: workflow, data files, README"),
        "submit": Entry("runs", "submit one run to Slurm, or run it here"),
        "watch": Entry("runs", "show the progress of runs until they end"),
        "sync": Entry("runs", "decide how a run ended and leave JUBE's marker"),
    },
    "judge": {
        "compare": Entry("history", "whether one measurement is faster than another"),
        "history": Entry("history", "the runs of a machine over time, in one file"),
        "bundle": Entry("evidence", "pack the evidence behind numbers into one file"),
        "verify": Entry("evidence", "check a bundle offline: hashes, numbers, log lines"),
        "export": Entry("evidence", "valid runs in the forms of MLPerf, torchtitan, collectors"),
    },
    "node": {
        "doctor": Entry("doctor", "what is wrong with this machine, or with one of its nodes"),
        "build": Entry("setup", "compile and warm the fused kernels of this machine"),
        "data": Entry("data", "make or prepare training data (.bin/.idx)"),
    },
    "for scripts and shells": {
        "launch": Entry("runs", "start torchrun on this node (called by the job script)"),
        "completion": Entry("setup", "print the script by which a shell completes these words"),
    },
}  # fmt: skip
"""The subcommands by what a person is about to do, those that programs call last."""
SUBCOMMANDS = {name: entry for entries in TASKS.values() for name, entry in entries.items()}
