"""What is timed of language models: every piece of work in every way."""

from __future__ import annotations

import pytest

from tustin.bench import language
from tustin.bench.language import DECODING, PREFILL, TRAINING, LanguageCase


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model so small that a run takes seconds; processes of their own are left out."""
    for name, value in {"WIDTH": 16, "STATES": 4, "VOCABULARY": 30}.items():
        monkeypatch.setattr(language, name, value)
    monkeypatch.setattr(language, "_model", language._model.__wrapped__)
    monkeypatch.setattr(language, "_weights", language._weights.__wrapped__)


@pytest.mark.parametrize("path", language.PATHS)
@pytest.mark.parametrize("task", [PREFILL, DECODING, TRAINING])
def test_every_call_can_be_made(path: str, task: str, small: None) -> None:
    call = language.make_call(LanguageCase(path, task, 5, 2))
    call()
    call()
