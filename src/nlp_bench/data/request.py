"""What `nlp-bench data prepare` is asked for, and where its result lies."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nlp_bench.data import inputs
from nlp_bench.data.shards import PIECE_BYTES
from nlp_bench.data.tokenizer import TokenizerChoice
from nlp_bench.data.worker import Reading
from nlp_bench.errors import UsageError

FOLDER_NAME = "corpus"
"""Name of the data in a folder that is given as output."""
MAX_WORKERS = 4096


@dataclass(frozen=True, kw_only=True)
class PrepareRequest:
    """What to prepare, how and where to."""

    inputs: tuple[str, ...]
    """Files, folders and patterns of JSON lines; each file is a shard."""
    output: str
    """Prefix of the result, or a folder (one that exists, or a path that ends in /)."""
    tokenizer: TokenizerChoice
    """The tokenizer and its files."""
    reading: Reading = field(default_factory=Reading)
    """How lines become sequences of tokens."""
    workers: int | None = None
    """Processes that encode; None: one per core that this process may use. They do not change the result."""
    keep_shards: bool = False
    """Keep the finished pieces, so that more input can be added later without encoding again."""
    overwrite: bool = False
    """Replace a result that was made from other input or with other parameters."""
    piece_bytes: int = PIECE_BYTES
    """Text of a piece. It does not change the result."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.workers is not None and not 1 <= self.workers <= MAX_WORKERS:
            raise UsageError(f"workers: {self.workers} is not between 1 and {MAX_WORKERS}")
        if not self.output:
            raise UsageError("output: empty; give a prefix or a folder")
        for suffix in (".bin", ".idx", f"_{self._kind}"):
            if self.output.endswith(suffix):
                raise UsageError(
                    f"output: {self.output} ends in {suffix}, which is added; give {self.output.removesuffix(suffix)}"
                )

    @property
    def _kind(self) -> str:
        key = re.sub(r"[^\w.-]", "_", self.reading.json_key)
        return f"{key}_{'sentence' if self.reading.split_sentences else 'document'}"

    @property
    def stem(self) -> Path:
        """The prefix as it was given, or the one in the folder that was given."""
        path = Path(self.output)
        return path / FOLDER_NAME if self.output.endswith("/") or path.is_dir() else path

    @property
    def prefix(self) -> str:
        """What `--data-path` takes: Megatron-LM's PREFIX_KEY_document, or _sentence."""
        return f"{self.stem}_{self._kind}"

    @property
    def shards(self) -> Path:
        """Folder of the finished pieces."""
        return self.stem.with_name(self.stem.name + ".shards")

    def parameters(self, shards: Sequence[Path]) -> dict[str, Any]:
        """Return what decides the result, as the record has it."""
        found = {"inputs": [inputs.identity(path) for path in shards], **asdict(self.reading)}
        return found | {"tokenizer": self.tokenizer.identity()}
