"""Builds the site: collects its pages in build/docs, then runs Zensical on them. `make docs` runs this.

The pages are those of docs/, and README.md, CONTRIBUTING.md, SECURITY.md and CHANGELOG.md from above it. A link to a
file that is no page, such as a source file, becomes plain text.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from os.path import normpath, relpath
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
SHIM = "https://unpkg.com/iframe-worker/shim"
"""What Zensical loads for the search of a page that was opened from disk; offline.js does that without a network."""

FRAME = """
[Open the page in a new tab](rules-page.html){ target=_blank }

<iframe src="rules-page.html" title="Discretization rules" style="width: 100%; height: 120rem; border: 0"></iframe>
<script>
{
  const frame = document.querySelector("iframe[title]");
  const tell = () => {
    const theme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "light";
    frame.contentWindow.postMessage({ theme }, "*");
  };
  addEventListener("message", event => {
    if (event.source !== frame.contentWindow) return;
    frame.style.height = event.data.height + 40 + "px";
    tell();
  });
  new MutationObserver(tell).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
}
</script>
"""
"""It grows with its content, and has the theme of the site."""

FROM_ABOVE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
NOT_SHOWN = ("*.py", "__pycache__")
_NAMED_BLOCK = re.compile(r"^```(\w+) ([\w./]+)$", re.MULTILINE)
"""The opening of a block of code that names a file."""

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")


def formula(source: str, language: str, class_name: str, options: Any, md: Any, **more: Any) -> str:
    """A ```math block as MathML, which browsers show without a script or a font of ours."""
    from latex2mathml.converter import convert

    return f'<div class="{class_name}">{convert(source, display="block")}</div>'


class _Raised(InlineProcessor):
    """h_k and e^{AΔ} in a sentence: as a subscript and a superscript."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element, int, int]:
        element = Element("sub" if m[1] == "_" else "sup")
        element.text = m[2].strip("{}")
        return element, m.start(), m.end()


class Formulas(Extension):
    """What is written as in LaTeX in the text of a page or of a docstring."""

    def extendMarkdown(self, md: Markdown) -> None:
        pattern = r"(?<=[\w)\u0304])(\^)(\{[^{}]+\}|\(\w\)|[A-Za-z]+|\d+|Δ)"
        md.inlinePatterns.register(_Raised(pattern, md), "superscript", 41)
        pattern = r"(?<=[^\W\d_]|[)\u0304])(_)(\{[^{}]+\}|[a-z\d](?!\w))"
        md.inlinePatterns.register(_Raised(pattern, md), "subscript", 40)


def makeExtension(**options: Any) -> Extension:
    """What Markdown calls to get it."""
    return Formulas(**options)


def collect() -> None:
    """Write every page of the site, and what it shows, into build/docs."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns(*NOT_SHOWN))
    places = {f"docs/{path.relative_to(PAGES)}": path for path in PAGES.rglob("*") if path.is_file()}
    for source, file in places.items():
        if file.suffix == ".ipynb":
            places[source] = file.with_suffix(".md")
            places[source].write_text(notebook_page(json.loads(file.read_text(encoding="utf-8"))), encoding="utf-8")
    for name, page in FROM_ABOVE.items():
        places[name] = Path(shutil.copy(ROOT / name, PAGES / page))
    for source, page in places.items():
        if page.suffix == ".md":
            text = with_links(page.read_text(encoding="utf-8"), source, places)
            page.write_text(_NAMED_BLOCK.sub(r'```\1 title="\2"', text), encoding="utf-8")


def notebook_page(notebook: dict[str, Any]) -> str:
    """The cells of a notebook and what they print, as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        printed = ["".join(output.get("text", "")).rstrip() for output in cell.get("outputs", [])]
        parts += [f"```text\n{text}\n```" for text in printed if text]
    return "\n\n".join(parts) + "\n"


def add_interactive() -> None:
    """The interactive page of the rules, in a frame of docs/interactive.md."""
    from tustin.discretize import BUILT_IN
    from tustin.report import rules_page

    rules_page.save(PAGES / "rules-page.html", BUILT_IN)
    with (PAGES / "interactive.md").open("a", encoding="utf-8") as page:
        page.write(FRAME)


def with_links(text: str, source: str, places: dict[str, Path]) -> str:
    """The text of the page at `source` with its links as they are on the site; code blocks stay as they are."""

    def replaced(link: re.Match[str]) -> str:
        text = _LINK.sub(replaced, link["text"])  # an image may be a link
        name, _, anchor = link["target"].partition("#")
        if not name or re.match(r"[a-z]+:", name):
            return link[0]
        target = normpath(Path(source).parent / name)
        if target not in places:
            if not (ROOT / target).exists():
                sys.exit(f"{source}: the link {link['target']} leads nowhere")
            return text
        there = relpath(places[target], places[source].parent)
        return f"{link['image']}[{text}]({there}{'#' + anchor if anchor else ''})"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(replaced, part) for part in parts)


def main() -> None:
    from zensical.main import cli

    collect()
    add_interactive()
    os.chdir(ROOT)
    try:
        cli(["build", "--clean", "--strict"], standalone_mode=False)
    except RuntimeError as error:  # what is wrong has been printed
        sys.exit(str(error))
    for page in SITE.rglob("*.html"):
        script = relpath(SITE / "offline.js", page.parent)
        page.write_text(page.read_text(encoding="utf-8").replace(SHIM, script), encoding="utf-8")


if __name__ == "__main__":
    main()
