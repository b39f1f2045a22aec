"""Whether the files of a bundle are those that its manifest lists, and which lines of a changed one are not."""

from collections.abc import Iterator
from pathlib import Path

from nlp_bench.bundle.digests import changes
from nlp_bench.bundle.manifest import LINES, MANIFEST, SUMS, Manifest
from nlp_bench.seal import sha256_of
from nlp_bench.show.escape import one_line

MAX_NAMED = 20
"""Changed stretches of one file that are named one by one."""
_LONGEST = 400


def faults(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Yield a sentence for each changed, missing and extra file, with its lines where they can be told."""
    listed = {file.path: file for file in manifest.files}
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    changed = [p for p in sorted(listed) if p in present and sha256_of(folder / p) != listed[p].sha256]
    for path in changed:
        yield f"{path} was changed: its SHA-256 is not that of {MANIFEST}"
        trusted = f"{LINES}/{path}" in listed and f"{LINES}/{path}" in present and f"{LINES}/{path}" not in changed
        if trusted:
            yield from _lines(folder, path)
    yield from (f"{path} is missing" for path in sorted(set(listed) - present))
    extra = present - set(listed) - {MANIFEST, SUMS}
    yield from (
        f"{one_line(path)[:200]!r} is not of this bundle: {MANIFEST} does not list it" for path in sorted(extra)
    )
    yield from _sums(folder, manifest)


def _lines(folder: Path, path: str) -> Iterator[str]:
    try:
        recorded = (folder / LINES / path).read_text(encoding="ascii")
    except (OSError, ValueError):
        return
    found = changes(folder / path, recorded) or []
    wanted = {change.first for change in found[:MAX_NAMED]}
    texts = _texts(folder / path, wanted)
    for what, first, count in found[:MAX_NAMED]:
        where = f"line {first}" if count == 1 else f"lines {first} to {first + count - 1}"
        if what == "removed":
            verb = "line was removed" if count == 1 else "lines were removed"
            yield f"{path}: {count} {verb} in front of line {first}"
        else:
            verb = "was" if count == 1 else "were"
            yield f"{path} {where} {verb} {what}; it reads: {texts.get(first, '')}"
    if len(found) > MAX_NAMED:
        yield f"{path}: {len(found) - MAX_NAMED} more stretches of lines are not as they were"


def _texts(path: Path, wanted: set[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    last = max(wanted, default=0)
    with path.open("rb") as stream:
        for number, text in enumerate(stream, start=1):
            if number > last:
                break
            if number in wanted:
                line = " ".join(one_line(text[: 4 * _LONGEST].decode(errors="replace")).split())
                found[number] = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
    return found


def _sums(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Yield where SHA256SUMS says something else than the manifest: `sha256sum -c` must mean the same as we do."""
    stated = {file.path: file.sha256 for file in manifest.files}
    stated[MANIFEST] = sha256_of(folder / MANIFEST)
    try:
        text = (folder / SUMS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        yield f"{SUMS} is missing"
        return
    found = {line[66:]: line[:64] for line in text.splitlines() if line[64:66] == "  "}
    wrong = sorted(p for p in stated.keys() | found.keys() if stated.get(p) != found.get(p))
    if MANIFEST in wrong:
        yield f"{MANIFEST} was changed: its SHA-256 is not that of {SUMS}"
        wrong.remove(MANIFEST)
    if wrong or len(found) != len(text.splitlines()):
        yield f"{SUMS} does not say the same as {MANIFEST}" + (f" of {one_line(wrong[0])[:200]}" if wrong else "")
