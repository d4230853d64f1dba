"""Random scans; TUSTIN_FUZZ_CASES says how many."""

import os

import pytest

from tests.fuzz.scans import cases, check


@pytest.mark.filterwarnings("ignore:.*to_mkldnn", "ignore:.*quantiz", "ignore:.*nested")  # they tell of their future
@pytest.mark.parametrize("seed", range(int(os.environ.get("TUSTIN_FUZZ_CASES", "100"))))
def test_scans(seed: int) -> None:
    check(next(cases(seed)))
