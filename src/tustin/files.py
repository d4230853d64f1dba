"""Files on disk, written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["replacing", "write_text"]


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` once it is complete; until then, and on any failure, `path` stays as it is.

    It is opened before the work, so that a folder which cannot be written is refused at once. A link stays a link, and
    a file that is replaced hands on its permissions.
    """
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {str(path)!r}: there is no folder {str(Path(path).parent)!r}")
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {str(path)!r}: it is a folder")
    unfinished = target.with_name(f".{secrets.token_hex(8)}.unfinished")
    try:
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # or a crash soon after could leave the name with nothing behind it
        if target.exists():
            unfinished.chmod(target.stat().st_mode & 0o777)
        os.replace(unfinished, target)
    except OSError as error:
        raise OSError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Replace the file in one step: a reader sees the old text or the new one, and a full disk leaves the old one."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
