"""Imports that wait: until a name is asked for, or until somebody else imports a library."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tustin.support.imports import lazy_names, when_imported


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a library that can be imported, and has not been."""
    (tmp_path / "a_library.py").write_text("told = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield "a_library"
    sys.modules.pop("a_library", None)
    sys.meta_path[:] = finders


def test_actions_follow_the_import_once(library: str) -> None:
    done: list[str] = []
    when_imported(library, lambda: done.append("first"))
    when_imported(library, lambda: done.append("second"))
    assert done == []
    module = import_module(library)
    assert sorted(done) == ["first", "second"]
    assert module.told == []
    assert type(module.__loader__).__module__ != "tustin.support.imports"  # as if nobody had waited
    assert module.__spec__.loader is module.__loader__
    when_imported(library, lambda: done.append("third"))
    assert done[2:] == ["third"]


def test_a_library_that_is_not_there_is_still_an_import_error() -> None:
    done: list[str] = []
    finders = list(sys.meta_path)
    when_imported("no_such_library", lambda: done.append("done"))
    with pytest.raises(ModuleNotFoundError):
        import_module("no_such_library")
    assert done == []
    assert sys.meta_path == finders


def test_names_come_when_asked_for(library: str) -> None:
    names = lazy_names("tustin.support", {"..support.names": ["unknown"]})
    assert names("unknown").__module__ == "tustin.support.names"
    with pytest.raises(AttributeError, match=r"module 'tustin.support' has no attribute 'nothing'"):
        names("nothing")
    del sys.modules["tustin.support"].unknown


@pytest.mark.parametrize("package", ["tustin", "tustin.train"])
def test_every_public_name_is_there(package: str) -> None:
    module = import_module(package)
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("order", [("tustin", "timm"), ("timm", "tustin")])
def test_timm_knows_the_models_whichever_comes_first(order: tuple[str, str]) -> None:
    program = f"import {order[0]}, {order[1]}; assert timm.is_model('vim_tiny_patch16_224')"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
