"""What every test shares: hypothesis without clocks or chance, poisoned memory, and a registry left as found."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from tests.programs import TO_TEST_IT
from tustin import DISCRETIZATIONS
from tustin.ops import accelerator, dispatch

# The same examples every run and no deadline: a red test is red for a reason, not for a busy machine.
hypothesis.settings.register_profile("tustin", deadline=None, derandomize=True, database=None, max_examples=25)
hypothesis.settings.load_profile("tustin")

# Where tests run in the background, a shell has told them to ignore Ctrl-C, and what they start would ignore it too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Workers of pytest-xdist share the cores: as many pools of threads as cores, all spinning, would be slower than none.
torch.set_num_threads(max(1, torch.get_num_threads() // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say last what was not tested because a program is not installed, and how to install it."""
    reasons = (report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped"))
    missing = Counter(reason for reason in reasons if TO_TEST_IT in reason)
    for reason, tests in missing.items():
        terminalreporter.write_line(f"not tested ({tests} test{'s'[: tests > 1]}): {reason}", yellow=True)


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """`torch.empty` gives NaN, so that reading what was never written shows."""
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")  # as use_deterministic_algorithms, without importing the compiler
    yield
    torch.set_deterministic_debug_mode(before)


@pytest.fixture
def own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compilers keep their caches in a folder of the test."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def no_triton(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which Triton is not installed."""
    monkeypatch.setattr(accelerator.importlib.util, "find_spec", lambda name: None)
    answers = accelerator.triton_missing, dispatch._chosen
    for answer in answers:
        answer.cache_clear()
    yield
    for answer in answers:
        answer.cache_clear()


@pytest.fixture
def clean_registry() -> Iterator[None]:
    """Whatever the test registers is gone after it."""
    before = dict(DISCRETIZATIONS)
    yield
    DISCRETIZATIONS.clear()
    DISCRETIZATIONS.update(before)
