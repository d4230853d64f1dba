"""The one place where an image file is opened: a list of formats, and one sentence for what cannot be read."""

from __future__ import annotations

import warnings
from pathlib import Path

from PIL import Image, UnidentifiedImageError

__all__ = ["FORMATS", "UnreadableError", "insist_on_pixels", "mode_for", "read_image"]

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
"""Whatever a file is called: others of Pillow's formats start programs (EPS) or are of no use here."""

MOST_PIXELS = 2**27
"""To which an image may be enlarged: a small file must not fill the memory."""
LONGEST = 1000
"""Times that one side may be as long as the other: a strip of pixels would become that much longer when enlarged."""


class UnreadableError(ValueError):
    """A file that is not an image that can be read, and the `reason`."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot read the image {str(path)!r}: {reason}")
        self.reason = reason


def mode_for(channels: int) -> str:
    """The mode of images for a model with so many channels."""
    mode = {1: "L", 3: "RGB"}.get(channels)
    if mode is None:
        raise ValueError(f"images have 1 or 3 channels, the model expects {channels}")
    return mode


def insist_on_pixels(height: float, width: float) -> None:
    """ValueError if images shall be enlarged to more than they may be."""
    if height * width > MOST_PIXELS:
        raise ValueError(f"images would be enlarged to {width:.0f} x {height:.0f} pixels, more than {MOST_PIXELS:,}")


def read_image(path: Path, mode: str | None = None) -> Image.Image:
    """The image, in the mode "RGB" or "L" without palette and transparency; without a mode as the file has it."""
    try:
        if path.exists() and not path.is_file():  # a pipe would never end
            raise UnreadableError(path, "not a file")
        # Odd metadata is no concern.
        with warnings.catch_warnings(action="ignore"), Image.open(path, formats=FORMATS) as file:
            if max(file.size) > LONGEST * min(file.size):
                why = f"one side is more than {LONGEST:,} times as long as the other"
                raise UnreadableError(path, f"it has {file.width} x {file.height} pixels, {why}")
            return file.copy() if mode is None else file.convert(mode)
    except UnreadableError:
        raise
    except Exception as error:  # a damaged file can fail in any way
        raise UnreadableError(path, _reason(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, Image.DecompressionBombError):
        return f"it has more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels"
    if isinstance(error, UnidentifiedImageError):
        return f"not an image ({', '.join(FORMATS)})"
    if isinstance(error, OSError | ValueError | SyntaxError):  # which Pillow raises with a text
        return " ".join(str(error).split()) or "it is damaged"
    return "it is damaged"
