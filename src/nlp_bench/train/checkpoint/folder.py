"""The folder of checkpoints as it lies on disk, under Megatron-LM's names. No torch here.

FOLDER/iter_0000020/                        one checkpoint; its metadata.json is written last
FOLDER/latest_checkpointed_iteration.txt    the iteration of the newest whole one, written behind everything else
Source: Megatron-LM, megatron/training/checkpointing.py (`get_checkpoint_name`, `get_checkpoint_tracker_filename`).
"""

import re
import shutil
from pathlib import Path

from nlp_bench.errors import UsageError
from nlp_bench.files import write_text

TRACKER = "latest_checkpointed_iteration.txt"
RECORD = "nlp-bench.json"
"""Our record inside each checkpoint: which model and which training it is of."""
LAST_FILE = "metadata.json"
"""What megatron-core writes when everything else of a checkpoint is on disk (`dist_checkpointing/core.py`, CONFIG_FNAME)."""
NAME = re.compile(r"iter_(\d{7,})")


def checkpoint_path(folder: Path, iteration: int) -> Path:
    """Return where the checkpoint of `iteration` lies: FOLDER/iter_0000020."""
    return folder / f"iter_{iteration:07d}"


def newest(folder: Path, *, option: str = "load") -> Path | None:
    """Return the checkpoint that the tracker names, None where the folder has no tracker: then none was ever finished.

    Raises UsageError, beginning with the name of the `option`, where the tracker cannot be read or names a checkpoint that is
    not whole.
    """
    tracker = folder / TRACKER
    try:
        word = tracker.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option}: cannot read {tracker}: {getattr(error, 'strerror', None) or error}") from error
    listing = f"whole ones: {', '.join(str(_iteration(path)) for path in whole(folder)) or 'none'}"
    if not re.fullmatch("[0-9]{1,18}", word):
        raise UsageError(f"{option}: {tracker} says {word[:40]!r}, not an iteration; write one into it ({listing})")
    path = checkpoint_path(folder, int(word))
    if not is_whole(path):
        raise UsageError(
            f"{option}: {tracker} names iteration {word}, but {path} is not a whole checkpoint of nlp-bench ({LAST_FILE} or {RECORD} is "
            f"missing); write another iteration into it ({listing})"
        )
    return path


def whole(folder: Path) -> list[Path]:
    """Return the whole checkpoints in the folder, the oldest first."""
    paths = [path for path in folder.glob("iter_*") if NAME.fullmatch(path.name) and is_whole(path)]
    return sorted(paths, key=_iteration)


def is_whole(path: Path) -> bool:
    """Whether everything of this checkpoint has been written."""
    return (path / LAST_FILE).is_file() and (path / RECORD).is_file()


def clear(folder: Path, iteration: int) -> Path:
    """Make the empty folder for a checkpoint and return it; what a save that was killed left there is removed."""
    path = checkpoint_path(folder, iteration)
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True)
    return path


def publish(folder: Path, iteration: int, keep: int | None) -> None:
    """Name this checkpoint as the newest, then remove older whole ones beyond `keep`."""
    write_text(folder / TRACKER, f"{iteration}\n")
    older = [path for path in whole(folder) if _iteration(path) < iteration]
    for path in older[: len(older) - (keep - 1)] if keep and len(older) >= keep else []:
        (path / LAST_FILE).unlink(missing_ok=True)  # a removal that is cut short must not leave what looks whole
        shutil.rmtree(path, ignore_errors=True)


def _iteration(path: Path) -> int:
    return int(path.name.removeprefix("iter_"))
