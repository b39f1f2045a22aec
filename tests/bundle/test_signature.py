"""Signatures by the real ssh-keygen: who signed what, and what is said where nobody did."""

import subprocess
from pathlib import Path

import pytest
from support.command import Cli
from support.ours import Bundle

from nlp_bench.cli.main import main
from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.evidence.verify import Demands, verify

ME, OTHER = "me@example.org", "other@example.org"


def new_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "no name", "-f", str(path)], check=True)
    return path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return new_key(tmp_path / "a key")


@pytest.fixture
def signers(tmp_path: Path, key: Path) -> Path:
    """Two who may sign; the key is that of the first."""
    path = tmp_path / "allowed signers"
    keys = {ME: key, OTHER: new_key(tmp_path / "other")}
    words = {who: Path(f"{at}.pub").read_text().split() for who, at in keys.items()}
    path.write_text("".join(f"{who} {kind} {code}\n" for who, (kind, code, *_) in words.items()))
    return path


@pytest.mark.parametrize("name", ["evidence.tar.gz", "evidence"])
def test_a_signature_is_checked(our_run: Path, tmp_path: Path, key: Path, signers: Path, name: str, cli: Cli) -> None:
    output = tmp_path / name
    assert f"signature  {output}.sig" in cli("bundle", our_run, "--output", output, "--sign", key).out
    words = ["verify", str(output), "--allowed-signers", str(signers)]
    assert f'signature  good: Good "nlp-bench" signature for {ME} with ED25519 key SHA256:' in cli(*words).out
    assert main([*words, "--identity", ME]) == 0
    assert "signature  NOT GOOD: " in cli(*words, "--identity", OTHER, code=1).out
    (tmp_path / f"{name}.sig").rename(tmp_path / "elsewhere")
    assert "there is no such file; name it with --signature FILE" in cli(*words, code=1).out
    assert main([*words, "--signature", str(tmp_path / "elsewhere")]) == 0


def test_a_signature_by_hand_is_the_same(bundle: Bundle, key: Path, signers: Path) -> None:
    made = bundle("evidence.tar")
    by_hand = (
        f"tar -xOf {made.path} evidence/manifest.json | ssh-keygen -Y sign -f '{key}' -n nlp-bench > {made.path}.sig && "
        f"tar -xOf {made.path} evidence/manifest.json | ssh-keygen -Y verify -f '{signers}' -I {ME} -n nlp-bench -s {made.path}.sig"
    )
    subprocess.run(["bash", "-c", by_hand], check=True, capture_output=True)
    found = verify(made.path, Demands(allowed_signers=signers)).signature
    assert (found.is_good, found.identity) == (True, ME)
    assert verify(made.path).signature is None
    assert any("was not checked; give --allowed-signers FILE" in remark for remark in verify(made.path).remarks)


@pytest.mark.slow
def test_another_key_bundle_or_purpose_is_not_good(bundle: Bundle, tmp_path: Path, key: Path, signers: Path) -> None:
    stranger = new_key(tmp_path / "stranger")
    made = bundle("a.tar", key=stranger)
    found = verify(made.path, Demands(allowed_signers=signers))
    assert not found.is_verified
    assert "nobody of the list of allowed signers has made it" in found.signature.text
    good = bundle("b.tar", key=key)
    other = bundle("c.tar", tokens=10_000_000)
    assert good.signature is not None
    demands = Demands(allowed_signers=signers, signature=good.signature)
    assert verify(good.path, demands).is_verified
    assert not verify(other.path, demands).is_verified
    letter = (
        f"tar -xOf {other.path} evidence/manifest.json | ssh-keygen -Y sign -f '{key}' -n letter > {other.path}.sig"
    )
    subprocess.run(["bash", "-c", letter], check=True, capture_output=True)
    assert not verify(other.path, Demands(allowed_signers=signers)).is_verified


def test_a_list_or_a_signature_that_an_editor_changed_is_not_laid_to_the_signer(
    bundle: Bundle, tmp_path: Path, key: Path, signers: Path
) -> None:
    made = bundle("a.tar", key=key)
    for content, said in (
        (b"\xef\xbb\xbf" + signers.read_bytes(), "begins with a byte order mark"),
        (key.with_name(f"{key.name}.pub").read_bytes(), "line 1 begins with the key; write before it who may sign"),
    ):
        (tmp_path / "list").write_bytes(content)
        with pytest.raises(UsageError, match=said):
            verify(made.path, Demands(allowed_signers=tmp_path / "list"))
    mailed = tmp_path / "mailed.sig"
    mailed.write_bytes((tmp_path / "a.tar.sig").read_bytes().replace(b"\n", b"\r\n"))
    found = verify(made.path, Demands(allowed_signers=signers, signature=mailed)).signature
    assert "changed its line ends" in found.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ('namespaces="git"', 'key is not permitted for use in signature namespace "nlp-bench"'),
        ('valid-before="20200101"', "key has expired: verify time "),
    ],
)
@pytest.mark.parametrize("identity", [(), ("--identity", ME)])
def test_why_a_key_of_the_list_does_not_count_is_said(
    bundle: Bundle, key: Path, signers: Path, options: str, said: str, identity: tuple[str, ...], cli: Cli
) -> None:
    made = bundle("a.tar", key=key)
    signers.write_text(signers.read_text().replace(f"{ME} ", f"{ME} {options} "))
    found = cli("verify", made.path, "--allowed-signers", signers, *identity, code=1).out
    assert f"a.tar.sig: {signers}:1: {said}" in found


def test_an_ssh_keygen_that_is_too_old_is_not_laid_to_the_bundle(
    bundle: Bundle, tmp_path: Path, key: Path, signers: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, old = bundle("a.tar", key=key), tmp_path / "old/ssh-keygen"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'unknown option -- Y' >&2\necho 'usage: ssh-keygen [-q]' >&2\nexit 1\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(old.parent), prepend=":")
    for identity in ((), ("--identity", ME)):
        found = cli("verify", made.path, "--allowed-signers", signers, *identity, code=2)
        assert f"{old} cannot check a signature (unknown option -- Y; exit status 1): it is too old" in found.err


def test_a_key_that_others_may_read_is_named_with_the_reason(bundle: Bundle, key: Path) -> None:
    key.chmod(0o644)
    with pytest.raises(NlpBenchError, match="NOT accessible by others"):
        bundle("a.tar", key=key)


def test_what_is_missing_is_said(bundle: Bundle, tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, output = bundle("evidence.tar"), tmp_path / "signed.tar"

    def sign(with_key: Path, *, force: bool = False) -> None:
        bundle(output.name, key=with_key, force=force)

    with pytest.raises(UsageError, match="there is no such file; name an SSH key"):
        sign(tmp_path / "nothing")
    (tmp_path / "no key").write_text("hello\n")
    with pytest.raises(NlpBenchError, match="ssh-keygen made no signature"):
        sign(tmp_path / "no key")
    with pytest.raises(UsageError, match=r"--allowed-signers .*: there is no such file"):
        verify(made.path, Demands(allowed_signers=tmp_path / "nothing"))
    assert not output.exists()
    sign(key)
    output.unlink()
    with pytest.raises(UsageError, match=r"--sign: .*signed\.tar\.sig exists"):
        sign(key)
    sign(key, force=True)
    assert main(["verify", str(made.path), "--identity", ME]) == 2
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="--sign: ssh-keygen is not here; install OpenSSH"):
        sign(key, force=True)
    with pytest.raises(UsageError, match="--allowed-signers: ssh-keygen is not here"):
        verify(made.path, Demands(allowed_signers=key))
