"""Print the script by which a shell completes subcommands, options, and the names of models, systems and rules."""

import argparse
from pathlib import Path

from nlp_bench.cli.parser import SUBCOMMANDS, Parser, module_of, parser_of, verbs
from nlp_bench.config.values import OneOf, UnlessDefault

EXAMPLE = """nlp-bench completion bash > ~/.local/share/bash-completion/completions/nlp-bench
  nlp-bench completion zsh > ~/.zfunc/_nlp-bench           # in .zshrc: fpath+=~/.zfunc; autoload -Uz compinit; compinit
  eval "$(nlp-bench completion bash)"                      # in this shell alone"""
FILES = {"model": "models", "system": "systems", "like": "systems", "rules": "rules"}
"""Options whose value is the name of a data file, and its kind."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument("shell", metavar="SHELL", type=OneOf("bash", "zsh", "tcsh"), help="bash, zsh or tcsh")


def run(options: argparse.Namespace) -> int:
    """Print the script; the names are those of now."""
    import shtab

    root = argparse.ArgumentParser(prog="nlp-bench", description="Training speed of large language models.")
    subcommands = root.add_subparsers()
    for name, text in SUBCOMMANDS.items():
        own = subcommands.add_parser(name, help=text, add_help=False, parents=[_completed(parser_of(name))])
        if verbs(name):
            further = own.add_subparsers()
            for verb in verbs(name):
                parser, about = _completed(parser_of(f"{name} {verb}")), module_of(f"{name} {verb}").__doc__ or ""
                further.add_parser(verb, help=about.partition("\n")[0], add_help=False, parents=[parser])
    print(shtab.complete(root, options.shell))
    return 0


def _completed(parser: Parser) -> Parser:
    """Let every argument of `parser` say what its value may be."""
    import shtab

    from nlp_bench.config import catalog

    for action in parser.arguments:
        read = action.type.read if isinstance(action.type, UnlessDefault) else action.type
        if isinstance(read, OneOf):
            action.choices = read.words
        elif action.dest in FILES:
            action.choices = catalog.names(FILES[action.dest])
        elif read is Path or action.dest == "paths":
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # how shtab is told
    return parser
