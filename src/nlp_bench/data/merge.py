"""Pieces to one PREFIX.bin and PREFIX.idx, in the order of the input."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nlp_bench.data.index_file import FilePart, write_index
from nlp_bench.data.indexed import TOKEN_CODES
from nlp_bench.data.tokenizer import sha256_of

COPY_BYTES = 2**22


def merge(prefixes: Sequence[str], output: str, token_bytes: int) -> dict[str, dict[str, Any]]:
    """Join the datasets `prefixes` to OUTPUT.bin and OUTPUT.idx; return name, bytes and sha256 of both.

    Both are written under temporary names and flushed before either takes its name. Raises OSError.
    """
    data, index = Path(output + ".bin.part"), Path(output + ".idx.part")
    try:
        digest = _join_data(prefixes, data)
        with index.open("wb") as stream:
            write_index(stream, TOKEN_CODES[token_bytes], [FilePart(Path(one + ".idx")) for one in prefixes])
            stream.flush()
            os.fsync(stream.fileno())
        digests = {".bin": digest, ".idx": sha256_of(index)}
        files = {}
        for suffix, path in ((".bin", data), (".idx", index)):
            final = Path(output + suffix)
            path.replace(final)
            files[final.name] = {"bytes": final.stat().st_size, "sha256": digests[suffix]}
        return files
    finally:
        for path in (data, index):
            path.unlink(missing_ok=True)


def _join_data(prefixes: Sequence[str], path: Path) -> str:
    """Write the data of all pieces behind one another; return the SHA-256 of the whole."""
    digest = hashlib.sha256()
    with path.open("wb") as target:
        for prefix in prefixes:
            with Path(prefix + ".bin").open("rb") as source:
                while block := source.read(COPY_BYTES):
                    digest.update(block)
                    target.write(block)
        target.flush()
        os.fsync(target.fileno())
    return digest.hexdigest()
