"""Before any run: `nlp-bench init` makes a working folder, `build` the kernels, `completion` the shell's script."""

import argparse
import os
import re
import shlex
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nlp_bench import __version__
from nlp_bench.cli.parser import Command, Parser, command_of, parser_of
from nlp_bench.cli.registry import SUBCOMMANDS
from nlp_bench.config import catalog
from nlp_bench.config.catalog import load_system, root
from nlp_bench.config.options import argument, flag, value
from nlp_bench.config.request import shared
from nlp_bench.config.values import OneOf, UnlessDefault
from nlp_bench.errors import UsageError
from nlp_bench.immutable import immutable
from nlp_bench.terminal import say

if TYPE_CHECKING:
    from nlp_bench.build.environment import Machine
    from nlp_bench.config.system import System

LIKE = "dgx-h100"
TORCH, MEGATRON = "torch", "megatron-core"


@immutable
class Init(Command):
    """Write a working folder from an installed nlp-bench: the JUBE workflow, its parts, every data file, this version's sources, a README.

    It is laid out like a checkout, so that everything that the documentation says of one holds for it, and it needs this installation no longer.
    """

    EXAMPLE = """nlp-bench init bench
  nlp-bench init bench --system mycluster --like dgx-h100"""

    folder: Path = argument("DIR")  # The folder to make; it must not exist, or be empty.
    system: str | None = value(metavar="NAME")
    """The machine; for a new name benchmark/systems/NAME.toml is written, to be edited."""
    like: str | None = value(metavar="NAME", help=f"the system file that a new one is copied from (default: {LIKE})")

    def run(self) -> int:
        folder = self.folder.absolute()
        _refuse(folder, self.system, self.like)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
                made = Path(temporary, "made")
                _fill(made, catalog.shipped())
                system = _describe(made, self.system, self.like or LIKE)
                (made / "README.md").write_text(_readme(system), encoding="utf-8")
                made.replace(folder)
        except OSError as error:
            raise UsageError(
                f"init: {folder} cannot be written: {error.strerror or error}; name another folder"
            ) from error
        print(self.folder)
        say(*(f"next: {line}" for line in _next(self.folder, system)))
        return 0


def _refuse_word(system: str) -> None:
    """Refuse a new machine's name that as a tag of JUBE means something else, or that ends like its file."""
    from nlp_bench.config import scheduler
    from nlp_bench.config.resolve import REHEARSE, UPSTREAM

    if system.endswith(".toml"):
        raise UsageError(
            f"--system: {system[:80]}: name the machine, without .toml: --system {system[:80].removesuffix('.toml')}"
        )
    taken = {
        **dict.fromkeys(catalog.names("models"), "a model"),
        **dict.fromkeys((*scheduler.BUILT_IN, UPSTREAM, REHEARSE), "a tag of its own"),
    }
    if system in taken and system not in catalog.names("systems"):
        raise UsageError(
            f"--system: {system} is {taken[system]}: as a tag of JUBE it would not mean the machine; take another name"
        )


def _refuse(folder: Path, system: str | None, like: str | None) -> None:
    if (checkout := catalog.checkout()) is not None:
        raise UsageError(
            f"init: this nlp-bench runs from a checkout, which is a working folder already: {checkout}; type "
            f"jube run {shlex.quote(str(checkout / catalog.WORKFLOW))}"
        )
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UsageError(f"init: {folder} is {'a file' if folder.is_file() else 'not empty'}; name a new folder")
    if odd := next((sign for sign in '"$,\\`\n' if sign in str(folder)), None):
        raise UsageError(f"init: {str(folder)!r} holds {odd!r}, which JUBE takes in no path; name another folder")
    if system is not None and not re.fullmatch(r"[A-Za-z0-9][\w.-]*", system):
        raise UsageError(f"--system: {system[:80]!r} is no name of a file; use letters, digits, . - and _")
    if system is not None:
        _refuse_word(system)
    if like and (system is None or system in catalog.names("systems")):
        raise UsageError(
            "--like: it is what a new system file is copied from; name a new one by --system, or leave --like out"
        )
    catalog.find("systems", like or LIKE)


def _fill(made: Path, shipped: Path) -> None:
    """Copy the shipped files to their places in a checkout, and the package itself, which the environment of the folder is made from."""
    for source, target in ((shipped, made), (shipped.parent, made / "src" / "nlp_bench")):
        _copy(source, target)
    for path in (made / "benchmark").rglob("*"):
        if path.is_file() and path.read_bytes().startswith(b"#!"):
            mode = path.stat().st_mode
            path.chmod(mode | (mode & 0o444) >> 2)
    if text := _shared_packages(made):
        (made / "benchmark" / "env" / "packages.pth").write_text(text, encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    """Copy what lies below `source`, with the modes of new files: an installation may be read-only, or open to a group that is none of this user's."""
    for folder, inside, names in os.walk(source):
        inside[:] = [name for name in inside if name != "__pycache__"]
        place = target / Path(folder).relative_to(source)
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            if not name.endswith(".so"):
                shutil.copyfile(Path(folder, name), place / name)


def _shared_packages(made: Path) -> str:
    """Return where this Python has its packages, for setup_venv.sh; empty unless they are what a training needs, at the pinned version."""
    from nlp_bench.packages import installed_version

    pins = (made / "benchmark" / "env" / "constraints.txt").read_text(encoding="utf-8").split()
    if not installed_version(TORCH) or f"{MEGATRON}=={installed_version(MEGATRON)}" not in pins:
        return ""
    folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    return "\n".join([f"# python: {sys.executable}", *folders]) + "\n"


def _describe(made: Path, system: str | None, like: str) -> str | None:
    """Write a system file of a new name, or copy the user's own; return the machine's name."""
    if system is None:
        return None
    if system in catalog.names("systems"):
        shutil.copy(catalog.find("systems", system), made / "benchmark" / "systems")
        return system
    text = catalog.find("systems", like).read_text(encoding="utf-8")
    first = text.index("schema =")  # the text before describes the other machine
    text = re.sub(r"^description = .*$", f'description = "{system}"', text[first:], count=1, flags=re.MULTILINE)
    text = re.sub(r"^\[detect\].*\n(?:[^\[\n].*\n)*\n?", "", text, count=1, flags=re.MULTILINE)
    head = (
        f"# {system}: a copy of {like}.toml; go through every line. Every key is described in src/nlp_bench/config/system.py.\n"
        f"# nlp-bench doctor --system {system} --model 13 compares it with the machine.\n"
    )
    (made / "benchmark" / "systems" / f"{system}.toml").write_text(head + text, encoding="utf-8")
    return system


def _next(folder: Path, system: str | None) -> list[str]:
    """Return the commands to type, in their order, from the user's current folder."""

    def word(name: str) -> str:
        return shlex.quote(str(folder / name))

    tags = f" --tag 13 {system}" if system and system != "local" else ""
    return [
        *([f"edit {word(f'benchmark/systems/{system}.toml')}, which describes the machine"] if system else []),
        f"jube run {word('benchmark/jube/nlp_benchmark.yaml')}{tags}",
        f"or, where JUBE is not installed: bash {word('benchmark/run.sh')}{tags.removeprefix(' --tag')}",
    ]


def _readme(system: str | None) -> str:
    name = system or "NAME"
    describe = (
        f"1. Edit `benchmark/systems/{system}.toml`: it describes the machine."
        if system
        else "1. Describe the machine: copy a file of `benchmark/systems` to `benchmark/systems/NAME.toml` and edit it. Without one, this machine is taken."
    )
    return f"""# A working folder of nlp-bench {__version__}

Made by `nlp-bench init`. It is laid out like a checkout and needs nothing outside of it; it may be moved and copied to another machine.
Type in this folder:

{describe}
2. `benchmark/env/nlp-bench check --model 13 --system {name} --offline`: is the description right, does the layout fit?
3. `jube run benchmark/jube/nlp_benchmark.yaml --tag 13 {name}` (without tags: the tiny model here, in a minute)
4. `jube continue benchmark/jube/nlp_benchmark_run --id last`, again until no step waits
5. `jube result -a benchmark/jube/nlp_benchmark_run --id last`: the table

`bash benchmark/run.sh [TAG …]` does 3 to 5 and finds or installs JUBE. The first step of a run makes the environment `.venv` (torch, megatron-core at
pinned versions; minutes, once). If `benchmark/env/packages.pth` is there, `.venv` takes the packages of the environment that ran `init`
instead; remove the file for an environment of its own. `source benchmark/env/activate.bash` puts this folder's `nlp-bench` on PATH.

| folder | content |
|---|---|
| `benchmark/models`, `benchmark/systems`, `benchmark/rules` | data files; one of your own under a new name is found by it |
| `jube/parameters.yaml` | what a run sweeps over |
| `benchmark/jube/nlp_benchmark_run`, `reports/` | what runs leave |
| `src/nlp_bench` | the sources of this version |

A changed file of `benchmark/models` is told in every record: such a run is not the benchmark.
"""


APEX_COMMIT = "8ffc901e50bbf740fdb6d5bccb17f66a6ec8604e"
TRANSFORMER_ENGINE = "transformer_engine[pytorch]==2.11.0"  # megatron-core 0.16.1 asks for >=2.9, <2.12


@immutable
class Build(Command):
    """Compile and warm the fused kernels of this machine, once; a second call finds them and says so."""

    EXAMPLE = "nlp-bench build --apex https://github.com/NVIDIA/apex --te --arch 9.0"

    apex: str | None = value(metavar="SOURCE")  # Git URL or folder of NVIDIA Apex; without it torch's kernels run.
    apex_commit: str = value(default=APEX_COMMIT, metavar="COMMIT", help=f"commit of Apex (default: {APEX_COMMIT})")
    te: str | None = value(
        nargs="?", const=TRANSFORMER_ENGINE, metavar="REQUIREMENT",
        help=f"Transformer Engine, as pip names it (default: {TRANSFORMER_ENGINE}); its torch part is compiled here",
    )  # fmt: skip
    arch: str | None = value(metavar="X.Y")  # Compute capability of the GPU, where this machine has none to ask.
    system: str | None = shared("system", group="")
    """File of benchmark/systems: its gpu.compute_capability, software.apex and transformer_engine."""
    recorded: Path | None = value("--run", metavar="FILE")  # The same, of this run.json's system.
    scanner: bool = flag()  # Only the compiled reader of logs, for a package that was installed without it.
    root: Path | None = value()  # Folder that holds `build` (default: this repository).

    def run(self) -> int:
        if self.scanner:
            from nlp_bench.build.scanner import build_scanner

            print(build_scanner())
            return 0
        from nlp_bench.build.environment import Apex, Extras, build_folder
        from nlp_bench.build.maker import make_build
        from nlp_bench.config.run import read_run

        system = read_run(self.recorded).system if self.recorded else load_system(self.system) if self.system else None
        source = self.apex or (system.software.apex if system else "")
        folder = Path(self.apex or ".")
        if self.apex and folder.is_dir() and not any((folder / name).exists() for name in (".git", "HEAD")):
            raise UsageError(
                f"--apex: {self.apex} is no git repository, and a commit of it is built; clone it: git clone {APEX_URL}"
            )
        apex = Apex(source=source, commit=self.apex_commit) if source else None
        engine = self.te or (system.software.transformer_engine if system else "")
        for name, word in {"--apex": source, "--apex-commit": self.apex_commit, "--te": engine}.items():
            if word.startswith("-"):
                raise UsageError(
                    f"{name}: {word[:80]!r} begins with -, so that git or pip would take it for an option; name what is to be built"
                )
        extras = Extras(apex=apex, transformer_engine=engine)
        machine = _machine(self.arch, system)
        print(make_build(build_folder(self.root or root()), machine, extras, partial(print, flush=True)))
        return 0


def _machine(arch: str | None, system: "System | None") -> "Machine":
    """Return the machine to build for; a login node without a GPU builds for the system's nodes."""
    from nlp_bench.build.environment import this_machine

    stated = system.gpu.compute_capability if system and system.gpu else ""
    for name, word in (("arch", arch), ("system.gpu.compute_capability", stated)):
        if word and not re.fullmatch(r"\d+\.\d+", word):
            raise UsageError(f"{name}: {word!r} is not a compute capability like 9.0")
    machine = this_machine(arch)
    if machine.arch != "cpu" or machine.cuda == "none":
        return machine
    if stated:
        return this_machine(stated)
    raise UsageError(
        "arch: torch is a CUDA build, but no GPU is seen here; give --arch X.Y, or gpu.compute_capability in the system file"
    )


APEX_URL = "https://github.com/NVIDIA/apex"
FILES = {"model": "models", "system": "systems", "like": "systems", "rules": "rules"}
"""Options whose value is the name of a data file, and its kind."""


@immutable
class Completion(Command):
    """Print the script by which a shell completes subcommands, options, and the names of models, systems and rules."""

    EXAMPLE = """nlp-bench completion bash > ~/.local/share/bash-completion/completions/nlp-bench
  nlp-bench completion zsh > ~/.zfunc/_nlp-bench           # in .zshrc: fpath+=~/.zfunc; autoload -Uz compinit; compinit
  eval "$(nlp-bench completion bash)"                      # in this shell alone"""

    shell: str = argument("SHELL", read=OneOf("bash", "zsh", "tcsh"))  # bash, zsh or tcsh.

    def run(self) -> int:
        import shtab

        words = argparse.ArgumentParser(prog="nlp-bench", description="Training speed of large language models.")
        subcommands = words.add_subparsers()
        for name, entry in SUBCOMMANDS.items():
            own = subcommands.add_parser(name, help=entry.text, add_help=False, parents=[_completed(parser_of(name))])
            if entry.verbs:
                further = own.add_subparsers()
                for verb in entry.verbs:
                    parser, about = _completed(parser_of(f"{name} {verb}")), command_of(f"{name} {verb}").__doc__ or ""
                    further.add_parser(verb, help=about.partition("\n")[0], add_help=False, parents=[parser])
        print(shtab.complete(words, self.shell))
        return 0


def _completed(parser: Parser) -> Parser:
    """Set for every argument of `parser` what its value may be."""
    import shtab

    for action in parser.arguments:
        read = action.type.read if isinstance(action.type, UnlessDefault) else action.type
        if isinstance(read, OneOf):
            action.choices = read.words
        elif action.dest in FILES:
            action.choices = catalog.names(FILES[action.dest])
        elif read is Path or action.dest == "paths":
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # how shtab is told
    return parser
