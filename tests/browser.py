"""A browser for the tests of pages: opened from disk, and held to silence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.programs import needs_program

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
WIDTH = "document.documentElement.scrollWidth"
CONTRAST = """selector => {
  const numbers = color => color.match(/[\\d.]+/g).map(Number);
  const element = document.querySelector(selector), style = getComputedStyle(element);
  const ink = numbers(element instanceof SVGElement ? style.fill : style.color);
  let paper = [0, 0, 0, 0];
  for (let node = element; node && (paper[3] === 0); node = node.parentElement) {
    const found = numbers(getComputedStyle(node).backgroundColor);
    paper = found.length === 3 ? [...found, 1] : found;
  }
  const light = rgb => rgb.slice(0, 3)
    .map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const [a, b] = [light(ink), light(paper)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}"""
"""How far the text of an element stands out from what is behind it; accessibility guidelines ask for 4.5."""


def needs_browser(what: str) -> tuple[str | None, pytest.MarkDecorator]:
    """The path of a browser, and the mark that skips a test of `what` without one."""
    return needs_program(
        what, "chromium", "chromium-browser", "google-chrome", "chrome", install="apt-get install chromium"
    )


@contextmanager
def started(path: str | None) -> Iterator[Any]:
    """The browser at `path`, running."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as engine:
        running = engine.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


@contextmanager
def visited(
    browser: Any, file: Path, size: dict[str, int] = DESK, *, alone: bool = False, **options: Any
) -> Iterator[Any]:
    """A page opened from disk; it may print nothing and load nothing from elsewhere, or if `alone` nothing at all."""
    page = browser.new_page(viewport=size, **options)
    page.set_default_timeout(120_000)  # for a machine that is busy with other tests
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    yield page
    page.close()
    assert complaints == []
    assert not [url for url in requests if (url != file.as_uri() if alone else url.startswith("http"))]
