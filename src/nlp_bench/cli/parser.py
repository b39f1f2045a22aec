"""The parser of every subcommand: short errors that name the nearest option, help without the clutter of other spellings."""

import argparse
import importlib
import inspect
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from nlp_bench.cli.registry import SUBCOMMANDS
from nlp_bench.config.options import add_fields, explain
from nlp_bench.config.request import GROUPS, add_spellings
from nlp_bench.errors import ADDRESS, UsageError, nearest

FOREIGN = ("--train-args", "--sbatch-arg", "--srun-arg")  # their value is an option of another program, with -- too
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
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
"""Names of Megatron-LM and torchrun that mean something else here, where a subcommand does not take them."""


class Command:
    """A subcommand: its docstring is the description of --help, its fields are the options and arguments."""

    EXAMPLE: ClassVar[str]

    def run(self) -> int:
        """Run the subcommand: the result goes to stdout, messages to stderr. Return the exit code."""
        raise NotImplementedError


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Shows the value of an option once, after its last spelling."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class Parser(argparse.ArgumentParser):
    """An argparse whose errors are a UsageError."""

    def __init__(self, name: str, command: type[Command]) -> None:
        super().__init__(
            prog=f"nlp-bench {name}",
            description=inspect.cleandoc(command.__doc__ or ""),
            epilog=f"example:\n  {command.EXAMPLE}",
            formatter_class=Formatter,
            allow_abbrev=False,
            exit_on_error=False,
        )
        self.command = command
        self.may_be_empty = {one.name for one in fields(command) if one.metadata.get("unset")}  # type: ignore[arg-type]  # as below
        """Options of a run, which JUBE passes on empty where they are not set."""
        self.met: dict[str, tuple[str, Any]] = {}
        """Options met in the words that are being read: what was typed and what it means."""
        groups: dict[str, list[str]] = {}
        for one in fields(command):  # type: ignore[arg-type]  # of a dataclass
            groups.setdefault(one.metadata.get("group", ""), []).append(one.name)
        for title in sorted(groups, key=lambda title: GROUPS.index(title) if title in GROUPS else len(GROUPS)):
            container = self.add_argument_group(title) if title else self
            add_fields(container, command, groups[title])
            add_spellings(container, groups[title])
        words = [
            f"{one.metavar or one.dest}{' ...' * (one.nargs in {'*', '+'})}" for one in self._get_positional_actions()
        ]
        self.usage = " ".join(["%(prog)s", "[OPTION ...]", *(word.replace("%", "%%") for word in words)])

    @property
    def arguments(self) -> list[argparse.Action]:
        """Every option and positional argument, with its help."""
        explain(self._actions, self.command)
        return list(self._actions)

    @property
    def spellings(self) -> list[str]:
        """Every spelling of every option."""
        return list(self._option_string_actions)

    def read(self, words: Sequence[str]) -> Any:
        """Return the subcommand with the options in `words`; raises UsageError naming option, value, rule and remedy."""
        joined = _joined(words)
        self._refuse_unknown(joined)
        # Arguments after `--` are names, whatever they begin with; argparse's parse_intermixed_args does not know that.
        parse = self.parse_args if "--" in joined else self.parse_intermixed_args
        self.met = {}
        try:
            options = vars(parse(joined))
        except argparse.ArgumentError as error:
            names = (error.argument_name or "").split("/")
            typed = {word.partition("=")[0] for word in joined}
            name = next((one for one in names if one in typed), names[0])
            if not name:
                self.error(error.message)
            raise UsageError(f"{name}: {error.message}") from error
        known = {one.name for one in fields(self.command)}  # type: ignore[arg-type]  # of a dataclass
        given = {name: one for name, one in options.items() if one is not None and name in known}
        return self.command(**{name: tuple(one) if isinstance(one, list) else one for name, one in given.items()})

    def format_help(self) -> str:
        """Return the help; the docstrings are read only here."""
        explain(self._actions, self.command)
        return super().format_help()

    def print_help(self, file: Any = None) -> None:
        """Print the help; argparse's own would ignore a full disk."""
        print(self.format_help(), end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of printing the usage of all options and exiting."""
        message += _of_a_file(message.removeprefix("unrecognized arguments: "))
        raise UsageError(f"{self.prog.removeprefix('nlp-bench ')}: {message}; see: {self.prog} --help")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Convert one value; an empty one, as from a variable that is not set, would mean the current folder, or no check at all."""
        if not arg_string and (action.type is Path or not action.option_strings):
            raise argparse.ArgumentError(action, "it is empty; give a path, or . for the current folder")
        if not arg_string and action.type is None and action.dest not in self.may_be_empty:
            raise argparse.ArgumentError(action, "it is empty; give a value, or leave the option out")
        if arg_string == "-" and action.dest == "output":
            raise argparse.ArgumentError(
                action, "- is no name of a file or folder, nor standard output here; give a name"
            )
        is_path = action.type is Path or (action.type is None and action.option_strings)
        if is_path and arg_string.startswith("~/") and not os.path.lexists("~"):  # a folder of that name would be made
            what = f"{arg_string[:80]!r} begins with a ~ that the shell left as it is"
            raise argparse.ArgumentError(action, f"{what}; write a blank in place of =, or $HOME in place of ~")
        if action.type is Path and ADDRESS.match(arg_string) and not os.path.lexists(arg_string.partition("/")[0]):
            what = f"{arg_string[:200]!r} is an address, and nothing is fetched from one or sent to one"
            raise argparse.ArgumentError(action, f"{what}; give a path of this machine, and copy it")
        return super()._get_value(action, arg_string)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse `--option=--`, whose value argparse takes for the end of the options."""
        if arg_strings == ["--"] and action.option_strings:
            raise argparse.ArgumentError(action, "-- is no value; give one, or leave the option out")
        found = super()._get_values(action, arg_strings)
        self._refuse_second(action, arg_strings, found)
        return found

    def _refuse_second(self, action: argparse.Action, words: list[str], found: Any) -> None:
        """Refuse an option that is given again with another value, of which argparse would take the last; JUBE's "default" is none."""
        meant = action.const if action.nargs == 0 else found
        repeats = self._registry_get("action", "append")
        is_list = any(each.dest == action.dest and isinstance(each, repeats) for each in self._actions)
        if not action.option_strings or is_list or meant is None:
            return
        typed = " ".join(words) or action.option_strings[0]
        before, value = self.met.setdefault(action.dest, (typed, meant))
        if value != meant:
            raise argparse.ArgumentError(action, f"given twice, as {before[:80]} and as {typed[:80]}; give it once")

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        """Suggest the nearest option for an unknown one."""
        for word in words[: words.index("--")] if "--" in words else words:
            name = word.partition("=")[0]
            if name[:1] in DASHES and name[1:] and not os.path.lexists(word):
                what = (
                    f"{name[:80]!r} begins with a dash that is no hyphen (U+{ord(name[0]):04X}), as texts make of two"
                )
                raise UsageError(f"{self.prog}: {what}; write --{name.lstrip(DASHES + '-')[:80]}")
            is_value = " " in name or name[1:2].isdigit() or name[1:2] in {".", ""}  # as argparse takes it; - is stdin
            if name.startswith("-") and name not in self.spellings and not is_value:
                raise UsageError(
                    f"{self.prog} has no option {name[:80]}{self._instead(name)}\n  all options: {self.prog} --help"
                )

    def _instead(self, name: str) -> str:
        if hint := _of_a_file(name):
            return hint
        forms = next((one.type for one in self._actions if "--format" in one.option_strings), None)
        form = f"write --format {name[2:]}" if name[2:] in getattr(forms, "words", ()) else ""
        if hint := HINTS.get(name, form):
            return f"; {hint}"
        if "--train-args" in self.spellings:
            from nlp_bench.launch.scheduler.slurm_options import LETTERS, SBATCH
            from nlp_bench.train.arguments import spellings

            if (long := LETTERS.get(name[1:], name[2:])) in SBATCH:
                return f", which is sbatch's: {SBATCH[long]}"
            if name in spellings() and name not in parser_of("submit").spellings:
                return f", but the trainer has: write --train-args='{name} ...'"
        others = ", ".join(other for other in SUBCOMMANDS if name in parser_of(other).spellings)
        if others:
            return f" (it is an option of {others})"
        return nearest(name, self.spellings, listed=False) if name.startswith("--") else ""


def _of_a_file(name: str) -> str:
    """Return how a file is named that has the name of an option."""
    return f", which is a file here: write ./{name[:80]}" if name.startswith("-") and os.path.lexists(name) else ""


def _joined(words: Sequence[str]) -> list[str]:
    """Return `words` with the values of FOREIGN joined to their options by =: argparse takes a separate --word for its own."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in FOREIGN and "--" not in joined:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def command_of(name: str) -> type[Command]:
    """Return the class of a subcommand, or of "SUBCOMMAND VERB"."""
    first, _, verb = name.partition(" ")
    entry = SUBCOMMANDS[first]
    module = importlib.import_module(f"nlp_bench.cli.{entry.verbs[verb] if verb else entry.module}")
    found: type[Command] = getattr(module, name.title().replace(" ", ""))
    return found


def parser_of(name: str) -> Parser:
    """Return the parser of a subcommand, or of "SUBCOMMAND VERB"."""
    return Parser(name, command_of(name))
