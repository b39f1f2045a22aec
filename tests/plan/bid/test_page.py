"""The bid sheet in a real browser: it asks for nothing, is read in light and dark, and prints on one page."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browsing import NEEDS_BROWSER, browser, contrast, looked_at

from nlp_bench.cli.plan.bid import sheet
from nlp_bench.plan.bid import Files, bid
from nlp_bench.plan.ranking import Answer

pytest.importorskip("playwright", reason="the browser is driven by the package playwright (extra `test`)")
pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with browser() as found:
        yield found


def colour(page: Any, selector: str, name: str) -> tuple[int, ...]:
    text = page.eval_on_selector(selector, f"(e) => getComputedStyle(e).{name}")
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_it_is_quiet_and_readable(
    started: Any, answered: Answer, points: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    path = tmp_path / "bid.html"
    path.write_text(sheet(bid(answered, files=Files(points=points)), "html"), encoding="utf-8")
    with looked_at(started, path, width=width, height=900, scheme=scheme) as seen:
        assert seen.said == []
        assert seen.requests == [path.as_uri()]
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        paper = colour(seen.page, ".verdict", "backgroundColor")
        assert (sum(paper) < 300) is (scheme == "dark")
        assert contrast(colour(seen.page, ".verdict", "color"), paper) > 7
        printed = seen.page.pdf(prefer_css_page_size=True)
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
