"""The signature of a bundle: OpenSSH signs manifest.json, whose hashes cover every file, and OpenSSH checks it; no key is handled here.

By hand, for an archive: tar -xOf NAME evidence/manifest.json | ssh-keygen -Y verify -f FILE -I ID -n nlp-bench -s NAME.sig
"""

import codecs
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from nlp_bench.errors import NlpBenchError, UsageError
from nlp_bench.escape import one_line
from nlp_bench.files import real
from nlp_bench.immutable import immutable

NAMESPACE = "nlp-bench"  # a signature for another purpose is none for a bundle (ssh-keygen(1), -n)
CHECK_S = 60
_PROGRAM = "ssh-keygen"
_NOT_GOOD = 255  # exit status of ssh-keygen where it has looked; 1 where it does not know the option
_HEAD = b"-----BEGIN SSH SIGNATURE-----\n"


@immutable
class Signature:
    """The result of checking a signature."""

    path: str
    is_good: bool  # whether a signer of the list has signed this manifest
    identity: str | None = None  # the signer, by the list of signers
    text: str


def path_of(bundle: Path) -> Path:
    """Return the path of a bundle's signature: next to it, because an extra file inside would be a difference."""
    named = real(bundle) if bundle.name in {"", ".."} else bundle  # `verify .` in an unpacked bundle
    return named.with_name(f"{named.name}.sig")


def sign(manifest: Path, key: Path) -> bytes:
    """Return the signature of `manifest` by the private key in the file `key`, or by the agent for a public one. Raises UsageError without that file, NlpBenchError where it fails."""
    if not os.path.isfile(key):  # noqa: PTH113  # false, too, where it cannot be looked at
        raise UsageError(
            f"--sign {key}: there is no such file; name an SSH key, or make one: ssh-keygen -t ed25519 -f {key}"
        )
    with manifest.open("rb") as stream:
        done = subprocess.run(
            [_program("--sign"), "-Y", "sign", "-f", str(key.absolute()), "-n", NAMESPACE],
            stdin=stream, capture_output=True, check=False,
        )  # fmt: skip
    if done.returncode or not done.stdout:
        said = _last(done.stderr, 3)  # that a key's file is open to others stands before the last line
        raise NlpBenchError(f"--sign {key}: ssh-keygen made no signature ({said}); no bundle was written")
    return done.stdout


def check(manifest: Path, signature: Path, allowed_signers: Path, identity: str | None) -> Signature:
    """Check that `identity` (None: anybody) of the file `allowed_signers` (ssh-keygen(1)) has signed `manifest`. Raises UsageError where the list or ssh-keygen is missing, or that is too old."""
    program = _program("--allowed-signers")
    if not allowed_signers.is_file():
        raise UsageError(
            f"--allowed-signers {allowed_signers}: there is no such file; it holds lines such as: me@example.org ssh-ed25519 AAAA..."
        )
    _refuse_list(allowed_signers)
    path = str(signature)
    if not signature.is_file():
        return Signature(path=path, is_good=False, text="there is no such file; name it with --signature FILE")
    if not signature.read_bytes().startswith(_HEAD):
        text = f"it is not as ssh-keygen makes it; where a mail or an editor changed its line ends: sed -i 's/\\r$//' {shlex.quote(path)}"
        return Signature(path=path, is_good=False, text=text)
    files = ["-s", str(signature.absolute()), "-f", str(allowed_signers.absolute())]
    names, text = [identity] if identity else [], ""
    if not names:  # by the list; none where the key is not in it, or not for this day
        done = _ssh_keygen([program, "-Y", "find-principals", *files], b"")
        lines = done.stdout.decode(errors="replace").splitlines() if done.returncode == 0 else []
        names = [name for line in lines for name in line.split(",") if name]
        why = done.stderr.replace(b"No principal matched.", b"").strip()
        text = _last(why, 3) if why else "nobody of the list of allowed signers has made it"
    for name in names:
        with manifest.open("rb") as stream:
            done = _ssh_keygen([program, "-Y", "verify", "-n", NAMESPACE, "-I", name, *files], stream.read())
        if done.returncode == 0:
            return Signature(path=path, is_good=True, identity=name, text=_last(done.stdout))
        text = _last(done.stderr or done.stdout, 3)
    return Signature(path=path, is_good=False, identity=identity, text=text)


def _refuse_list(path: Path) -> None:
    """Refuse a list of signers that ssh-keygen would not find anybody in: the signature would be called not good for it."""
    listed = path.read_bytes()
    if listed.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UsageError(
            f"--allowed-signers {path}: it begins with a byte order mark, which belongs to the first name for ssh-keygen; save it as "
            "UTF-8 without one"
        )
    for number, line in enumerate(listed.splitlines(), 1):
        if re.match(rb"(sk-)?(ssh|ecdsa)-\S+\s+AAAA", line):
            raise UsageError(
                f"--allowed-signers {path}: line {number} begins with the key; write before it who may sign: me@example.org ssh-ed25519 AAAA..."
            )


def _ssh_keygen(command: list[str], content: bytes) -> "subprocess.CompletedProcess[bytes]":
    try:
        done = subprocess.run(command, input=content, capture_output=True, check=False, timeout=CHECK_S)
    except subprocess.TimeoutExpired as error:
        raise NlpBenchError(f"ssh-keygen did not answer within {CHECK_S} s: {' '.join(command)}") from error
    if done.returncode not in {0, _NOT_GOOD}:
        said = one_line(done.stderr.decode(errors="replace").partition("\n")[0])
        raise UsageError(
            f"--allowed-signers: {command[0]} cannot check a signature ({said}; exit status {done.returncode}): it is too old or not whole; "
            "install OpenSSH's client (8.2 or newer), or leave the option out"
        )
    return done


def _program(option: str) -> str:
    found = shutil.which(_PROGRAM)
    if found is None:
        raise UsageError(
            f"{option}: ssh-keygen is not here; install OpenSSH's client (8.2 or newer), or leave the option out"
        )
    return found


def _last(output: bytes, number: int = 1) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return one_line(" ".join(lines[-number:]))[:300] if lines else "it says nothing"
