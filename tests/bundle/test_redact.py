"""Secrets go, measurements and line numbers stay."""

import io
import json
from pathlib import Path

import pytest
from support.ours import Bundle
from support.published import published_log

from nlp_bench.bundle.verify import verify
from nlp_bench.redact import MARK, redact, redact_text

SECRET = "s3cr3tV4lue9876543210"  # noqa: S105  # none


@pytest.mark.parametrize(
    "line",
    [
        f"export WANDB_API_KEY={SECRET}",
        f"export MY_TOKEN='{SECRET}'",
        f' "GITHUB_TOKEN": "{SECRET}",',
        f"python train.py --wandb-api-key {SECRET} --lr 1",
        f"python train.py --hf-token={SECRET}",
        f"  wandb_api_key ................................... {SECRET}",
        f'{{"password": "{SECRET}"}}',
        f"git clone https://user:{SECRET}@example.org/x.git",
        f"Authorization: Bearer {SECRET}",
        f"using token hf_{SECRET}",
        f"ghp_{SECRET}{SECRET}",
        "AKIAIOSFODNN7EXAMPLE",
        f"aws_secret_access_key = {SECRET}",
        "-----BEGIN OPENSSH PRIVATE KEY-----\n" + SECRET + "\n-----END OPENSSH PRIVATE KEY-----",
        '{"cmd": "export HF_TOKEN=\\"' + SECRET + '\\""}',
    ],
)
def test_what_looks_like_a_secret_goes(line: str) -> None:
    text, found = redact_text(f"before\n{line}\nafter\n".encode())
    assert SECRET.encode() not in text
    assert b"IOSFODNN7" not in text
    assert MARK in text
    assert text.count(b"\n") == line.count("\n") + 3
    assert {redaction.line for redaction in found} == {2}


@pytest.mark.parametrize(
    "line",
    [
        published_log().rstrip(),
        "tokens per second: 36361.6 | tokens: 20000000 | consumed_tokens=1,024",
        "  tokenizer_type .................. GPT2BPETokenizer",
        '{"tokenizers": "0.23.3", "num_tokens": 5, "HF_TOKEN": "***", "token": null}',
        "TOKENS=4096 TOKENIZERS_PARALLELISM=false use_auth_token=False",
        "--tokens 20000000 --tokenizer-model gpt2 --api-key $API_KEY",
        "https://example.org:8080/path",
        "  wandb_api_key ...................... None",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert redact_text(line.encode()) == (line.encode(), [])


def test_lines_are_counted_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nlp_bench.redact._CHUNK_BYTES", 64)
    lines = [f"line {n}" + (f" HF_TOKEN={SECRET}" if n in {3, 40, 99} else "") for n in range(1, 101)]
    target = io.BytesIO()
    found = redact(io.BytesIO("\n".join(lines).encode()), target)
    assert [redaction.line for redaction in found] == [3, 40, 99]
    assert target.getvalue().count(b"\n") == 99
    assert SECRET.encode() not in target.getvalue()


def test_a_bundle_lists_what_was_blacked_out_and_never_the_secret(bundle: Bundle, our_run: Path) -> None:
    (our_run / "environment.json").write_text(json.dumps({"variables": {"A_PASSWORD": SECRET}}, indent=1))
    with (our_run / "job.out").open("a") as stream:
        stream.write(f"pushing to https://me:{SECRET}@example.org\n")
    made = bundle()
    listed = [(r["file"], r["kind"], r["lines"]) for r in made.manifest.redactions]
    assert ("runs/001/environment.json", "value of a secret's name", [3]) in listed
    assert ("runs/001/job.out", "user and password in a URL", [7]) in listed
    assert not any(SECRET in path.read_text() for path in made.path.rglob("*") if path.is_file())
    assert verify(made.path).is_verified
