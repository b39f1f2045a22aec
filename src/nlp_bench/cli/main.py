"""The command line: one program, whose subcommands are the rooms of the house."""

import argparse
import errno
import importlib
import io
import sys
from types import ModuleType

from nlp_bench import __version__
from nlp_bench.errors import NlpBenchError, UsageError, nearest

SUBCOMMANDS = {
    "check": "resolve and validate one run; nothing is started",
    "build": "compile and warm the fused kernels of this machine",
    "data": "make or prepare training data (.bin/.idx)",
    "submit": "submit one run to Slurm, or run it here",
    "launch": "start torchrun on this node (called by the job script)",
    "sync": "decide how a run ended and leave JUBE's marker",
    "watch": "show the progress of runs until they end",
    "measure": "turn one run's log into result.json and metrics.txt",
    "report": "any training log or run directory to tokens per second",
    "compare": "whether one measurement is faster than another",
    "history": "the runs of a machine over time, in one file",
    "bundle": "pack the evidence behind numbers into one file",
    "verify": "check a bundle offline: hashes, numbers, log lines",
    "export": "valid runs in the forms of MLPerf, torchtitan, collectors",
    "plan": "every legal configuration, its memory and its time, before any job",
    "rehearse": "the trainer's own step of any rank of any job, without a GPU",
}

FOREIGN = ("--train-args", "--sbatch-arg", "--srun-arg")
"""Options whose value is another program's option, so that it begins with -- as well."""


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; the result goes to stdout, talk to stderr; return the exit code (0, 1 or 2)."""
    words = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a file name may hold what the terminal's encoding has no sign for
    try:
        return _dispatch(words)
    except NlpBenchError as error:
        print(f"nlp-bench: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("nlp-bench: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader (head, less) has gone: nothing is left to say
        return 141
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"nlp-bench: error: {error.strerror}: the output is not whole; make room and repeat", file=sys.stderr)
        return 1


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in {"-h", "--help", "help"}:
        print(_overview())
        return 0
    if words[0] in {"-V", "--version"}:
        print(f"nlp-bench {__version__}")
        return 0
    if words[0] not in SUBCOMMANDS:
        raise UsageError(f"unknown subcommand {words[0]!r}{nearest(words[0], list(SUBCOMMANDS))}")
    name, module = words[0], importlib.import_module(f"nlp_bench.cli.{words[0]}")
    if len(words) > 1 and words[1] in getattr(module, "VERBS", ()):  # a verb has options of its own
        name, module = f"{name} {words[1]}", importlib.import_module(f"{module.__name__}.{words[1]}")
        words = words[1:]
    parser = _parser(name, module)
    # Words behind `--` are names, whatever they begin with; argparse's mixed reading does not know that.
    parse = parser.parse_args if "--" in words else parser.parse_intermixed_args
    options = parse(_joined(words[1:]))
    return int(module.run(options))


def _joined(words: list[str]) -> list[str]:
    """Return `words` with the options that stand for another program bound to theirs: argparse takes a lone --word for its own."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in FOREIGN and "--" not in joined:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _parser(name: str, module: ModuleType) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"nlp-bench {name}",
        description=module.__doc__,
        epilog=f"example:\n  {module.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    return parser


def _overview() -> str:
    lines = [
        f"nlp-bench {__version__}: how fast a machine trains large language models",
        "",
        "usage: nlp-bench SUBCOMMAND …",
        "",
    ]
    lines += [f"  {name:<9} {text}" for name, text in SUBCOMMANDS.items()]
    lines += [
        "",
        "example:",
        "  nlp-bench report job.out",
        "",
        "nlp-bench SUBCOMMAND --help shows its options and an example.",
    ]
    return "\n".join(lines)
