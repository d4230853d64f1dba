"""A wrong name, and the one that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def unknown(what: str, name: object, known: Sequence[str], prefix: str = "") -> str:
    """The sentence for a name that does not exist: the closest match, and the valid ones unless they are very many.

    The known names have no `prefix`.
    """
    close = difflib.get_close_matches(str(name).removeprefix(prefix), known, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"unknown {what} {name!r}{hint}" + ("" if close and len(known) > 30 else f"; known: {', '.join(known)}")
