"""Rank every legal configuration of a model on a machine by its predicted report time, with memory and an interval.

Nothing is measured and no job is started. The global batch stays as the benchmark has it. `nlp-bench plan predict`, `calibrate`
and `learn` have options of their own. Exit code 0: found; 1: nothing fits; 2: a wrong word, or no legal configuration.
"""

import argparse
from typing import TYPE_CHECKING

from nlp_bench.cli.plan.options import add_options, check_combination, check_files

if TYPE_CHECKING:
    from nlp_bench.plan.constants import Constants

EXAMPLE = """nlp-bench plan --model 175 --system juwels-booster --nodes 96
  nlp-bench plan --model 175 --system juwels-booster --time 560
  nlp-bench plan --model 175 --system juwels-booster --tp 4 --pp 16 --vpp 6 --why
  nlp-bench plan --model 175 --system juwels-booster --emit-jube sweep.yaml && jube run sweep.yaml
  nlp-bench plan --model-size auto --days 5 --tokens 300B --nodes 20 --system dgx-a100"""
VERBS = ("predict", "calibrate", "learn")
"""`nlp-bench plan VERB --help` has the options of each; one file here per verb."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nlp-bench plan`."""
    add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Answer the question that the options ask; return the exit code."""
    import os

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no linear algebra here: its threads only cost start-up
    check_combination(options)
    check_files(options)
    from nlp_bench.cli.plan import questions

    constants = _constants(options)
    if options.model_size:
        return questions.model_size(options, constants)
    return questions.of_model(options, constants)


def _constants(options: argparse.Namespace) -> "Constants":
    from nlp_bench.plan.constants import read_constants

    constants = read_constants(options.constants)
    if options.learn:
        import sys
        from pathlib import Path

        from nlp_bench.cli.plan.learn import result_of
        from nlp_bench.plan.learn import learn, report

        lesson = learn(constants, options.learn, result_of, Path(options.system).stem if options.system else None)
        print(report(lesson), end="", file=sys.stderr)
        constants = lesson.constants
    return constants
