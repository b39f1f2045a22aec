"""Blocks of docs/ that show what the program printed: `<!-- mark -->`, the block, `<!-- mark -->` again.

They hold predictions, which move with the planner's constants, so tests compare their words and not their figures. To write
them anew: NLP_BENCH_WRITE_DOCS=1 and the test that names the page.
"""

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def same_words(page: str, mark: str, printed: str) -> bool:
    """Whether a block has the same first words of lines as what is printed now; with NLP_BENCH_WRITE_DOCS it is written first."""
    path = ROOT / "docs" / page
    text = path.read_text(encoding="utf-8")
    before, block, after = text.split(f"<!-- {mark} -->\n")
    if os.environ.get("NLP_BENCH_WRITE_DOCS"):
        block = f"```text\n{printed.strip()}\n```\n"
        path.write_text(f"<!-- {mark} -->\n".join((before, block, after)), encoding="utf-8")
    return _words(block.replace("```text\n", "").replace("```\n", "")) == _words(printed)


def _words(text: str) -> list[str]:
    """Return the beginnings of the lines that begin with a word: headings and names of rows, without figures and wrapped lines."""
    return [found[0] for line in text.splitlines() if (found := re.match(r"[A-Za-z_]+", line))]
