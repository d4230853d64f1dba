"""The interactive page computes what the rules compute, and is legible on a desk and on a phone, light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.browser import CONTRAST, DESK, PHONE, WIDTH, needs_browser, started, visited
from tustin import DISCRETIZATIONS, Discretization, selective_scan
from tustin.cli import main
from tustin.discretize import BUILT_IN
from tustin.report import rules_page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSER, in_a_browser = needs_browser("the interactive page in a browser")
STEPS = [0.001, 0.1, 1.0, 10.0]
POLES = [-0.01, -0.5, -1.0, -3.0, -100.0]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started(BROWSER) as running:
        yield running


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "rules.html"
    rules_page.save(path, BUILT_IN)
    return path


def test_every_built_in_rule_is_on_the_page() -> None:
    assert rules_page.drawable(BUILT_IN) == list(BUILT_IN)


def test_a_rule_of_ones_own_is_left_out_and_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, clean_registry: None
) -> None:
    own = Discretization("own", lambda d, z: (1 / (1 - z), (d / (1 - z),)), "", ("",), 1, 1, True, (-math.inf, 0), "")
    DISCRETIZATIONS["own"] = own
    assert main(["discretizations", "--html", str(tmp_path / "page.html")]) == 0
    told = capsys.readouterr().err
    assert "built-in rules only, not own" in told
    assert "page.html" in told
    assert '"own"' not in (tmp_path / "page.html").read_text(encoding="utf-8")


@in_a_browser
def test_alpha_and_beta_are_those_of_python(browser: Any, file: Path) -> None:
    points = [(delta, delta * A) for delta in STEPS for A in POLES]
    with visited(browser, file, alone=True) as page:
        for rule in BUILT_IN:
            for mix in (0.5, 0.2) if rule.mixes else (0.5,):
                found = page.evaluate(
                    "([name, points, mix]) => points.map(([d, z]) => coefficients(name, d, z, mix))",
                    [rule.name, points, mix],
                )
                for (delta, z), (alpha, betas) in zip(points, found, strict=True):
                    step, product = (torch.tensor(x, dtype=torch.float64) for x in (delta, z))
                    expected, weights = rule(step, product, mix=mix if rule.mixes else None)
                    assert alpha == pytest.approx(float(expected), rel=1e-12, abs=1e-15), (rule.name, delta, z)
                    assert betas == pytest.approx([float(w) for w in weights], rel=1e-11, abs=1e-14), (rule.name, z)


@in_a_browser
@pytest.mark.filterwarnings("ignore:selective_scan runs on the slow")
def test_the_step_response_is_that_of_the_scan(browser: Any, file: Path) -> None:
    tokens = 12
    ones = torch.ones(1, 1, tokens, dtype=torch.float64)
    single = torch.ones(1, 1, dtype=torch.float64)
    with visited(browser, file, alone=True) as page:
        for rule in BUILT_IN:
            for delta, A in ((0.1, -1.0), (1.0, -0.5), (2.0, -1.0)):
                call = f"stepResponse('{rule.name}', {A}, {delta}, {tokens})"
                expected = selective_scan(ones, delta * ones, A * single, single, single, discretization=rule)
                found = page.evaluate(call)
                assert found == pytest.approx(expected.flatten().tolist(), rel=1e-11), (rule.name, delta, A)


@in_a_browser
def test_the_frequency_response_is_that_of_the_coefficients(browser: Any, file: Path) -> None:
    delta, A = 0.5, -1.5
    omegas = np.geomspace(0.01, math.pi / delta, 20)
    with visited(browser, file, alone=True) as page:
        for rule in BUILT_IN:
            step = torch.tensor(delta, dtype=torch.float64)
            alpha, betas = rule(step, step * A)
            back = np.exp(-1j * omegas * delta)
            expected = sum(float(b) * back**j for j, b in enumerate(betas)) / (1 - float(alpha) * back)
            found = page.evaluate(
                "([name, A, d, omegas]) => omegas.map(omega => frequencyResponse(name, A, d, omega))",
                [rule.name, A, delta, omegas.tolist()],
            )
            assert np.allclose([complex(*pair) for pair in found], expected, rtol=1e-11, atol=1e-14), rule.name


@in_a_browser
def test_sliders_and_choices_change_the_curves_and_the_numbers(browser: Any, file: Path) -> None:
    with visited(browser, file, alone=True) as page:
        assert page.locator("#numbers tr").count() == 6
        before = page.locator("#plot-step path[data-rule=bil]").get_attribute("d")
        page.locator("#delta").fill("0.5")
        assert page.locator("#delta-value").inner_text() == "3.162"
        assert page.locator("#plot-step path[data-rule=bil]").get_attribute("d") != before
        page.locator("#rules input[value=rk4_raw]").check()
        assert "grows" in page.locator("#numbers tr[data-rule=rk4_raw]").inner_text()
        assert not page.locator("#mix").is_visible()
        page.get_by_role("button", name="all").click()
        assert page.locator("#mix").is_visible()
        for plot in ("alpha", "beta", "step", "magnitude", "phase"):
            assert page.locator(f"#plot-{plot} path.curve").count() == len(BUILT_IN)
            assert "NaN" not in page.locator(f"#plot-{plot} svg").inner_html()
        page.get_by_role("button", name="none").click()
        assert page.locator("#plot-alpha path.curve").count() == 0
        for end in ("A", "delta"):
            for value in ("min", "max"):
                page.get_by_role("button", name="all").click()
                page.locator(f"#{end}").fill(page.locator(f"#{end}").get_attribute(value))
                assert "NaN" not in page.locator(".plots").inner_html()


@in_a_browser
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_it_fits_and_is_legible_in_both_themes(browser: Any, file: Path, size: dict[str, int]) -> None:
    for scheme in ("light", "dark"):
        with visited(browser, file, size, alone=True, color_scheme=scheme) as page:
            assert page.evaluate(WIDTH) <= size["width"]
            for selector in ("h1", "figcaption", "#numbers td", ".chip", "button", "#plot-alpha text"):
                assert page.evaluate(CONTRAST, selector) >= 4.5, (selector, scheme)
