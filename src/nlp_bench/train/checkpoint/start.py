"""What is looked at before torch is imported: whether there is a checkpoint, whether it fits, whether anything is left to do."""

import os
from pathlib import Path

from nlp_bench.errors import UsageError
from nlp_bench.train.checkpoint.folder import NAME, TRACKER, is_whole, newest
from nlp_bench.train.checkpoint.record import check_record, read_record
from nlp_bench.train.layout import Layout
from nlp_bench.train.settings import Settings


def found_checkpoint(settings: Settings) -> Path | None:
    """Return the checkpoint that --load means, None where the training begins anew.

    Raises UsageError where there is none although --exit-on-missing-checkpoint asks for one.
    """
    if settings.load is None:
        return None
    folder = Path(settings.load)
    if NAME.fullmatch(folder.absolute().name) and is_whole(folder):
        raise UsageError(
            f"load: {folder} is itself a checkpoint; give --load {folder.parent}, whose {TRACKER} says which one is meant"
        )
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"load: {folder} is no folder; give the folder that --save was given")
    path = newest(folder)
    if path is None and settings.exit_on_missing_checkpoint:
        raise UsageError(
            f"load: {settings.load} holds no checkpoint ({TRACKER} is missing); leave --exit-on-missing-checkpoint out to begin anew"
        )
    return path


def check_start(settings: Settings, layout: Layout) -> str | None:
    """Refuse a checkpoint that does not fit; return a line for the log where all iterations are done already, else None.

    Every rank calls it before torch is imported. Raises UsageError naming the field, both values and the remedy.
    """
    path = found_checkpoint(settings)
    _check_save(settings)
    if path is None:
        return None
    record = read_record(path)
    check_record(record, path, settings, layout)
    if record["iteration"] < layout.train_iters:
        return None
    return f" nothing is left to train: {path} holds iteration {record['iteration']} of {layout.train_iters}; raise --train-iters to go on"


def _check_save(settings: Settings) -> None:
    if settings.save is None:
        return
    folder = Path(settings.save)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"save: cannot make the folder {folder}: {error.strerror}; name another one") from error
    if not os.access(folder, os.W_OK):
        raise UsageError(f"save: {folder} is not writable; name another folder")
    if settings.load is not None and folder.resolve() == Path(settings.load).resolve():
        return
    earlier = newest(folder, option="save")
    if earlier is not None:
        raise UsageError(
            f"save: {folder} holds {earlier.name} of another training; name a new folder, or continue it with --load {folder}"
        )
