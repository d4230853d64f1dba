"""Programs that some tests need and a machine may lack; `make test` ends with what was not tested for want of them."""

import shutil

import pytest

TO_TEST_IT = "; to test it: "


def needs_program(what: str, *names: str, install: str) -> tuple[str | None, pytest.MarkDecorator]:
    """The path of the first of these programs that is there, and the mark that skips a test of `what` without one."""
    found = next(filter(None, map(shutil.which, names)), None)
    return found, pytest.mark.skipif(found is None, reason=f"{what} needs {names[0]}{TO_TEST_IT}{install}")
