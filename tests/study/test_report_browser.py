"""The page as a person meets it: from disk, in a browser, on a desk and on a phone, in the light and in the dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.browser import CONTRAST, DESK, PHONE, WIDTH, needs_browser, started, visited
from tustin.study import Study
from tustin.study.report import write_report

from .studies import done, failed, plan, study, write
from .test_report import HOSTILE, STUDIES

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSER, pytestmark = needs_browser("the report in a browser")

Open = Callable[..., AbstractContextManager[Any]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started(BROWSER) as running:
        yield running


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Open:
    """Open the report of a study, and hold the page to silence: no message, no request but for itself."""

    @contextmanager
    def open_report(of: Study, size: dict[str, int] = DESK) -> Iterator[Any]:
        report = write_report(write(tmp_path / "study", of))[0]
        with visited(browser, report, size, alone=True) as page:
            yield page

    return open_report


def test_tables_and_plots_are_there(visit: Open, tmp_path: Path) -> None:
    with visit(STUDIES["as in the paper"]) as page:
        for table in ("results", "significance", "times", "paper"):
            assert page.locator(f"table#{table} tbody tr").count() >= 5
        for plot in ("gains", "scatter", "curves"):
            assert page.locator(f"#plot-{plot} .scatterlayer .trace").count() >= 5
        assert page.locator("#significance .verdict.above").count() == 2
        assert page.locator("h1").inner_text() == "Six discretizations on cifar100"
        picture = tmp_path / "report.png"
        page.screenshot(path=picture, full_page=True)
        assert picture.stat().st_size > 50_000


@pytest.mark.parametrize("name", ["as in the paper", "interrupted", "nothing yet"])
def test_no_page_is_wider_than_a_phone(visit: Open, name: str, tmp_path: Path) -> None:
    with visit(STUDIES[name], PHONE) as page:
        page.evaluate(_OPEN_DETAILS)
        assert page.evaluate(WIDTH) <= PHONE["width"]
        assert page.locator("table#results").is_visible()
        page.screenshot(path=tmp_path / "phone.png", full_page=True)


def test_on_a_phone_no_button_covers_a_plot_and_a_wide_table_says_that_there_is_more(visit: Open) -> None:
    with visit(STUDIES["as in the paper"], PHONE) as page:
        page.locator("#plot-curves .scatterlayer .trace").first.wait_for(state="attached")
        assert page.locator(".modebar-container").count() > 0
        assert not any(bar.is_visible() for bar in page.locator(".modebar-container").all())
        wide = page.locator(".scroll", has=page.locator("#significance"))
        hint = page.locator(".scroll:has(#significance) + .hint")
        hint.wait_for(state="visible")
        wide.evaluate("part => part.scrollTo(part.scrollWidth, 0)")
        hint.wait_for(state="hidden")


def test_on_a_desk_no_hint_stands_below_a_table_that_fits(visit: Open) -> None:
    with visit(STUDIES["interrupted"]) as page:
        assert page.locator("#results").is_visible()
        assert not any(hint.is_visible() for hint in page.locator(".hint").all())


def test_nothing_in_a_result_is_executed_nor_breaks_the_page(visit: Open) -> None:
    discretization = "<img src=x onerror=document.title='hacked'>"
    long = "x" * 300
    odd = plan(("zoh", discretization), 6, recipe=HOSTILE, config={long: long, HOSTILE: HOSTILE}, settings={long: long})
    with visit(
        study(odd, lambda m, s: replace(failed(m, s), error=HOSTILE + long) if s else done(m, s)), PHONE
    ) as page:
        page.evaluate(_OPEN_DETAILS)
        assert page.title().endswith(HOSTILE)
        assert page.locator("main img").count() == 0
        assert discretization in page.locator("#results").inner_text()
        assert discretization in page.locator("#plot-gains .xaxislayer-above").text_content()
        assert page.evaluate(WIDTH) <= PHONE["width"]


def test_text_stands_out_from_its_background_in_both_themes(visit: Open) -> None:
    """By a contrast of at least 4.5, which accessibility guidelines ask of text; that of the plots included."""
    with visit(STUDIES["interrupted"]) as page:
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            for selector in ("h1", ".note", "#results td", "aside li", ".verdict.above", "#plot-curves .xtick text"):
                ratio = page.evaluate(CONTRAST, selector)
                assert ratio >= 4.5, f"{selector} in the {scheme}: {ratio:.1f}"


_OPEN_DETAILS = "document.querySelectorAll('details').forEach(part => part.open = true)"
