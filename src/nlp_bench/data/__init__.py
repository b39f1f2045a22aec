"""Training data: a corpus, its tokens, and the .bin/.idx pair that megatron-core reads."""

from pathlib import Path

PREFIX = "corpus_text_document"  # name of the pair without .bin and .idx, in the folder that `nlp-bench data` makes


def default_folder(root: Path) -> Path:
    """Return where `nlp-bench data` makes the corpus, and where a run looks for it when nothing else is named."""
    return root / "build" / "data"
