"""What Slurm's commands answer, told apart from what a site's wrapper, a module or a colour setting prints around it.

Each question carries a mark that comes back in the answer: a first field of our own (`--format`), names around a list of nodes, or
the key with which a line of `scontrol show` begins. Lines without it are not read; an answer without it is no answer.
"""

import re
import shutil
from typing import Any

MARK = "nlp-bench|"  # first field of each line of squeue and sinfo, also of the header: `--format=nlp-bench|%i|%k`
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))|[\x00-\x08\x0b-\x1f]")
"""Colours, titles of windows and other control characters, but line ends and tabs. Source: ECMA-48, 5.4 and 8.3.89."""
_HEADERS = ("JOBID", "NODELIST")  # what squeue prints above %i, and sinfo above %N
_BEFORE, _BEHIND = "nlp-bench-before", "nlp-bench-behind"
_NODE = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")


def other_form(program: str) -> str:
    """Return what is said of an answer of `program` that `rows` or `listed` cannot read."""
    return f"not in the form that it was asked for, as a wrapper of the site may; put Slurm's own before {shutil.which(program)} on PATH"


def plain(text: str) -> str:
    """Return `text` without control sequences; a carriage return ends a line."""
    return _ESCAPE.sub("", text.replace("\r", "\n"))


def records(out: str, key: str) -> dict[str, str]:
    """Return the lines of `scontrol --oneliner show ...` that begin with `key`=NAME, by name."""
    lines = re.findall(rf"^{key}=(\S+)(.*)$", plain(out), re.MULTILINE)
    return {name: f"{key}={name}{rest}" for name, rest in lines}


def rows(out: str, fields: int) -> list[list[str]] | None:
    """Return the fields behind MARK of squeue's or sinfo's lines, the last with its bars; None where not even the header is there: that is no answer."""
    found = [line.partition(MARK) for line in plain(out).splitlines()]
    marked = [rest.rstrip().split("|", fields - 1) for before, mark, rest in found if mark and not before.strip()]
    return [row for row in marked if row[0].strip() not in _HEADERS] if marked else None


LISTED = f"{MARK}%i|%Z|{MARK}%k"  # the mark divides the folder from the comment, for both may hold bars
_JOB = re.compile(rf"^\s*{re.escape(MARK)}(?=(?:\d+|JOBID)\|)", re.MULTILINE)


def listed(out: str) -> list[tuple[str, str, str]] | None:
    """Return number, folder (its name may hold line feeds) and comment of the jobs in squeue's answer to LISTED; None where it is none, or in another form."""
    found = []
    for one in _JOB.split(plain(out))[1:]:
        before, mark, comment = one.partition(f"|{MARK}")
        if not mark:
            return None
        job_id, _, work_dir = before.partition("|")
        found.append((job_id, work_dir, comment.partition("\n")[0].rstrip()))
    return [job for job in found if job[0].isdigit()] if found else None


ACCOUNTED = "JobID,State,ExitCode,Submit,WorkDir"  # what sacct is asked for; a folder's name may hold bars: it is last


def accounted(out: str, job_id: str) -> dict[str, Any] | None:
    """Return word, exit_code, submitted and work_dir of a job in `sacct -P -o ACCOUNTED` as texts; None where no line has that form.

    The log of completed jobs (`sacct -c`) leaves the last two empty. A job that a site's plugin has made a heterogeneous one is accounted for by its
    first part, 7+0.
    """
    form = rf"^{re.escape(job_id)}(?:\+0)?\|(?P<word>[A-Z_]+(?: by \S+|\+)?)\|(?P<exit_code>\d+:\d+)(?:\|(?P<submitted>[^|]*)\|(?P<work_dir>.*))?$"
    found = list(re.finditer(form, plain(out), re.MULTILINE))
    return found[-1].groupdict("") if found else None


def is_accounting(out: str) -> bool:
    """Whether sacct has answered, be it with no job: its header is there."""
    return any(line.startswith("JobID|State|ExitCode") for line in plain(out).splitlines())


def hostnames_command(nodes: str) -> tuple[str, ...]:
    """Return the command that writes out a list of nodes ("node[1-3]"), between two names that are no nodes."""
    return "scontrol", "show", "hostnames", f"{_BEFORE},{nodes},{_BEHIND}"


def hostnames(out: str) -> list[str] | None:
    """Return the nodes in the answer to `hostnames_command`; None where it is not one."""
    lines = [line.strip() for line in plain(out).splitlines()]
    if lines.count(_BEFORE) != 1 or lines.count(_BEHIND) != 1:
        return None
    names = [line for line in lines[lines.index(_BEFORE) + 1 : lines.index(_BEHIND)] if line]
    return names if names and all(map(_NODE.fullmatch, names)) else None


def field_of(line: str, name: str) -> str:
    """Return the value of `name` in a line of `scontrol --oneliner show ...`; empty where it is not there."""
    found = re.search(rf"(?:^|\s){name}=(\S+)", line)
    return found.group(1) if found else ""
