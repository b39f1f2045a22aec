"""Logs for the page's tests, and a real browser to look at it."""

import functools
import io
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.megatron_log import line

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NEEDS_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)"),
]


def simulated_log(number: int, *, seed: int, mean_s: float = 5.3, interval: int = 10) -> str:
    """Return a log with a slow start, autocorrelated noise and a slow end, in the form of the published lines."""
    chance, level, text = random.Random(seed), 0.0, ""  # noqa: S311  # no secret
    same = {"lr": 1e-5, "batch": 96, "scale": 4096, "norm": 1, "skipped": 0, "nan": 0}
    for index in range(1, number + 1):
        level = 0.5 * level + chance.gauss(0, 0.03)
        slow = 1.4 if index <= 3 else 1.15 if index > number - number // 10 else 1.0
        elapsed_s = (mean_s + level) * slow
        facts = {"samples": 96 * interval * index, "s": elapsed_s, "loss": 11 * index**-0.1 + chance.gauss(0, 0.02)}
        text += line(interval * index, interval * number, **facts, **same)
    return text


@dataclass
class Seen:
    page: Any  # the page of playwright
    requests: list[str] = field(default_factory=list)  # everything that it asked for, itself too
    said: list[str] = field(default_factory=list)  # messages on its console and errors

    def screenshot(self, **options: Any) -> Image.Image:
        return Image.open(io.BytesIO(self.page.screenshot(**options))).convert("RGB")


@contextmanager
def browser() -> Iterator[Any]:
    """Start a headless Chromium of the system; the library brings none of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # The sandbox needs rights that a container may not give; the page is our own file.
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


@contextmanager
def looked_at(started: Any, path: Path, *, width: int, height: int, scheme: str) -> Iterator[Seen]:
    """Open `path` in a window of this size and colour scheme."""
    context = started.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, locale="en-US")
    seen = Seen(page=context.new_page())
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.on("console", lambda message: seen.said.append(f"{message.type}: {message.text}"))
    seen.page.on("pageerror", lambda error: seen.said.append(str(error)))
    seen.page.goto(path.as_uri(), wait_until="networkidle")
    try:
        yield seen
    finally:
        context.close()


@functools.cache
def contrast(first: tuple[int, ...], second: tuple[int, ...]) -> float:
    """Return the contrast of two colours, 1 to 21 (W3C, WCAG 2.2, relative luminance)."""

    def luminance(colour: tuple[int, ...]) -> float:
        parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
