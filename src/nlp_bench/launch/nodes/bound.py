"""Run a command on the CPUs of this rank: for programs that do not call `bind_rank` themselves, such as Megatron-LM's.

torchrun ... --no-python python -m nlp_bench.launch.nodes.bound -- python pretrain_gpt.py ...
"""

import os
import sys

from nlp_bench.machine.binding import bind_rank
from nlp_bench.orphans import die_with_parent

USAGE = "usage: python -m nlp_bench.launch.nodes.bound -- COMMAND [ARGUMENT ...]"


def main(words: list[str]) -> int:
    """Bind this process, say so, and become COMMAND; return 2 without one, 127 where it cannot be started."""
    command = words[1:] if words[:1] == ["--"] else words
    if not command or command[0] in {"-h", "--help"}:
        print(USAGE, file=sys.stdout if command else sys.stderr)
        return 0 if command else 2
    if "TORCHELASTIC_RUN_ID" in os.environ:  # a rank of torchrun, whose death would leave it behind
        die_with_parent()
    binding = bind_rank()
    if binding:
        print(binding.line, flush=True)
    try:
        os.execvp(command[0], command)  # noqa: S606  # the point: no shell in between
    except OSError as error:
        print(f"nlp_bench.launch.nodes.bound: error: cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
