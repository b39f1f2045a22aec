"""Verify a bundle offline: check every hash, derive every number again from the raw logs, hold each log line against itself.

The chain of evidence of each run of ours, a nonce of yours and an SSH signature are checked too: docs/evidence.md.

Nothing is believed and nothing is written outside a private temporary folder.
Exit code 0 when it is verified, 1 when something differs (each difference is named), 2 when it is no bundle or unsafe to open.
"""

import argparse
import re
from pathlib import Path

from nlp_bench.cli.options import add_format, use_one_thread
from nlp_bench.config.values import count

EXAMPLE = """nlp-bench verify evidence.tar.gz
  nlp-bench verify evidence.tar.gz --digest 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"""


def _digest(text: str) -> str:
    found = re.fullmatch(r"(?:sha256:)?([0-9a-fA-F]{64})", text.strip())
    if not found:
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} is no SHA-256: 64 hexadecimal digits, as `bundle` printed them"
        )
    return found[1].lower()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the bundle, the digest that was stated for it, and the bound on its size."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="archive or folder that `nlp-bench bundle` made")
    parser.add_argument("--digest", type=_digest, metavar="SHA256", help="the digest that was stated, say in the bid")
    parser.add_argument("--nonce", metavar="TEXT", help="the text that you gave; every log must begin with it")
    parser.add_argument(
        "--allowed-signers", type=Path, metavar="FILE",
        help="check the signature by ssh-keygen -Y verify; FILE has lines such as: me@example.org ssh-ed25519 AAAA...",
    )  # fmt: skip
    parser.add_argument("--identity", metavar="ID", help="who of FILE must have signed it (default: anybody)")
    parser.add_argument("--signature", type=Path, metavar="FILE", help="the signature (default BUNDLE.sig)")
    parser.add_argument(
        "--max-bytes", type=count, default=4 << 30, metavar="N",
        help="refuse what unpacks to more bytes (default 4Gi)",
    )  # fmt: skip
    add_format(parser, "text", "json")


def run(options: argparse.Namespace) -> int:
    """Verify and print; return 0 or 1."""
    import json

    use_one_thread()
    from nlp_bench.errors import UsageError
    from nlp_bench.evidence.text import verification_text
    from nlp_bench.evidence.verify import Demands, verify

    if not options.bundle.exists():
        raise UsageError(
            f"BUNDLE {options.bundle} does not exist; give the archive or folder that `nlp-bench bundle` made"
        )
    if options.allowed_signers is None and (options.identity or options.signature):
        raise UsageError("--identity and --signature need --allowed-signers FILE: who may sign comes from you")
    if options.nonce is not None and not options.nonce:
        raise UsageError("--nonce: it is empty; give the text that every log must begin with")
    demands = Demands(
        digest=options.digest,
        nonce=options.nonce,
        allowed_signers=options.allowed_signers,
        identity=options.identity,
        signature=options.signature,
    )
    found = verify(options.bundle, demands, max_bytes=options.max_bytes)
    if options.format == "json":
        print(json.dumps(found.to_json(), indent=1, ensure_ascii=False, default=str))
    else:
        print(verification_text(found), end="")
    return 0 if found.is_verified else 1
