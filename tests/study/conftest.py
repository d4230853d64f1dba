"""One study that nothing disturbed, for all that must equal it."""

import pytest

from .small import bits, study


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """Its folder, and what it has found."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, bits(study(folder), folder)
