"""The site is built without a warning, needs nothing from elsewhere, and shows what the pages say."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tests.browser import CONTRAST, PHONE, WIDTH, needs_browser, started, visited

pytest.importorskip("zensical", reason="zensical is not installed")
ROOT = Path(__file__).parents[1]
MAKE = ROOT / "docs" / "make_site.py"
MAKE_SITE: dict[str, Any] = runpy.run_path(str(MAKE))
BROWSER, in_a_browser = needs_browser("the site in a browser")
SITE = Path(MAKE_SITE["SITE"])
pytestmark = pytest.mark.xdist_group("site")  # one folder, one build


@pytest.fixture(scope="module")
def site() -> Path:
    built = subprocess.run([sys.executable, MAKE], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return SITE


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with started(BROWSER) as running:
        yield running


def _pages(navigation: Any) -> Iterator[str]:
    for entry in navigation:
        for target in entry.values():
            yield from [target] if isinstance(target, str) else _pages(target)


def test_every_page_is_in_the_navigation(site: Path) -> None:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    pages = Path(MAKE_SITE["PAGES"])
    assert sorted(_pages(settings["project"]["nav"])) == sorted(str(p.relative_to(pages)) for p in pages.rglob("*.md"))


def test_the_site_shows_what_github_shows(site: Path) -> None:
    """Two readers of Markdown differ in details: as many list items, rows and blocks of code must be there."""
    reader = MarkdownIt("commonmark").enable("table")
    pages = Path(MAKE_SITE["PAGES"])
    for page in pages.rglob("*.md"):
        if page.parent.name == "reference":  # where most of a page comes from docstrings
            continue
        tokens = reader.parse(page.read_text(encoding="utf-8"))
        html = (site / page.relative_to(pages)).with_suffix(".html").read_text(encoding="utf-8")
        (article,) = re.findall(r"<article[^>]*>(.*?)</article>", html, re.DOTALL)
        for kind, tag in (("list_item_open", "li"), ("tr_open", "tr")):
            expected = sum(token.type == kind for token in tokens)
            assert len(re.findall(rf"<{tag}[ >]", article)) == expected, f"{page.name}: {tag}"
        blocks = sum(token.type == "code_block" or (token.type == "fence" and token.info != "math") for token in tokens)
        assert len(re.findall(r"<pre[ >]", article)) == blocks, f"{page.name}: blocks of code"
        assert article.count("<math") == sum(token.type == "fence" and token.info == "math" for token in tokens)


def test_every_entry_of_the_reference_says_something(site: Path) -> None:
    """The description comes from the docstring; a constant may have lost it on the way."""
    for page in (site / "reference").glob("*.html"):
        for entry in page.read_text(encoding="utf-8").split("<h2 id=")[1:]:
            _, _, contents = entry.partition('<div class="doc doc-contents first">')
            contents = re.sub(r'\s*<p class="doc doc-class-bases">.*?</p>', "", contents, count=1, flags=re.DOTALL)
            assert contents.lstrip().startswith("<p>"), f"{page.name}: {entry[:60]}"


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe|link)\b[^>]*?(?:src|href)="(http[^"]+)"', text)
        assert not loaded, page.name


def test_every_name_of_the_reference_has_its_place(site: Path) -> None:
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        html = (site / "reference" / page.name).with_suffix(".html").read_text(encoding="utf-8")
        for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert f'id="{name}"' in html, name


def test_no_formula_stays_source(site: Path) -> None:
    for page in site.rglob("*.html"):
        for article in re.findall(r"<article[^>]*>(.*?)</article>", page.read_text(encoding="utf-8"), re.DOTALL):
            text = re.sub(r"<(pre|code)\b.*?</\1>|<[^>]+>", "", article, flags=re.DOTALL)
            assert not re.findall(r"\S*(?:\^|_\{|\\frac)\S*", text), page.name


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("h_k = e^z·h_{k−1}", "h<sub>k</sub> = e<sup>z</sup>·h<sub>k−1</sub>"),
        ("∫₀^Δ Ā_k (AΔ)^k φ_k^(m)", "∫₀<sup>Δ</sup> Ā<sub>k</sub> (AΔ)<sup>k</sup> φ<sub>k</sub><sup>(m)</sup>"),
        ("`h_k` sm_70 d_state _once_", "<code>h_k</code> sm_70 d_state <em>once</em>"),
    ],
)
def test_subscripts_and_superscripts(text: str, html: str) -> None:
    assert MAKE_SITE["Markdown"](extensions=[MAKE_SITE["Formulas"]()]).convert(text) == f"<p>{html}</p>"


@pytest.mark.parametrize("link", ["nowhere.md", "images/none.png", "../src/none.py"])
def test_a_link_that_leads_nowhere_is_refused(link: str) -> None:
    with pytest.raises(SystemExit, match=f"docs/x.md: the link {link} leads nowhere"):
        MAKE_SITE["with_links"](f"[text]({link})", "docs/x.md", {"docs/x.md": SITE / "x.md"})


def test_links_lead_to_pages_and_nothing_else() -> None:
    places = {"README.md": Path("p/index.md"), "docs/rules.md": Path("p/rules.md"), "docs/a/b.md": Path("p/a/b.md")}
    adjusted = MAKE_SITE["with_links"]
    assert adjusted("[rules](docs/rules.md#all)", "README.md", places) == "[rules](rules.md#all)"
    assert adjusted("[home](../../README.md)", "docs/a/b.md", places) == "[home](../index.md)"
    assert adjusted("see [`code`](../src/tustin/__init__.py)", "docs/rules.md", places) == "see `code`"
    badge = adjusted("[![x](docs/rules.md)](LICENSE)", "README.md", places)
    assert badge == "![x](rules.md)"
    code = "```sh\n[x](nowhere.md)\n```"
    assert adjusted(code, "README.md", places) == code
    assert adjusted("[web](https://arxiv.org)", "README.md", places) == "[web](https://arxiv.org)"


@in_a_browser
@pytest.mark.parametrize("name", ["index.html", "math.html", "rules.html", "reference/index.html"])
def test_a_page_fits_a_phone_and_is_legible_in_both_themes(site: Path, browser: Any, name: str) -> None:
    for scheme in ("light", "dark"):
        with visited(browser, site / name, PHONE, color_scheme=scheme) as page:
            assert page.evaluate(WIDTH) <= PHONE["width"]
            for selector in ("article h1", "article p"):
                assert page.evaluate(CONTRAST, selector) >= 4.5


@in_a_browser
def test_formulas_are_drawn(site: Path, browser: Any) -> None:
    with visited(browser, site / "math.html") as page:
        assert page.locator("math").count() >= 5
        box = page.locator("math mfrac").first.bounding_box()
        assert box["height"] > 1.5 * page.locator("math mi").first.bounding_box()["height"]


@in_a_browser
def test_the_search_finds_a_page_from_disk(site: Path, browser: Any) -> None:
    with visited(browser, site / "reference" / "index.html") as page:
        page.get_by_role("button", name="Search").first.click()
        page.keyboard.type("equilibrium", delay=30)
        page.get_by_text("Mathematics", exact=True).last.wait_for()


@in_a_browser
def test_the_rules_are_in_a_frame_with_the_theme_of_the_site(site: Path, browser: Any) -> None:
    with visited(browser, site / "interactive.html", color_scheme="dark") as page:
        frame = page.frame_locator("iframe[title]")
        frame.locator("html[data-theme=dark]").wait_for()
        assert frame.locator("#plot-step path.curve").count() == 6
        height = frame.locator("html").evaluate("root => root.offsetHeight")
        assert abs(page.locator("iframe[title]").bounding_box()["height"] - height) < 100
