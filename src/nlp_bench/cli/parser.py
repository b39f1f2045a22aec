"""The parser of every subcommand: short errors that name the nearest option, help without the clutter of other spellings."""

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from nlp_bench.errors import UsageError, nearest

SUBCOMMANDS = {
    "init": "make a working folder from an installed package: workflow, data files, README",
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
    "doctor": "what is wrong with this machine, or with one of its nodes",
    "completion": "print the script by which a shell completes these words",
}
"""Each is a module here of the same name, with a docstring, EXAMPLE, add_arguments and run; VERBS are modules of its own."""
FOREIGN = ("--train-args", "--sbatch-arg", "--srun-arg")
"""Options whose value is another program's option, so that it begins with -- as well."""
HINTS = {
    "--bf16": "the number format is the model file's; plan --precision bf16 shows what another one would give",
    "--data-parallel-size": "it follows: nodes * GPUs per node / (tp * pp * cp)",
    "--fp16": "the number format is the model file's; plan --precision fp16 shows what another one would give",
    "--nnodes": "write --nodes N",
    "--nproc-per-node": "write --gpus-per-node N",
    "--num-layers-per-virtual-pipeline-stage": "write --vpp V: V = layers / (pipeline parallel size * layers of a stage)",
    "--recompute-activations": "write --recompute selective",
    "--train-samples": "write --iterations N: N = samples / global batch size",
    "--world-size": "write --nodes N and --gpus-per-node N",
}
"""Names of Megatron-LM, torchrun and Slurm that mean something else here, where a subcommand does not take them."""


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Shows the value of an option once, behind its last spelling."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class Parser(argparse.ArgumentParser):
    """An argparse whose errors are a UsageError."""

    def __init__(self, name: str, module: ModuleType) -> None:
        """Make the parser of `nlp-bench NAME`."""
        super().__init__(
            prog=f"nlp-bench {name}",
            description=module.__doc__,
            epilog=f"example:\n  {module.EXAMPLE}",
            formatter_class=Formatter,
            allow_abbrev=False,
            exit_on_error=False,
        )
        module.add_arguments(self)
        words = [
            f"{one.metavar or one.dest}{' ...' * (one.nargs in {'*', '+'})}" for one in self._get_positional_actions()
        ]
        self.usage = " ".join(["%(prog)s", "[OPTION ...]", *(word.replace("%", "%%") for word in words)])

    @property
    def arguments(self) -> list[argparse.Action]:
        """Every option and positional argument."""
        return list(self._actions)

    @property
    def spellings(self) -> list[str]:
        """Every spelling of every option."""
        return list(self._option_string_actions)

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the options in `words`; raises UsageError naming option, value, rule and remedy."""
        joined = _joined(words)
        self._refuse_unknown(joined)
        # Words behind `--` are names, whatever they begin with; argparse's mixed reading does not know that.
        parse = self.parse_args if "--" in joined else self.parse_intermixed_args
        try:
            return parse(joined)
        except argparse.ArgumentError as error:
            names = (error.argument_name or "").split("/")
            typed = {word.partition("=")[0] for word in joined}
            name = next((one for one in names if one in typed), names[0])
            if not name:
                self.error(error.message)
            raise UsageError(f"{name}: {error.message}") from error

    def print_help(self, file: Any = None) -> None:
        """Print the help; argparse's own would pass over a full disk."""
        print(self.format_help(), end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError in place of the usage of all options and an exit."""
        raise UsageError(f"{self.prog.removeprefix('nlp-bench ')}: {message}; see: {self.prog} --help")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Convert one value; an empty path, as from a variable that is not set, would mean the current folder."""
        if action.type is Path and not arg_string:
            raise argparse.ArgumentError(action, "it is empty; give a path, or . for the current folder")
        return super()._get_value(action, arg_string)

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        """Name the nearest option for one that there is not."""
        for word in words[: words.index("--")] if "--" in words else words:
            name = word.partition("=")[0]
            if name.startswith("-") and name != "-" and name not in self.spellings and not _is_value(name):
                raise UsageError(
                    f"{self.prog} has no option {name[:80]}{self._instead(name)}\n  all options: {self.prog} --help"
                )

    def _instead(self, name: str) -> str:
        if name in HINTS:
            return f"; {HINTS[name]}"
        if "--train-args" in self.spellings:
            from nlp_bench.launch.scheduler.slurm_options import LETTERS, SBATCH
            from nlp_bench.train.arguments import spellings

            if (long := LETTERS.get(name[1:], name[2:])) in SBATCH:
                return f", which is sbatch's: {SBATCH[long]}"
            if name in spellings():
                return f", but the trainer has: write --train-args='{name} ...'"
        others = ", ".join(other for other in SUBCOMMANDS if name in parser_of(other).spellings)
        near = nearest(name, self.spellings, listed=False) if name.startswith("--") else ""
        return near + (f" (it is an option of {others})" if others else "")


def _is_value(word: str) -> bool:
    """Whether argparse takes a word that begins with a dash for a value: a negative number, or several words."""
    return " " in word or word[1:2].isdigit() or word[1:2] == "."


def _joined(words: Sequence[str]) -> list[str]:
    """Return `words` with the options that stand for another program bound to theirs: argparse takes a lone --word for its own."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in FOREIGN and "--" not in joined:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def verbs(name: str) -> tuple[str, ...]:
    """Return the verbs of a subcommand that have options of their own."""
    return getattr(module_of(name), "VERBS", ())


def module_of(name: str) -> ModuleType:
    """Return the module of a subcommand, or of "SUBCOMMAND VERB"."""
    return importlib.import_module(f"nlp_bench.cli.{name.replace(' ', '.')}")


def parser_of(name: str) -> Parser:
    """Return the parser of a subcommand, or of "SUBCOMMAND VERB"."""
    return Parser(name, module_of(name))
