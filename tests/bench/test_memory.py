"""Memory is predicted before it is needed, and told as exactly as it is known."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.bench.models import CASE
from tustin.bench import memory


def test_memory_is_predicted_by_a_line_through_the_last_two(monkeypatch):
    monkeypatch.setattr(memory.workloads, "available_bytes", lambda device: 1000)
    known = {replace(CASE, batch=1): 100, replace(CASE, batch=2): 150}
    assert memory.too_large(replace(CASE, batch=14), known) is None  # 750
    assert "about 8.5e-07 GB" in memory.too_large(replace(CASE, batch=16), known)
    assert memory.too_large(replace(CASE, batch=8), {replace(CASE, batch=1): 100}) is None
    assert memory.too_large(replace(CASE, batch=9), {replace(CASE, batch=1): 100})
    assert memory.too_large(CASE, {}) is None


GROWTH = """
from dataclasses import replace

from tests.bench.models import CASE
from tustin.bench import memory
from tustin.report.speed import Candidate

case = replace(CASE, candidate=Candidate("vim_nano_patch4_32", "bil"), img_size=32)
print(*(memory.growth(replace(case, batch=batch)) for batch in (2, 64)))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system tells no peak")
def test_more_images_need_more_memory():
    """In a process of its own, as the benchmark does it: memory that another test has left would hide the growth."""
    environment = os.environ | memory.ENVIRONMENT
    done = subprocess.run([sys.executable, "-c", GROWTH], env=environment, capture_output=True, text=True, timeout=300)
    small, large = map(int, done.stdout.split())
    assert 0 <= small < large < 10**9


@pytest.mark.parametrize(("peak", "text"), [(None, "–"), (70_000, "< 2"), (2 << 20, "2"), (47_600_000, "45")])
def test_memory_is_told_as_exactly_as_it_is_known(peak, text):
    assert memory.memory_text(peak) == text
