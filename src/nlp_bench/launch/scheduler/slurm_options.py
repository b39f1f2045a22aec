"""Options of sbatch and srun that a run may not be given by hand, because submission, log or outcome rest on them.

Names and abbreviations: sbatch(1) and srun(1) of Slurm 22.05; both take any unambiguous beginning of a long option (getopt_long), and several
one-letter options in one word.
"""

import re
from collections.abc import Mapping, Sequence

from nlp_bench.errors import UsageError

_OURS = "is what nlp-bench itself asks Slurm with"
_BOTH = {
    **dict.fromkeys(("chdir", "error", "output"), "a run writes into its own folder (--run-dir)"),
    **dict.fromkeys(("help", "usage", "version"), _OURS),
    **dict.fromkeys(("nodes", "ntasks", "ntasks-per-node"), "follows from the layout (--nodes, --gpus-per-node)"),
}
_OF_SBATCH = {
    "account": "say --account",
    "array": "several jobs would write into one folder; sweep by JUBE, or repeat a run by `repeats`",
    "clusters": "a job of another cluster would not be found again; submit on that cluster",
    "comment": "a job is found again by its comment",
    "dependency": "say --dependency",
    "input": "the job script reads nothing",
    "job-name": "say --job-name-prefix",
    "no-requeue": "a job is never requeued by Slurm; say --retries",
    "open-mode": _BOTH["output"],
    "parsable": _OURS,
    "partition": "say --queue",
    "requeue": "a job that starts again would write into the log of the first start; say --retries",
    "test-only": "nothing would be submitted; `nlp-bench doctor --checks job` asks Slurm that",
    "time": "say --timelimit",
    "wait": "submit returns at once; `nlp-bench watch` waits",
    "wrap": "the job script is nlp-bench's own (--print shows it)",
}
_OF_SRUN = {
    "input": "torchrun reads nothing",
    "kill-on-bad-exit": "a rank that fails ends the run",
    "label": "the log's lines would begin with the task's number",
    "multi-prog": "every node starts torchrun",
    "no-allocate": _OURS,
    "pty": "nobody sits at the job",
    "test-only": _OURS,
}
SBATCH, SRUN = (dict(sorted({**_BOTH, **own}.items())) for own in (_OF_SBATCH, _OF_SRUN))
"""Why an option may not be given; of an abbreviation the first one in the alphabet is named."""
OF_CHAIN = {"time-min": "each job of a chain saves and stops by --timelimit, and Slurm may give it less; leave it out"}
"""Likewise, for jobs that continue each other."""
OF_NOTICE = {
    "signal": "--notice has Slurm send a signal of its own, and of two it sends one; leave --notice or this one out"
}
"""Likewise, for a run with --notice."""
LETTERS = {
    "A": "account", "a": "array", "D": "chdir", "M": "clusters", "d": "dependency", "e": "error", "h": "help", "i": "input",
    "J": "job-name", "N": "nodes", "n": "ntasks", "o": "output", "p": "partition", "t": "time", "V": "version", "W": "wait",
    "K": "kill-on-bad-exit", "l": "label", "Z": "no-allocate",
}  # fmt: skip
_TO_THE_RANKS = re.compile(r"--signal=(?:R:)?(?!B|R:|TERM|SIGTERM|15\b)(\w+)(?:@(\d+))?")
"""sbatch's --signal without B:, which goes to the job's steps and not to the script, with another signal than the trainer can stop by."""
_WITHOUT_VALUE = "HhIkKOQsuvVXlZ"  # letters that another option may follow in the same word


def check_words(field: str, words: Sequence[str], refused: Mapping[str, str]) -> None:
    """Refuse words for sbatch or srun that are no option, or one of `refused`; raises UsageError naming field, word and remedy."""
    for word in words:
        if not word.startswith("-") or word in {"-", "--"} or (word[1] == "-" and " " in word.partition("=")[0]):
            raise UsageError(f"{field}: {word!r} is no option; write option and value as one word: --name=value")
        for name in _names(word):
            found = next((known for known in refused if name and known.startswith(name)), None)
            if found:
                raise UsageError(f"{field}: {word!r} cannot be given: --{found}: {refused[found]}")


def check_signal(field: str, words: Sequence[str]) -> None:
    """Refuse a signal of sbatch's to the ranks that they do not stop by; raises UsageError naming field, word and remedy."""
    for word in words:
        if sent := _TO_THE_RANKS.fullmatch(word):
            raise UsageError(
                f"{field}: {word!r} cannot be given: Slurm would send {sent[1]} to torchrun and the ranks, which end by it as if they had failed; "
                f"say --notice {sent[2] or 60} (seconds before the time limit), or --signal=TERM@{sent[2] or 60} with --exit-signal-handler"
            )


def _names(word: str) -> list[str]:
    """Return the long names of the options in one word, without the values."""
    if word.startswith("--"):
        return [word[2:].partition("=")[0]]
    names = []
    for letter in word[1:]:
        names.append(LETTERS.get(letter, ""))
        if letter not in _WITHOUT_VALUE:
            break
    return names
