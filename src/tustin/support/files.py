"""Files on disk: written whole or not at all, and read with an error that names them."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

__all__ = ["digest", "insist_on_file", "insist_on_values", "read_json", "read_text", "remove_unfinished"]
__all__ += ["replacing", "shortened", "writable", "write_text"]

LARGEST_TEXT = 2**28
"""Bytes of a text that is read back; what we write is far smaller."""
_UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.unfinished")
_tidied: set[Path] = set()
"""Folders from which this process has removed what others had begun to write."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


# --- writing ----------------------------------------------------------------------------------------------------------


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` once it is complete; until then, and on any failure, `path` stays as it is.

    It is opened before the work, so that a folder which cannot be written is refused at once. A link stays a link, and
    a file that is replaced hands on its permissions. What killed processes have left in the folder is removed, once.
    """
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {str(path)!r}: there is no folder {str(Path(path).parent)!r}")
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {str(path)!r}: it is a folder")
    if target.parent not in _tidied:
        _tidied.add(target.parent)
        remove_unfinished(target.parent)
    raw: _Unfinished | None = None
    try:
        raw = _Unfinished.new(target.parent)
        with io.BufferedWriter(raw) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # or a crash soon after could leave the name with nothing behind it
            if target.exists():
                raw.path.chmod(target.stat().st_mode & 0o777)
            os.replace(raw.path, target)
        _sync(target.parent)
    except Exception as error:
        failure = error if isinstance(error, OSError) else raw and raw.failure
        if not failure:
            raise
        reason = failure.strerror or str(failure)
        if failure.errno in _FULL:
            reason += "; the disk is full, and the previous file is unchanged"
        raise OSError(f"cannot write {str(path)!r}: {reason}") from error
    finally:
        if raw:
            raw.path.unlink(missing_ok=True)


class _Unfinished(io.FileIO):
    """A new file with a name of its own, locked for as long as it is open."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "xb")
        self.path = path
        self.failure: OSError | None = None
        """Why a write failed: PyTorch's writer tells of something else instead."""

    @classmethod
    def new(cls, folder: Path) -> _Unfinished:
        while True:
            file = cls(folder / f".{secrets.token_hex(8)}.unfinished")
            with suppress(OSError):  # a file system without locks; there `remove_unfinished` removes nothing
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:
                return file
            file.close()  # `remove_unfinished` was quicker than the lock

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.failure = error
            raise


def _sync(folder: Path) -> None:
    """See to it that the new name outlives a power cut, and that names do so in the order in which they were given."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system that does so by itself, or not at all
            os.fsync(handle)
    finally:
        os.close(handle)


def remove_unfinished(folder: str | Path) -> None:
    """Remove what processes that were killed had begun to write into `folder`; what is being written is locked."""
    if not os.access(folder, os.R_OK):
        return
    with os.scandir(folder) as entries:
        unfinished = [Path(entry) for entry in entries if _UNFINISHED.fullmatch(entry.name) and entry.is_file()]
    for path in unfinished:
        with suppress(OSError), path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Replace the file in one step: a reader sees the old text or the new one, and a full disk leaves the old one."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


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


# --- reading ----------------------------------------------------------------------------------------------------------


def insist_on_file(path: Path) -> None:
    """ValueError names a folder, a pipe or a device in the place of a file, which could be read for ever."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise ValueError(f"{str(path)!r} is {'a folder' if stat.S_ISDIR(mode) else 'not a file'}, expected a file")


def read_text(path: Path) -> str:
    """What `write_text` wrote; ValueError names a file that holds anything else."""
    insist_on_file(path)
    if (size := path.stat().st_size) > LARGEST_TEXT:
        raise ValueError(f"{str(path)!r} is damaged: it has {size} bytes, expected at most {LARGEST_TEXT}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}") from error


def read_json(path: Path, text: str | None = None) -> Any:
    """The value in a file, or in `text` where that is a part of it; ValueError names a file that is not JSON."""
    if text is None:
        text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}") from error


def insist_on_values(path: Path, values: Any, kinds: Mapping[str, type | tuple[type, ...]]) -> None:
    """ValueError names a file that does not hold a dict with values of these kinds."""
    if not isinstance(values, dict):
        raise ValueError(f"{str(path)!r} is damaged: it holds a {type(values).__name__}, expected {', '.join(kinds)}")
    for name, kind in kinds.items():
        if not isinstance(values.get(name), kind) or isinstance(values[name], bool):
            raise ValueError(f"{str(path)!r} is damaged: {name} is {shortened(values.get(name))}")


def shortened(value: object) -> str:
    """A value in a message: the beginning of it, where it is long."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
