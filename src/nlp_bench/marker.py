"""JUBE's done file `ready`: the outcome and the hash of the record that states it, so that a bare file is recognised."""

import contextlib
import os
import shlex
from pathlib import Path
from typing import Any

from nlp_bench import schemas
from nlp_bench.errors import NlpBenchError
from nlp_bench.escape import one_line
from nlp_bench.files import opened, read_json, real, refuse_types, sha256_of, user_name, write_text
from nlp_bench.last_start import tail
from nlp_bench.seal import OUTCOME
from nlp_bench.terminal import say
from nlp_bench.walk import JUBE_FILES

MARKER = "ready"
JUBE_ERROR = "error"  # JUBE's own, of a step whose command has failed: `jube continue` passes it over for good
JUBE_DONE = "done"  # JUBE's own file in the folder of a step that has ended well
_MOST_SAID_BYTES = 4096
METRICS = "metrics.txt"  # the record of a rehearsal for JUBE instead of outcome.json: it has run no job


def write_marker(run_dir: Path) -> None:
    """Write the marker of outcome.json; repeated, it is the same. Raises NlpBenchError."""
    path = run_dir / OUTCOME
    record = read_outcome(run_dir)
    refuse_types(record, path, outcome=str)
    _write(run_dir, record["outcome"], path)
    _let_jube_go_on(run_dir)


def read_outcome(run_dir: Path) -> dict[str, Any]:
    """Return outcome.json. Raises NlpBenchError, with what helps where somebody of the group has decided and kept the record to themselves."""
    _refuse_closed(run_dir / OUTCOME)
    return read_json(run_dir / OUTCOME, schemas.OUTCOME)


def _refuse_closed(path: Path) -> None:
    if not path.is_file() or os.access(path, os.R_OK):
        return
    owner, folder, name = user_name(path.stat().st_uid), shlex.quote(str(path.parent)), shlex.quote(str(path))
    raise NlpBenchError(
        f"{path} belongs to {owner} and may not be read by you: let {owner} type chmod g+r {name}, or decide anew: "
        f"rm -f {folder}/{OUTCOME} {folder}/{MARKER}; nlp-bench sync {folder}"
    )


def write_rehearsed(run_dir: Path, text: str) -> None:
    """Write the marker of a rehearsal, whose metrics.txt exists. Raises NlpBenchError."""
    _write(run_dir, text, run_dir / METRICS)


def is_bare(run_dir: Path) -> bool:
    """Whether there is a marker without a decided outcome: made by hand, or by another program."""
    if not (run_dir / MARKER).exists() or (run_dir / OUTCOME).exists():
        return False
    metrics = run_dir / METRICS
    return not metrics.exists() or _stated(run_dir) != _digest(metrics)


def remove_bare(run_dir: Path) -> bool:
    """Remove a marker without a decided outcome, and return whether there was one; one that is written meanwhile stays."""
    if not is_bare(run_dir):
        return False
    (run_dir / MARKER).unlink(missing_ok=True)
    if (run_dir / OUTCOME).exists():  # decided between the two checks
        write_marker(run_dir)
        return False
    return True


def contradiction(run_dir: Path) -> str | None:
    """Return a sentence where outcome.json is not what the marker was written for, None where they agree or one is missing."""
    outcome = run_dir / OUTCOME
    if not outcome.exists() or (stated := _stated(run_dir)) is None or stated == _digest(outcome):
        return None  # a bare marker says nothing against it
    folder = shlex.quote(str(run_dir))
    with opened(outcome) as stream:
        if b"\r\n" in stream.read():
            restore = f"find {folder} -type f -exec sed -i 's/\\r$//' {{}} +"
            return (
                "outcome.json has Windows line ends, which no run writes: something on its way changed the files' line ends, as git does with "
                f"core.autocrlf, or an editor; copy the folder anew as it is, or restore them: {restore}"
            )
    return (
        f"outcome.json was changed after the run had ended: its hash is not the one in `{MARKER}`; "
        f"decide anew: rm {folder}/outcome.json {folder}/ready; nlp-bench sync {folder}"
    )


def repair(run_dir: Path) -> None:
    """Write the marker where outcome.json exists without one, or with one that holds no hash, and let JUBE see it. Raises NlpBenchError."""
    if (run_dir / OUTCOME).exists() and _stated(run_dir) is None:
        write_marker(run_dir)
    _let_jube_go_on(run_dir)


def _let_jube_go_on(run_dir: Path) -> None:
    """Remove JUBE_ERROR, which a killed `submit` or a full disk left, of a step with an outcome; another user's stays, for its owner to run the step again."""
    step = real(run_dir).parent
    error = step / JUBE_ERROR
    with contextlib.suppress(OSError):
        if any((step.parent / name).is_file() for name in JUBE_FILES) and error.lstat().st_uid == os.geteuid():
            error.unlink()
            run = step.parent
            again = shlex.join(["jube", "continue", str(run.parent), "--id", run.name.lstrip("0") or "0"])
            say(f"{error} of JUBE is removed: the step has its outcome now; next: {again}")


def forget_measured(run_dir: Path) -> None:
    """Let JUBE measure a training that begins: where its step's folder was removed, the step behind it is done with the training before."""
    step = real(run_dir).parent
    for link in step.parent.glob(f"*/work/{step.name.partition('_')[2]}"):  # JUBE's, to the folder of the step before
        with contextlib.suppress(OSError):
            if link.is_symlink() and real(link) == real(run_dir):
                (link.parent / METRICS).unlink(missing_ok=True)
                (link.parents[1] / JUBE_DONE).unlink(missing_ok=True)


def why_failed(step: Path) -> str:
    """Return in a sentence why the command of a step of JUBE's failed, as far as its last words tell."""
    words = tail(step / "work" / "stderr", _MOST_SAID_BYTES)
    last = words.strip().rpartition("\n")[2].removeprefix("nlp-bench: error: ")
    return f"JUBE's step failed, and what follows it was not run: {one_line(last) or f'see {step / JUBE_ERROR}'}"


def _write(run_dir: Path, text: str, record: Path) -> None:
    write_text(run_dir / MARKER, f"{text} {_digest(record)}\n")


def _stated(run_dir: Path) -> str | None:
    """Return the hash that the marker names, its last word; None where there is no marker or it names none. Raises NlpBenchError."""
    path = run_dir / MARKER
    _refuse_closed(path)
    words = path.read_text(encoding="utf-8", errors="replace").split() if path.is_file() else []
    return words[-1] if words and words[-1].startswith("sha256:") else None


def _digest(path: Path) -> str:
    return f"sha256:{sha256_of(path)}"
