"""Archives that nobody should unpack are refused; nothing is written outside, nothing is left behind."""

import gzip
import io
import json
import lzma
import sys
import tarfile
import tempfile
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.command import Cli
from support.ours import Bundle, bundled
from support.processes import execute
from support.published import write_run

from nlp_bench.errors import UsageError
from nlp_bench.evidence.verify import verify


def tar_of(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.USTAR_FORMAT) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def named(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([named("../outside")], "leads out"),
        ([named("evidence/../../outside")], "leads out"),
        ([named("/absolute")], "absolute"),
        ([named("run/.lock")], "no bundle: none holds a name like 'run/.lock'; unpack it"),
        ([named("../._a")], "leads out"),
        ([named("evidence/line\nfeed")], "no bundle"),
        ([named("evidence/a\\b")], "no bundle"),
        ([named("link", tarfile.SYMTYPE, "..")], "is a link"),
        ([named("link", tarfile.LNKTYPE, "manifest.json")], "is a link"),
        ([named("pipe", tarfile.FIFOTYPE)], "is a link, a device"),
        ([named("disk", tarfile.BLKTYPE)], "is a link, a device"),
        ([named("a"), named("a")], "is there twice"),
        ([named("a"), named("A")], "is there twice"),
        ([named("a"), named("a/b")], "cannot be read"),
    ],
)
def test_unsafe_members_are_refused(tmp_path: Path, members: list[tarfile.TarInfo], message: str) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    (inside / "e.tar").write_bytes(tar_of(*((member, b"") for member in members)))
    with pytest.raises(UsageError, match=message):
        verify(inside / "e.tar")
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")) == ["a", "a/b", "a/b/e.tar"]


@pytest.mark.parametrize("name", ["./._evidence", "evidence/._manifest.json", "evidence/.DS_Store", "__MACOSX/._a"])
def test_what_macos_adds_to_an_archive_is_named(tmp_path: Path, cli: Cli, name: str) -> None:
    (tmp_path / "e.tar").write_bytes(tar_of((named(name), b"")))
    said = cli("verify", tmp_path / "e.tar", code=2).err
    assert f"a macOS archiver added {name!r}" in said
    assert "COPYFILE_DISABLE=1 tar" in said


# The time of packing would be in the names of the tests, which all processes of pytest must agree on.
PACKED = partial(gzip.compress, mtime=0)
CUT = PACKED(tar_of((named("evidence/manifest.json"), bytes(range(256)) * 40)))[:200]
TWICE = PACKED(PACKED(b"tar"))


@pytest.mark.parametrize("content", [
    CUT, TWICE, b"\x1f\x8b broken", b"\x28\xb5\x2f\xfd broken", PACKED(b"tar")[:10] + b"\xff" * 40,
    b"PK\x03\x04" + b"\0" * 30, lzma.compress(b"tar"), PACKED(b"PK\x03\x04"),
])  # fmt: skip
def test_what_cannot_be_read_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    """A checksum that is bad, or an invalid header, reads like forged evidence: the remedy stands beside it."""
    (tmp_path / "e.tar").write_bytes(content)
    with pytest.raises(
        UsageError, match=r"is not a bundle: it cannot be read .* from where it was made, not as text"
    ) as said:
        verify(tmp_path / "e.tar")
    assert content is not CUT or "it is cut; copy it again" in str(said.value)


LARGE = tar_of((named("evidence/zeros"), bytes(2_000_000)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tar_of((named("x" * 120), b""), form=tarfile.PAX_FORMAT), "an extended header names another file"),
        (PACKED(LARGE), "unpacks to more than 1000000 bytes; --max-bytes N allows more"),
        (LARGE[:512], "unpacks to more than 1000000 bytes"),
        (b"", "is not a bundle"),
        (bytes(1024), "is not a bundle"),
        (tar_of((named("evidence/a"), b"")) + b"more", "data after the end of the archive"),
    ],
    ids=["a long name", "a bomb", "a member that says it is too large", "nothing", "zeros", "data behind the end"],
)
def test_an_unsafe_archive_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "e.tar").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        verify(tmp_path / "e.tar", max_bytes=1_000_000)


def test_a_folder_with_a_link_is_refused(folder: Path) -> None:
    (folder / "runs/001/job.out").unlink()
    (folder / "runs/001/job.out").symlink_to("/etc/hostname")
    with pytest.raises(UsageError, match="is a link or a device"):
        verify(folder)


def test_a_folder_above_the_limit_is_refused_before_it_is_read(folder: Path) -> None:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert verify(folder, max_bytes=size).is_verified
    with pytest.raises(UsageError, match=f"more than {size - 1} bytes or .* files; --max-bytes allows more"):
        verify(folder, max_bytes=size - 1)
    with (folder / "runs/001/zeros").open("wb") as stream:
        stream.truncate((4 << 30) - size)  # takes no place on the disk
        assert not verify(folder).is_verified
        stream.truncate((4 << 30) - size + 1)
    with pytest.raises(UsageError, match="--max-bytes allows more"):
        verify(folder)


def test_a_folder_of_too_many_files_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = sum(1 for _ in folder.rglob("*"))
    monkeypatch.setattr("nlp_bench.evidence.archive.MAX_FILES", count)
    assert verify(folder).is_verified
    (folder / "one_more").touch()
    with pytest.raises(UsageError, match=f"bytes or {count} files"):
        verify(folder)


def test_a_cut_archive_is_refused(bundle: Bundle) -> None:
    archive = bundle("e.tar").path
    archive.write_bytes(archive.read_bytes()[:-20_000])
    with pytest.raises(UsageError, match=r"the archive is cut|is not a bundle"):
        verify(archive)


@pytest.mark.parametrize("manifest", ["[]", "[" * 100_000, '{"schema": "nlp-bench/bundle/1"}'])
def test_manifests_that_are_none(tmp_path: Path, manifest: str) -> None:
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(UsageError, match=r"manifest\.json"):
        verify(tmp_path)


RUN = {"path": "a", "kind": "log", "name": "", "numbers": []}
FILE = {"path": "a", "size": 1, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"options": {"tokens": -1}}, "options.tokens"),
        ({"options": {"tokens": True}}, "options.tokens"),
        ({"options": {"tokens": 10**19}}, "options.tokens"),
        ({"options": {"tokens": None}}, "options.tokens"),
        ({"options": {"limit_s": 0}}, "options.limit_s"),
        ({"options": {"num_gpus": 1.5}}, "options.num_gpus"),
        ({"options": {"rules": "../rules.toml"}}, "options.rules is '../rules.toml', expected a plain relative path"),
        ({"options": {"colour": 1}}, "TypeError"),
        ({"runs": []}, "runs must be a list"),
        ({"runs": [RUN | {"path": "../.."}]}, "runs must be a list"),
        ({"runs": [RUN | {"kind": "folder"}]}, "runs must be a list"),
        ({"runs": [RUN | {"kind": ["log"]}]}, "runs must be a list"),
        ({"runs": [RUN | {"name": 1}]}, "runs must be a list"),
        ({"runs": [RUN | {"numbers": 5}]}, "runs must be a list"),
        ({"files": [FILE | {"path": "/a"}]}, "unsafe path"),
        ({"files": [FILE | {"size": "1"}]}, "size or sha256 of a"),
        ({"files": [FILE | {"sha256": "x" * 64}]}, "size or sha256 of a"),
        ({"files": [FILE, FILE]}, "listed twice"),
        ({"files": [FILE | {"path": "manifest.json"}]}, "or is the manifest itself"),
        ({"files": [FILE | {"path": "SHA256SUMS"}]}, "or is the manifest itself"),
        ({"schema": "nlp-bench/bundle/2"}, "install a newer nlp-bench"),
        ({"schema": "nlp-bench/run/1"}, "expected 'nlp-bench/bundle/1'$"),
    ],
)
def test_fields_of_manifests_that_are_none(tmp_path: Path, change: dict[str, object], said: str) -> None:
    whole = {"schema": "nlp-bench/bundle/1", "nlp_bench": {}, "options": {"tokens": 1, "limit_s": 0.5, "rules": "jupiter-nlp"}, "runs": [RUN],
             "redactions": [], "remarks": [], "files": [FILE]}  # fmt: skip
    (tmp_path / "manifest.json").write_text(json.dumps(whole))
    assert not verify(tmp_path).is_verified  # readable, though it holds nothing
    (tmp_path / "manifest.json").write_text(json.dumps(whole | change))
    with pytest.raises(UsageError, match=said):
        verify(tmp_path)


def test_a_folder_of_bundles_names_them(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first/manifest.json").touch()
    (tmp_path / "second.tar.gz").touch()
    with pytest.raises(UsageError, match=r"no manifest.json; verify one of those in it: first, second.tar.gz$"):
        verify(tmp_path)


def test_a_manifest_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "manifest.json").open("wb") as stream:
        stream.truncate((64 << 20) + 1)
    with pytest.raises(UsageError, match="not the manifest of a bundle: it is larger than 64 MiB"):
        verify(tmp_path)


def test_extended_headers_that_name_nothing_are_left_out(folder: Path, tmp_path: Path) -> None:
    """As BSD tar writes them for times."""
    with tarfile.open(tmp_path / "bsd.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            member = tar.gettarinfo(path, f"./evidence/{path.relative_to(folder)}")
            member.pax_headers = {"LIBARCHIVE.creationtime": "1.5"}
            with path.open("rb") if path.is_file() else io.BytesIO() as stream:
                tar.addfile(member, stream)
    assert verify(tmp_path / "bsd.tar").is_verified
    large = named("evidence/a")
    large.pax_headers = {"comment": "x" * 70_000}
    (tmp_path / "large.tar").write_bytes(tar_of((large, b""), form=tarfile.PAX_FORMAT))
    with pytest.raises(UsageError, match="extended headers above 64 KiB"):
        verify(tmp_path / "large.tar")


@pytest.mark.slow
def test_a_python_without_the_filter_of_tarfile_unpacks_too(bundle: Bundle) -> None:
    code = (
        "import sys, tarfile; vars(tarfile).pop('data_filter', None); real = tarfile.TarFile.extract\n"
        "def extract(tar, member, path='', set_attrs=True, *, numeric_owner=False):\n"
        "    return real(tar, member, path, set_attrs=set_attrs, numeric_owner=numeric_owner)\n"
        "tarfile.TarFile.extract = extract\n"
        "from nlp_bench.cli.main import main; sys.exit(main(['verify', sys.argv[1]]))"
    )
    done = execute(sys.executable, "-c", code, str(bundle("e.tar").path))
    assert (done.returncode, "verified" in done.stdout.lower()) == (0, True), done.stdout + done.stderr


def test_an_archive_of_too_many_files_is_refused(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bundle("e.tar").path
    monkeypatch.setattr("nlp_bench.evidence.archive.MAX_FILES", 3)
    with pytest.raises(UsageError, match="unsafe archive: more than 3 files"):
        verify(path)


def test_an_archive_within_the_limit_to_the_byte(bundle: Bundle) -> None:
    path = bundle("e.tar").path
    size = path.stat().st_size
    assert verify(path, max_bytes=size + 1).is_verified
    with pytest.raises(UsageError, match="unpacks to more than"):
        verify(path, max_bytes=size - 1)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("fuzz")
    return bundled(folder / "e.tar", write_run(folder / "run")).path.read_bytes()


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_mutated_bundles_raise_nothing_else_and_write_nowhere(archive: bytes, data: st.DataObject) -> None:
    """Bytes are changed anywhere, or in the text of a record with all other bytes as they were."""
    content = bytearray(archive)
    words = (b"nlp-bench/bundle/1", b"nlp-bench/run/1", b"nlp-bench/outcome/1", b"[default3]", b"ustar")
    marks = map(content.find, words)
    begin = data.draw(st.sampled_from([0, *marks]))
    for _ in range(data.draw(st.integers(1, 6))):
        place = min(begin + data.draw(st.integers(0, 3000)), len(content) - 1)
        content[place] = data.draw(st.sampled_from([0, 10, 34, 45, 46, 47, 57, 91, 92, 123, 125, 200, 255]))
    with tempfile.TemporaryDirectory() as outside, mock.patch("tempfile.tempdir", outside):
        path = Path(outside) / "e.tar"
        path.write_bytes(content)
        try:
            found = verify(path, max_bytes=1 << 24)
            assert found.is_verified is (not (found.faults or found.differences or found.contradictions))
        except UsageError:
            pass  # no bundle, or unsafe: nothing else may be raised
        assert sorted(path.name for path in Path(outside).iterdir()) == ["e.tar"]
