"""scipy.signal as an independent judge of what zero-order hold and the bilinear transform mean."""

import numpy as np
import pytest
import scipy.signal
import torch

from tests.tolerances import assert_close
from tustin import selective_scan
from tustin.discretize import discretize

RATES = np.array([-0.2, -1.0, -2.5, -9.0])
INPUT = np.array([1.0, -0.5, 2.0, 0.7])
OUTPUT = np.array([0.3, 1.5, -1.0, 2.0])
CONTINUOUS = (np.diag(RATES), INPUT[:, None], OUTPUT[None], np.zeros((1, 1)))
STEP = 0.4


def tensor(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x))


def scan(u: np.ndarray, discretization: str) -> torch.Tensor:
    """The same system through `selective_scan`, (L,)."""
    x = tensor(u)[None, None]
    return selective_scan(
        x,
        torch.full_like(x, STEP),
        tensor(RATES)[None],
        tensor(INPUT)[None],
        tensor(OUTPUT)[None],
        discretization=discretization,
    )[0, 0]


def rational(poles: np.ndarray, residues: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Σ_n residue_n/(s − pole_n) in falling powers of s; the same numbers are Σ_n residue_n/(1 − pole_n q⁻¹) in q⁻¹."""
    return sum(r * np.poly(np.delete(poles, n)) for n, r in enumerate(residues)), np.poly(poles)


def ours(discretization: str) -> tuple[np.ndarray, np.ndarray]:
    """The transfer function of our one-sample recurrence, Σ_n C_n B̄_n / (1 − ᾱ_n q⁻¹), as polynomials in q⁻¹."""
    alpha, beta = (x.numpy() for x in discretize(tensor(RATES), tensor(INPUT), STEP, discretization))
    return rational(alpha, OUTPUT * beta)


@pytest.mark.parametrize("step", [1e-3, 0.1, 0.4, 3.0])
def test_zoh_matrices(step: float) -> None:
    """Ā and B̄ are those of `cont2discrete`, which takes the matrix exponential."""
    Ad, Bd, *_ = scipy.signal.cont2discrete(CONTINUOUS, step, method="zoh")
    A_bar, B_bar = discretize(tensor(RATES), tensor(INPUT), step, "zoh")
    assert_close(A_bar, tensor(np.diagonal(Ad)))
    assert_close(B_bar, tensor(Bd[:, 0]))


def test_zoh_is_exact_on_piecewise_constant_input() -> None:
    """`lsim` simulates the continuous system. Its U[k] acts after t_k, ours over the step that ends at k: one apart."""
    u = np.random.default_rng(0).standard_normal(30)
    t = STEP * np.arange(31)
    _, y, _ = scipy.signal.lsim(CONTINUOUS, np.append(u, 0.0), t, interp=False)
    assert_close(scan(u, "zoh"), tensor(y[1:]))


@pytest.mark.parametrize("discretization", ["mamba", "foh", "bil", "pol", "hoh", "hoh3", "rk4"])
def test_only_zoh_is_exact_on_piecewise_constant_input(discretization: str) -> None:
    """The control: every other rule is visibly elsewhere, so the test above can tell."""
    u = np.random.default_rng(0).standard_normal(30)
    assert float((scan(u, discretization) - scan(u, "zoh")).abs().max()) > 1e-3


def test_zoh_poles_and_dc_gain() -> None:
    """Poles at e^{aΔ}; a constant passes as through the continuous system, Σ −CB/A."""
    numerator, denominator = ours("zoh")
    np.testing.assert_allclose(np.sort(np.roots(denominator)), np.sort(np.exp(RATES * STEP)), rtol=1e-10)
    np.testing.assert_allclose(numerator.sum() / denominator.sum(), (-OUTPUT * INPUT / RATES).sum(), rtol=1e-12)


def test_bilinear_transfer_function() -> None:
    """Ours is Tustin's with the input averaged left out.

    Substituting s = (2/Δ)(1 − q⁻¹)/(1 + q⁻¹) into CB/(s − A), as scipy does, gives per state

        C·B·Δ/(1 − z/2) · ½(1 + q⁻¹) / (1 − α q⁻¹)          α = (1 + z/2)/(1 − z/2)

    The paper's rule has the current sample where this has the mean of two: H_scipy(q) = H_ours(q)·½(1 + q⁻¹).
    """
    numerator, denominator = scipy.signal.bilinear(*rational(RATES, OUTPUT * INPUT), fs=1 / STEP)
    w = np.linspace(0, np.pi, 50)
    _, theirs = scipy.signal.freqz(numerator, denominator, worN=w)
    _, mine = scipy.signal.freqz(*ours("bil"), worN=w)
    np.testing.assert_allclose(mine * (1 + np.exp(-1j * w)) / 2, theirs, rtol=1e-9, atol=1e-12)


def test_bilinear_poles_dc_gain_and_state_matrix() -> None:
    """Not affected by the averaging: α, the poles, and the gain for a constant are those of scipy."""
    Ad, Bd, Cd, Dd, _ = scipy.signal.cont2discrete(CONTINUOUS, STEP, method="bilinear")
    alpha, beta = discretize(tensor(RATES), tensor(INPUT), STEP, "bil")
    assert_close(alpha, tensor(np.diagonal(Ad)))
    assert_close(beta, tensor(Bd[:, 0]))  # scipy puts the rest, ½(1 + α)·C and ½Δ·CB/(1 − z/2), into Cd and Dd
    gain = (tensor(OUTPUT) * beta / (1 - alpha)).sum()
    assert_close(gain, tensor(Cd @ np.linalg.solve(np.eye(4) - Ad, Bd) + Dd)[0, 0])
    assert_close(gain, tensor(-OUTPUT * INPUT / RATES).sum())


def test_bilinear_scan_of_averaged_input_is_scipys_response() -> None:
    """The same in time: fed ½(u_k + u_{k−1}), our scan returns what `dlsim` of Tustin's system returns for u."""
    u = np.random.default_rng(1).standard_normal(40)
    _, y, _ = scipy.signal.dlsim(scipy.signal.cont2discrete(CONTINUOUS, STEP, method="bilinear"), u)
    assert_close(scan((u + np.append(0.0, u[:-1])) / 2, "bil"), tensor(y[:, 0]))
