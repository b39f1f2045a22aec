"""The errors that a person sees: each names the field, the value, the rule and the remedy."""


class NlpBenchError(Exception):
    """A fault that a person can mend; the command line prints it and exits with `exit_code`."""

    exit_code = 1


class UsageError(NlpBenchError):
    """A wrong word on the command line or a wrong value in a data file: refused before anything is done."""

    exit_code = 2


def nearest(word: str, known: list[str]) -> str:
    """Return the sentence part that names the known word most like `word`, and all of them when there are few."""
    import difflib  # noqa: PLC0415  # only an error needs it, and start-up is measured

    close = difflib.get_close_matches(word, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    listing = f" (known: {', '.join(known)})" if len(known) <= 20 else ""  # a longer list helps nobody on a terminal
    return hint + listing
