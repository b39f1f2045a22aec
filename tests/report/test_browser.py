"""The page in a real browser: what is to be seen in light and dark, on a desk and on a phone, and what it does not do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.browsing import NEEDS_BROWSER, Seen, browser, contrast, looked_at, simulated_log

from nlp_bench.cli.main import main

pytest.importorskip("playwright", reason="the browser is driven by the package playwright (extra `test`)")
pytestmark = NEEDS_BROWSER
DESK, PHONE = (1280, 900), (390, 844)
VIEWS = [(*DESK, "light"), (*DESK, "dark"), (*PHONE, "light"), (*PHONE, "dark")]
in_each_view = pytest.mark.parametrize(("width", "height", "scheme"), VIEWS)


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
    far = folder / ("a_folder_with_a_long_name" * 4)
    far.mkdir()
    lots = [str(far / f"{'abcd'[number % 4]}{number:02d}.log") for number in range(18)]
    for name in lots:
        Path(name).write_bytes((folder / f"{Path(name).name[0]}.log").read_bytes())
    main(["report", *lots, *common, "--output", str(folder / "lots")])
    return {name: folder / name / "report.html" for name in ("one", "many", "lots")}


def kept(image: Image.Image, tmp_path: Path, *, holds: bool, words: str) -> None:
    """Keep a screenshot only where it is the evidence of a failure."""
    if not holds:
        image.save(tmp_path / "screenshot.png")
        pytest.fail(f"{words}; see {tmp_path / 'screenshot.png'}")


def rgb(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text[text.index("(") + 1 : -1].split(",")[:3])


def colour_of(seen: Seen, selector: str, name: str) -> tuple[int, ...]:
    return rgb(seen.page.eval_on_selector(selector, f"(e) => getComputedStyle(e).{name}"))


def share_of(image: Image.Image, colour: tuple[int, ...], within: int = 0) -> float:
    """Return the part of all pixels with this colour; thin lines are mixed with what lies below them."""
    found = 0
    for count, pixel in image.getcolors(1 << 24) or ():
        is_near = all(abs(one - other) <= within for one, other in zip(pixel, colour, strict=True))
        found += count if is_near else 0
    return found / (image.width * image.height)


@in_each_view
@pytest.mark.parametrize("name", ["one", "many", "lots"])
def test_it_is_quiet(started: Any, pages: dict[str, Path], width: int, height: int, scheme: str, name: str) -> None:
    with looked_at(started, pages[name], width=width, height=height, scheme=scheme) as seen:
        assert seen.said == []
        assert seen.requests == [pages[name].as_uri()]
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width


@in_each_view
def test_plots_and_table_are_seen(
    started: Any, pages: dict[str, Path], width: int, height: int, scheme: str, tmp_path: Path
) -> None:
    with looked_at(started, pages["one"], width=width, height=height, scheme=scheme) as seen:
        figures = seen.page.locator("figure > img")
        assert figures.count() == 3
        for place in (*figures.all(), seen.page.locator("#runs").locator(".."), seen.page.locator("header")):
            box = place.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            assert box["width"] > 300
            assert box["height"] > 60
        whole = seen.screenshot(full_page=True)
        kept(whole, tmp_path, holds=len(whole.getcolors(1 << 24) or ()) > 100, words="the page is blank")
        for key, colour in (("throughput", _BAND), ("throughput", _LINE), ("loss", _LINE), ("step-times", _LINE)):
            expected = colour if scheme == "light" else _in_the_dark(colour)
            seen.page.locator(f".{key} > img").screenshot(path=tmp_path / "part.png")
            drawn = Image.open(tmp_path / "part.png").convert("RGB")
            holds = share_of(drawn, expected, within=40) > (0.2 if colour == _BAND else 0.001)
            kept(whole, tmp_path, holds=holds, words=f"nothing of {expected} in {key}")
        (tmp_path / "part.png").unlink()


_LINE, _BAND = (0, 114, 178), (240, 240, 240)  # of the first run, and of its steady window


def _in_the_dark(colour: tuple[int, ...]) -> tuple[int, ...]:
    """Return what the page's filter makes of a colour: `invert(.89)`, then `hue-rotate(180deg)` (Filter Effects Module Level 1, W3C)."""
    turned = [0.89 * (255 - value) + 0.11 * value for value in colour]
    luminance = 0.213 * turned[0] + 0.715 * turned[1] + 0.072 * turned[2]
    return tuple(round(min(max(2 * luminance - value, 0), 255)) for value in turned)


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
    poor = {each for each in found if contrast(rgb(each[1]), rgb(each[2])) < 4.5}
    assert poor == set()


CELLS = """(title) => {
  const headings = Array.from(document.querySelectorAll('#runs thead th'));
  const number = headings.findIndex((heading) => heading.innerText.startsWith(title));
  return Array.from(document.querySelectorAll('#runs tbody tr'), (row) => {
    let place = number;
    const cell = Array.from(row.cells).find((each) => (place -= each.colSpan) < 0);
    return cell.colSpan > 1 ? '' : cell.innerText;
  });
}"""


def column(seen: Seen, title: str) -> list[str]:
    """Return the cells of a column as they stand; a reason in the place of a number is empty."""
    found: list[str] = seen.page.evaluate(CELLS, title)
    return found


def names(seen: Seen) -> list[str]:
    found: list[str] = seen.page.locator("#runs tbody tr[data-run] th").all_inner_texts()
    return found


def test_filtering_and_grouping(started: Any, pages: dict[str, Path]) -> None:
    with looked_at(started, pages["many"], width=1280, height=900, scheme="light") as seen:
        page, shown = seen.page, seen.page.locator("#shown")
        everything = names(seen)
        assert everything == ["a.log", "b.log", "c.log", "d.log"]  # without the folder that they share
        refused = page.locator("#counts button", has_text="REFUSED")
        assert refused.inner_text().split() == ["REFUSED", "1"]
        refused.press("Enter")
        assert refused.get_attribute("aria-pressed") == "true"
        assert (names(seen), shown.inner_text()) == (["d.log"], "1 of 4 runs")
        assert page.locator("details:visible").count() == 1  # what is said of each run below follows
        page.locator("#counts button", has_text="VALID").click()
        assert names(seen) == everything  # two outcomes
        page.locator("#reset").click()
        assert refused.get_attribute("aria-pressed") == "false"
        page.locator("#find").fill("B.log meg")
        assert names(seen) == ["b.log"]
        page.locator("#find").fill("")
        page.locator("#dialect").select_option("megatron-lm")
        assert names(seen) == everything[:3]
        page.locator("#dialect").select_option("")
        page.locator("#group").select_option("outcome")
        page.locator("#runs thead th", has_text="time, steady").locator("button").click()
        groups = page.locator("#runs tr.group").all_inner_texts()
        assert groups == ["outcome REFUSED: 1", "outcome VALID: 3"]
        assert names(seen)[0] == "d.log"
        times = [float(text) for text in column(seen, "time, steady") if text]
        assert times == sorted(times)
        assert seen.said == []


def test_a_number_of_many_is_seen_without_scrolling(started: Any, pages: dict[str, Path]) -> None:
    with looked_at(started, pages["many"], width=1280, height=900, scheme="light") as seen:
        for title in ("run", "outcome", "limit", "time, steady", "95 % interval", "rate, steady"):
            box = seen.page.locator("#runs thead th", has_text=title).first.bounding_box()
            assert box["x"] + box["width"] <= 1280
        reason = seen.page.locator("#runs tbody tr", has_text="d.log").locator("td.reasons").bounding_box()
        assert reason["x"] < seen.page.locator("#runs thead th", has_text="rate, steady").first.bounding_box()["x"]
        run = seen.page.locator("#runs tbody th").first
        place = run.bounding_box()["x"]
        seen.page.evaluate("document.querySelector('.scroll').scrollLeft = 600")
        assert run.bounding_box()["x"] == place


SIZES = """() => Array.from(document.querySelectorAll('body *')).filter((e) => {
  const own = Array.from(e.childNodes).some((n) => n.nodeType === 3 && n.textContent.trim());
  return own && e.checkVisibility() && !(e instanceof SVGElement);
}).map((e) => parseFloat(getComputedStyle(e).fontSize) * 0.75)"""


@pytest.mark.parametrize("name", ["one", "many", "lots"])
def test_paper_is_readable(started: Any, pages: dict[str, Path], name: str) -> None:
    # A4 landscape without its margins: 273 mm at 96 pixels an inch.
    with looked_at(started, pages[name], width=1032, height=703, scheme="dark") as seen:
        seen.page.emulate_media(media="print")
        assert colour_of(seen, "body", "color") == (0, 0, 0)
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 1032
        assert seen.page.evaluate("document.getElementById('runs').scrollWidth") <= 1032
        assert min(seen.page.evaluate(SIZES)) >= 8
        assert seen.page.locator("details.all").is_visible() is False
        assert seen.page.locator("#r0 section:last-of-type table").is_visible() == (name == "one")
        assert seen.page.locator("#r0 figure").first.is_visible() == (name != "lots")
        assert seen.page.locator(".paper").count() == (name == "lots")
        assert seen.page.locator("#controls").is_visible() is False


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
    assert found.locator("figure > img").first.is_visible()
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
