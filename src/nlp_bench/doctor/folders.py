"""Where a run writes."""

import tempfile
from pathlib import Path

from nlp_bench.build.environment import build_folder
from nlp_bench.data import default_folder
from nlp_bench.doctor.place import Place


def written_folders(place: Place) -> dict[str, Path]:
    """Return what is written where: the run folder, the index cache of the data, the build, temporary files.

    A folder that does not exist yet is stood for by the nearest one above it that does.
    """
    cache = Path(place.run.data.cache) if place.run and place.run.data.cache else default_folder(place.root)
    wanted = {
        "runs": place.runs,
        "data": cache,
        "build": build_folder(place.root),
        "temporary": Path(tempfile.gettempdir()),
    }
    return {name: _existing(path.absolute()) for name, path in wanted.items()}


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_dir())
