"""Results into a page, without touching what people wrote there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ..files import write_text

BEGIN = "<!-- tustin bench scan: begin. Written by a command; edits here are lost. -->"
END = "<!-- tustin bench scan: end -->"


def replace_block(path: Path, block: str) -> None:
    """Put `block` between the two marks of the page."""
    before, after = split(path.read_text(encoding="utf-8"), str(path))
    write_text(path, f"{before}{BEGIN}\n\n{block.strip()}\n\n{END}{after}")


def split(page: str, name: str) -> tuple[str, str]:
    """What is before the first mark and after the second."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ValueError(f"{name} must have one line '{BEGIN}' and below it one line '{END}'; the tables go between")
    return page[: page.index(BEGIN)], page[page.index(END) + len(END) :]


def writable(path: Path) -> Path:
    """The path, if `write_text` can be expected to work."""
    folder = path.resolve().parent
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return path
