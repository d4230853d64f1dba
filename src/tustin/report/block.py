"""Results into a page, without touching what people wrote there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..support.files import write_text


@dataclass(frozen=True)
class Block:
    """The part of a page that a benchmark or a study writes: what is between two marks with its name."""

    benchmark: str
    command: str = "bench"

    @property
    def begin(self) -> str:
        return f"<!-- tustin {self.command} {self.benchmark}: begin. Written by a command; edits here are lost. -->"

    @property
    def end(self) -> str:
        return f"<!-- tustin {self.command} {self.benchmark}: end -->"

    def is_in(self, path: Path) -> bool:
        """Whether the page has the mark of this block."""
        return self.begin in path.read_text(encoding="utf-8")

    def replace(self, path: Path, text: str) -> None:
        """Put `text` between the two marks of the page."""
        before, after = self.split(path.read_text(encoding="utf-8"), str(path))
        write_text(path, f"{before}{self.begin}\n\n{text.strip()}\n\n{self.end}{after}")

    def split(self, page: str, name: str) -> tuple[str, str]:
        """What is before the first mark and after the second."""
        begin, end = self.begin, self.end
        if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
            raise ValueError(
                f"{name} must have one line '{begin}' and below it one line '{end}'; the tables go between"
            )
        return page[: page.index(begin)], page[page.index(end) + len(end) :]
