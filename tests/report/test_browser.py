"""The page in a real browser: what is to be seen in light and dark, on a desk and on a phone, and what it does not do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.browsing import CHROMIUM, Seen, browser, contrast, looked_at, simulated_log

from nlp_bench.cli.main import main

pytest.importorskip("playwright", reason="the browser is driven by the package playwright (extra `test`)")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)"
)
DESK, PHONE = (1280, 900), (390, 844)
VIEWS = [(*DESK, "light"), (*DESK, "dark"), (*PHONE, "light"), (*PHONE, "dark")]


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, number, mean_s in (("a", 60, 5.3), ("b", 30, 4.9), ("c", 30, 6.1)):
        (folder / f"{name}.log").write_text(simulated_log(number, seed=number, mean_s=mean_s))
    (folder / "d.log").write_text("no training here\n")
    common = ["--sequence-length", "2048", "--num-gpus", "384", "--limit", "560"]
    main(["report", str(folder / "a.log"), *common, "--output", str(folder / "one")])
    main(["report", *(str(folder / f"{name}.log") for name in "abcd"), *common, "--output", str(folder / "many")])
    return {"one": folder / "one/report.html", "many": folder / "many/report.html"}


@pytest.fixture(params=VIEWS, ids=lambda view: f"{view[0]}-{view[2]}")
def view(request: pytest.FixtureRequest) -> tuple[int, int, str]:
    found: tuple[int, int, str] = request.param
    return found


def kept(image: Image.Image, tmp_path: Path, *, holds: bool, words: str) -> None:
    """Keep a screenshot only where it is the evidence of a failure."""
    if not holds:
        image.save(tmp_path / "screenshot.png")
        pytest.fail(f"{words}; see {tmp_path / 'screenshot.png'}")


def colour_of(seen: Seen, selector: str, name: str) -> tuple[int, ...]:
    text = seen.page.eval_on_selector(selector, f"(e) => getComputedStyle(e).{name}")
    return tuple(int(part) for part in text[text.index("(") + 1 : -1].split(",")[:3])


def share_of(image: Image.Image, colour: tuple[int, ...], within: int = 0) -> float:
    """Return the part of all pixels with this colour; thin lines are mixed with what lies below them."""
    found = 0
    for count, pixel in image.getcolors(1 << 24) or ():
        is_near = all(abs(one - other) <= within for one, other in zip(pixel, colour, strict=True))
        found += count if is_near else 0
    return found / (image.width * image.height)


@pytest.mark.parametrize("name", ["one", "many"])
def test_it_is_quiet(started: Any, pages: dict[str, Path], view: tuple[int, int, str], name: str) -> None:
    width, height, scheme = view
    with looked_at(started, pages[name], width=width, height=height, scheme=scheme) as seen:
        assert seen.said == []
        assert seen.requests == [pages[name].as_uri()]
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width


def test_plots_and_table_are_seen(
    started: Any, pages: dict[str, Path], view: tuple[int, int, str], tmp_path: Path
) -> None:
    width, height, scheme = view
    with looked_at(started, pages["one"], width=width, height=height, scheme=scheme) as seen:
        figures = seen.page.locator("figure > svg")
        assert figures.count() == 3
        for place in (*figures.all(), seen.page.locator("#runs").locator(".."), seen.page.locator("header")):
            box = place.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            assert box["width"] > 300
            assert box["height"] > 60
        whole = seen.screenshot(full_page=True)
        kept(whole, tmp_path, holds=len(whole.getcolors(1 << 24) or ()) > 100, words="the page is blank")
        band = colour_of(seen, ".throughput .band", "fill")
        plot = Image.open(_shot(seen, ".throughput > svg", tmp_path)).convert("RGB")
        kept(whole, tmp_path, holds=share_of(plot, band) > 0.2, words=f"no shaded window {band} in the plot")
        for key, name in (("throughput", ".l"), ("loss", ".l"), ("step-times", ".l")):
            line = colour_of(seen, f".{key} > svg {name}", "stroke")
            drawn = Image.open(_shot(seen, f".{key} > svg", tmp_path)).convert("RGB")
            kept(whole, tmp_path, holds=share_of(drawn, line, within=40) > 0.001, words=f"no line {line} in {key}")
        (tmp_path / "part.png").unlink()


def _shot(seen: Seen, selector: str, tmp_path: Path) -> Path:
    path = tmp_path / "part.png"
    seen.page.locator(selector).screenshot(path=path)
    return path


def test_light_and_dark_differ(started: Any, pages: dict[str, Path]) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        with looked_at(started, pages["one"], width=1280, height=900, scheme=scheme) as seen:
            grounds.append(colour_of(seen, "body", "backgroundColor"))
    assert contrast(*grounds) > 10


TEXTS = """() => Array.from(document.querySelectorAll('body *')).filter((e) => {
  const own = Array.from(e.childNodes).some((n) => n.nodeType === 3 && n.textContent.trim());
  return own && e.checkVisibility() && !['SCRIPT', 'STYLE', 'TITLE', 'title', 'desc'].includes(e.tagName);
}).map((e) => {
  const style = getComputedStyle(e);
  let ground = e;
  while (ground && getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
  return [e.tagName, e instanceof SVGElement ? style.fill : style.color,
          getComputedStyle(ground || document.body).backgroundColor];
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_the_contrast_of_wcag_aa(started: Any, pages: dict[str, Path], scheme: str) -> None:
    with looked_at(started, pages["many"], width=1280, height=900, scheme=scheme) as seen:
        seen.page.evaluate("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
        found = {tuple(each) for each in seen.page.evaluate(TEXTS)}
    assert len(found) > 15
    poor = {each for each in found if contrast(_rgb(each[1]), _rgb(each[2])) < 4.5}
    assert poor == set()


def _rgb(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text[text.index("(") + 1 : -1].split(",")[:3])


def column(seen: Seen, title: str) -> list[str]:
    index = seen.page.locator("#runs thead th").all_inner_texts()
    number = next(place for place, text in enumerate(index) if text.startswith(title))
    return [row.locator("th, td").nth(number).inner_text() for row in seen.page.locator("#runs tbody tr").all()]


def test_sorting_by_click_and_by_key(started: Any, pages: dict[str, Path]) -> None:
    with looked_at(started, pages["many"], width=1280, height=900, scheme="light") as seen:
        before = column(seen, "time, steady")
        heading = seen.page.locator("#runs thead th", has_text="time, steady")
        assert heading.get_attribute("aria-sort") is None
        heading.locator("button").click()
        rising = column(seen, "time, steady")
        assert heading.get_attribute("aria-sort") == "ascending"
        heading.locator("button").press("Enter")
        falling = column(seen, "time, steady")
        assert heading.get_attribute("aria-sort") == "descending"
        seen.page.locator("#runs thead th", has_text="run").first.locator("button").press("Space")
        assert heading.get_attribute("aria-sort") is None
        assert seen.said == []
    times = sorted(float(text) for text in before if text)
    assert [float(text) for text in rising if text] == times
    assert [float(text) for text in falling if text] == times[::-1]
    assert before != rising
    assert rising[-1] == falling[-1] == ""  # the run without a number stays last


def test_a_link_opens_the_run(started: Any, pages: dict[str, Path]) -> None:
    with looked_at(started, pages["many"], width=390, height=844, scheme="light") as seen:
        assert not seen.page.locator("#r1").is_visible()
        seen.page.locator("#runs a", has_text="b.log").click()
        assert seen.page.locator("#r1").is_visible()


def test_without_script_it_is_whole(started: Any, pages: dict[str, Path]) -> None:
    context = started.new_context(java_script_enabled=False)
    found = context.new_page()
    found.goto(pages["one"].as_uri())
    assert found.locator("#runs tbody tr").count() == 1
    assert found.locator("figure > svg").first.is_visible()
    context.close()


def test_a_script_that_got_in_could_not_run(started: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    hole = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script><a href=\"javascript:document.title='hit'\">x</a>"
    broken = tmp_path / "broken.html"
    broken.write_text(pages["one"].read_text(encoding="utf-8").replace("<h2>", hole + "<h2>", 1), encoding="utf-8")
    with looked_at(started, broken, width=1280, height=900, scheme="light") as seen:
        seen.page.locator("a", has_text="x").first.click()
        assert seen.page.title() != "hit"
        assert any("Content Security Policy" in said for said in seen.said)
        assert [url for url in seen.requests if not url.endswith(("broken.html", "/x"))] == []


def test_paper_shows_the_closed_runs(started: Any, pages: dict[str, Path]) -> None:
    with looked_at(started, pages["many"], width=1280, height=900, scheme="dark") as seen:
        seen.page.emulate_media(media="print")
        assert seen.page.locator("#r0 figure").first.is_visible()
        assert colour_of(seen, "body", "color") == (0, 0, 0)
