"""SHA-256 of the files of a bundle and of their lines: written when it is made, compared with the files when it is verified.

`lines/PATH` holds a heading and then a digest per line: the first 8 digits of `sha256sum` over the line with its line
end. They show which line of a changed log differs. Above MAX_DIGESTS lines one digest covers several lines.
"""

import hashlib
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path

from nlp_bench.escape import from_to, one_line
from nlp_bench.evidence.manifest import SUMS, File, Manifest
from nlp_bench.files import sha256_of
from nlp_bench.walk import LINES, MANIFEST

MAX_DIGESTS = 1_000_000
LENGTH = 8
_HEADING = re.compile(r"nlp-bench/lines/1 sha256/8 lines_per_digest=(\d{1,9})")
_MAX_ALIGNED = 2_000  # digests of a stretch that is matched line by line: that takes the square of its length
MAX_NAMED = 20  # changed stretches of one file that are listed one by one
_LONGEST = 400
_MAX_CONVERTED = 2**28  # bytes of a file up to which its line ends are looked at where it was changed


def files_of(folder: Path) -> list[File]:
    """Return the files of a bundle with sizes and hashes, sorted by path."""
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return [File(path=p, size=(folder / p).stat().st_size, sha256=sha256_of(folder / p)) for p in paths]


def sums_text(folder: Path, manifest: Manifest) -> str:
    """Return SHA256SUMS, as `sha256sum -c` reads it."""
    sums = {**{file.path: file.sha256 for file in manifest.files}, MANIFEST: sha256_of(folder / MANIFEST)}
    return "".join(f"{digest}  {path}\n" for path, digest in sorted(sums.items()))


def line_digests(path: Path) -> str:
    """Return the text of `lines/PATH` for the file at `path`."""
    with path.open("rb") as stream:
        num_lines = sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b"")) + 1
    step = -(-num_lines // MAX_DIGESTS)
    return f"nlp-bench/lines/1 sha256/8 lines_per_digest={step}\n" + "".join(f"{d}\n" for d in _digests(path, step))


def _digests(path: Path, step: int) -> Iterator[str]:
    with path.open("rb") as stream:
        while lines := b"".join(islice(stream, step)):
            yield hashlib.sha256(lines).hexdigest()[:LENGTH]


def changes(path: Path, recorded: str) -> list[tuple[str, int, int]] | None:
    """Compare the lines of `path` with the text of its `lines/PATH`; None where that text is malformed.

    Each stretch is `changed`, `inserted` or `removed`, its first line, counted from 1, of the file as it is (for `removed` the line
    before which they were), and how many lines it has (for `removed` how many are gone).
    """
    heading, *before = recorded.split("\n")[: MAX_DIGESTS + 3]
    found = _HEADING.fullmatch(heading)
    if not found or not int(found[1]):
        return None
    step, before = int(found[1]), [digest for digest in before if digest]
    after = list(_digests(path, step))
    head = _same(before, after)
    tail = _same(before[head:][::-1], after[head:][::-1])
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    return [(what, first * step + 1, count * step) for what, first, count in _stretches(old, new, head)]


def _same(one: list[str], other: list[str]) -> int:
    """Return how many digests at the beginning are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, pair in pairs if pair[0] != pair[1]), min(len(one), len(other)))


def _stretches(old: list[str], new: list[str], head: int) -> Iterator[tuple[str, int, int]]:
    if len(old) == len(new):  # as many lines as before: each was changed in its place
        yield from (("changed", head + i, 1) for i, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1])
    elif max(len(old), len(new)) > _MAX_ALIGNED:
        yield "changed", head, len(new)
    else:
        for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            both = min(i2 - i1, j2 - j1)
            if tag != "equal" and both:
                yield "changed", head + j1, both
            if tag != "equal" and j2 - j1 > both:
                yield "inserted", head + j1 + both, j2 - j1 - both
            if tag != "equal" and i2 - i1 > both:
                yield "removed", head + j1 + both, i2 - i1 - both


def faults(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Yield a sentence for each changed, missing and extra file, with its lines where they are known."""
    listed = {file.path: file for file in manifest.files}
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    changed = [p for p in sorted(listed) if p in present and sha256_of(folder / p) != listed[p].sha256]
    for path in changed:
        if _has_other_line_ends(folder / path, listed[path]):
            yield f"{path} was changed: it has other line ends (git with core.autocrlf, a mail, an editor), else it is the listed one; unpack the bundle anew"
            continue
        yield f"{path} was changed: its SHA-256 is not that of {MANIFEST}"
        record = f"{LINES}/{path}"
        if record in listed and record in present and record not in changed:
            yield from _changed_lines(folder, path)
    for path in sorted((set(listed) & present) - set(changed)):
        if (size := (folder / path).stat().st_size) != listed[path].size:
            yield f"{path} has {size} bytes, {MANIFEST} says {listed[path].size}"
    yield from (f"{path} is missing" for path in sorted(set(listed) - present))
    for path in sorted(present - set(listed) - {MANIFEST, SUMS}):
        yield f"{one_line(path)[:200]!r} is not of this bundle: {MANIFEST} does not list it"
    yield from _wrong_sums(folder, manifest)


def _has_other_line_ends(path: Path, listed: File) -> bool:
    if path.stat().st_size > min(2 * listed.size + 1, _MAX_CONVERTED):
        return False
    plain = path.read_bytes().replace(b"\r\n", b"\n")
    return listed.sha256 in {hashlib.sha256(data).hexdigest() for data in (plain, plain.replace(b"\n", b"\r\n"))}


def _changed_lines(folder: Path, path: str) -> Iterator[str]:
    try:
        found = changes(folder / path, (folder / LINES / path).read_text(encoding="ascii")) or []
    except (OSError, ValueError):
        return
    texts = _texts(folder / path, {first for _, first, _ in found[:MAX_NAMED]})
    for what, first, count in found[:MAX_NAMED]:
        was = "was" if count == 1 else "were"
        if what == "removed":
            yield f"{path}: {count} line{'s' * (count > 1)} {was} removed in front of line {first}"
        else:
            yield f"{path} {from_to('line', first, first + count - 1)} {was} {what}; it reads: {texts.get(first, '')}"
    if len(found) > MAX_NAMED:
        yield f"{path}: {len(found) - MAX_NAMED} more stretches of lines are not as they were"


def _texts(path: Path, wanted: set[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    with path.open("rb") as stream:
        for number, text in enumerate(islice(stream, max(wanted, default=0)), start=1):
            if number in wanted:
                line = " ".join(one_line(text[: 4 * _LONGEST].decode(errors="replace")).split())
                found[number] = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
    return found


def _wrong_sums(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Yield where SHA256SUMS differs from the manifest: `sha256sum -c` must give the same verdict as `verify`."""
    try:
        text = (folder / SUMS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        yield f"{SUMS} is missing"
        return
    expected = set(sums_text(folder, manifest).splitlines())
    wrong = {line[66:] for line in expected ^ set(text.splitlines())}
    if MANIFEST in wrong:
        yield f"{MANIFEST} was changed: its SHA-256 is not that of {SUMS}"
    named = sorted(wrong - {"", MANIFEST})
    if named or len(expected) != len(text.splitlines()):
        yield f"{SUMS} does not say the same as {MANIFEST}" + (f" of {one_line(named[0])[:200]}" if named else "")
