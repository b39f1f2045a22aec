"""The style sheet and the script of the pages, and the digest by which a page allows the browser to use them."""

import base64
import hashlib
from importlib.resources import files


def asset(name: str) -> str:
    """Return page.css or page.js."""
    return files("nlp_bench.report.page").joinpath(name).read_text(encoding="utf-8")


def digest(content: str) -> str:
    """Return a hash source of Content Security Policy Level 3 (W3C) for the text of a style or script element."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
