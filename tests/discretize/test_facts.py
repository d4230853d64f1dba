"""What each rule declares about itself is true, and `register` believes none of it unseen."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests import convergence
from tests.tolerances import VALUES, assert_close
from tustin import DISCRETIZATIONS, Discretization, register, selective_scan
from tustin.discretize import discretize, get_discretization, higher_order_hold

ZOH, RK4, RK4_RAW = DISCRETIZATIONS["zoh"], DISCRETIZATIONS["rk4"], DISCRETIZATIONS["rk4_raw"]
UNIT_OF_TIME_MATTERS = {"foh", "pol", "hoh", "hoh3"}
each_discretization = pytest.mark.parametrize("discretization", DISCRETIZATIONS.values(), ids=DISCRETIZATIONS)


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# ── what a rule means ────────────────────────────────────────────────────────────────────────────────────────────────


@each_discretization
def test_constant_input_settles_where_declared(discretization: Discretization) -> None:
    """α = 1 + z·Σβ/Δ exactly where `exact_equilibrium`; elsewhere it fails visibly, by 1 % at z = −1, Δ = 0.5."""
    z, delta = -torch.logspace(-3, math.log10(80), 50).double(), double(0.5)
    alpha, betas = discretization(delta.expand_as(z), z)
    if discretization.exact_equilibrium:
        assert_close(1 + z * sum(betas) / delta, alpha)
    alpha, betas = discretization(delta, double(-1))
    gap = abs(float(1 - sum(betas) / delta - alpha))
    assert (gap < 1e-12) == discretization.exact_equilibrium
    assert discretization.exact_equilibrium or gap > 0.01


@each_discretization
def test_scan_of_a_constant_input_ends_at_the_continuous_equilibrium(discretization: Discretization) -> None:
    """The same by running it: h' = −2h + u with u = 1 settles at 1/2, or somewhere else."""
    one = torch.ones(1, 1, dtype=torch.float64)
    u = torch.ones(1, 1, 60, dtype=torch.float64)
    y = selective_scan(
        u, torch.full_like(u, 0.5), -2 * one, one, one, discretization=discretization, backend="reference"
    )
    assert (abs(float(y[0, 0, -1]) - 0.5) < 1e-12) == discretization.exact_equilibrium


@given(st.sampled_from(sorted(DISCRETIZATIONS)), st.floats(0, 1), st.floats(1e-8, 10))
def test_alpha_stays_within_one_on_the_declared_interval(name: str, where: float, delta: float) -> None:
    """|α| ≤ 1 for z anywhere in the interval; an unbounded one is tried down to −10⁴."""
    low, high = DISCRETIZATIONS[name].stable
    alpha, _ = DISCRETIZATIONS[name](double(delta), double(max(low, -1e4) * where**3 + high))
    assert float(alpha.abs()) <= 1 + VALUES[torch.float64]


def test_raw_rk4_leaves_the_unit_circle_and_the_limiter_does_not() -> None:
    """At z = −2.79 the plain polynomial exceeds 1; at ViM's initial z = −16·ln 2 it is 454, and `rk4` still 0.27."""
    alpha, _ = RK4_RAW(double(1, 1, 1), double(-2.785, -2.79, -16 * math.log(2)))
    assert float(alpha[0]) < 1 < float(alpha[1])
    assert float(alpha[2]) == pytest.approx(454, abs=1)
    assert RK4_RAW.stable[0] == pytest.approx(-2.785293563405282, rel=1e-15)
    assert float(RK4(double(1), double(-11))[0]) == pytest.approx(0.2704, abs=1e-4)


@given(st.floats(-1.5960716, 0), st.floats(0, 10))
def test_rk4_is_the_plain_rule_before_its_limit(z: float, delta: float) -> None:
    for got, expected in zip(_flat(RK4, delta, z), _flat(RK4_RAW, delta, z), strict=True):
        assert got == expected


@given(st.floats(-1e4, -1.5960717), st.floats(1e-8, 10))
def test_rk4_limits_the_step_beyond(z: float, delta: float) -> None:
    """Beyond z* the rule is the plain one with Δ_eff = z*/A: α no longer changes, β is that of the shorter step."""
    z_star = -1.5960716379833216
    alpha, beta = _flat(RK4, delta, z)
    at_limit, beta_at_limit = _flat(RK4_RAW, delta * z_star / z, z_star)
    assert alpha == at_limit == pytest.approx(0.27039, abs=1e-5)
    assert beta == pytest.approx(beta_at_limit, rel=1e-12)


def _flat(discretization: Discretization, delta: float, z: float) -> list[float]:
    alpha, betas = discretization(double(delta), double(z))
    return [float(alpha), *map(float, betas)]


@each_discretization
def test_unit_of_time(discretization: Discretization) -> None:
    """Seconds or milliseconds (Δ → cΔ, A → A/c, B → B/c) describe one system; the paper's holds tell them apart."""
    A, B, delta, c = double(-0.3, -2, -9), double(1, 2, -1), 0.4, 1000.0
    alpha, *betas = discretize(A, B, delta, discretization)
    alpha_c, *betas_c = discretize(A / c, B / c, c * delta, discretization)
    assert_close(alpha_c, alpha)
    same = all(torch.allclose(b, b_c, rtol=1e-12) for b, b_c in zip(betas, betas_c, strict=True))
    assert same == (discretization.name not in UNIT_OF_TIME_MATTERS)


# ── order of convergence, measured ───────────────────────────────────────────────────────────────────────────────────


@each_discretization
def test_order_on_a_smooth_input(discretization: Discretization) -> None:
    """Each halving of the step divides the error by 2^order. Order 0: the error stays, no matter how short the step."""
    _assert_order(
        discretization.order, convergence.errors(discretization, convergence.smooth_input, convergence.smooth_solution)
    )


@each_discretization
def test_order_on_a_held_input(discretization: Discretization) -> None:
    """The same for an input that is constant over every step, which is all a one-sample rule can know; inf is exact."""
    _assert_order(
        discretization.held_order, convergence.errors(discretization, convergence.held_input, convergence.held_solution)
    )


def _assert_order(declared: float, errors: list[float]) -> None:
    if declared == math.inf:
        assert max(errors) < 1e-13
    elif declared == 0:
        assert min(errors) > 0.05
    else:
        assert min(errors) > 1e-13  # not exact: a slope of rounding errors would mean nothing
        assert convergence.slopes(errors) == pytest.approx([declared] * 3, abs=0.1)


def test_order_of_the_exponential_trapezoid_depends_on_the_mix() -> None:
    """Second order at λ = ½ alone."""
    for mix, order in ((0.5, 2), (0.75, 1), (0.0, 1), (1.0, 1)):
        errors = convergence.errors(
            DISCRETIZATIONS["exptrap"], convergence.smooth_input, convergence.smooth_solution, mix=mix
        )
        assert convergence.slopes(errors) == pytest.approx([order] * 3, abs=0.1)


def test_true_hoh_is_exact_on_a_parabola_with_uneven_steps() -> None:
    """h' = −1.7h + t² at t = 0.1, 0.8, …: all the rule needs is that the samples lie on one parabola."""
    a = -1.7
    delta = double(0.1, 0.7, 0.02, 1.5, 0.3)
    t = delta.cumsum(0)
    particular = lambda t: -(t**2) / a - 2 * t / a**2 - 2 / a**3  # noqa: E731
    exact = particular(t) - particular(double(0.0)) * (a * t).exp()
    start = double(0, 0, 0.25, 0.5).view(1, 1, 1, 4)  # h(0), u(0), u(−½), and the ½ between them
    one = torch.ones(1, 1).double()
    y = selective_scan(
        (t**2)[None, None], delta[None, None], a * one, one, one, discretization="true_hoh", backend="reference",
        initial_state=start,
    )  # fmt: skip
    assert_close(y[0, 0], exact)


@given(st.floats(0.1, 10), st.floats(0, 80))
def test_true_hoh_weighs_its_samples_no_more_than_it_declares(ratio: float, size: float) -> None:
    """Σ|β|/Δ = 1 + r²/(3(1 + r)) at z = 0, and less for every z < 0: within 4.04 for steps of 1:10 to 10:1."""
    rule = DISCRETIZATIONS["true_hoh"]
    total = [
        float(sum(b.abs() for b in rule(double(1), double(z), earlier=(double(1 / ratio),))[1])) for z in (0.0, -size)
    ]
    assert total[0] == pytest.approx(1 + ratio**2 / (3 * (1 + ratio)), rel=1e-12)
    assert rule.largest_weight is not None
    assert total[1] <= total[0] + 1e-12 <= rule.largest_weight + 1e-9


def test_true_hoh_without_a_step_before_is_true_foh() -> None:
    z, delta = -torch.logspace(-3, 1, 9).double(), double(0.3)
    _, (now, before, oldest) = DISCRETIZATIONS["true_hoh"](delta, z, earlier=(double(0),))
    _, expected = DISCRETIZATIONS["true_foh"](delta, z)
    assert torch.equal(torch.stack([now, before, oldest]), torch.stack([*expected, torch.zeros_like(z)]))


def test_true_hoh_without_a_step_before_has_the_gradient_of_true_foh() -> None:
    """By a step before of length 0 it is 0: the rule jumps there, from weights that grow as Δ/Δ_{k−1}."""
    z, delta, none = -torch.logspace(-3, 1, 9).double(), double(0.3), double(0)
    inputs = [x.requires_grad_() for x in (delta, z, none)]

    def gradients(name: str) -> tuple[Tensor, ...]:
        earlier = (none,) if name == "true_hoh" else ()
        _, betas = DISCRETIZATIONS[name](delta, z, earlier=earlier)
        return torch.autograd.grad(betas[0].sum() + 2 * betas[1].sum(), inputs, materialize_grads=True)

    for got, expected in zip(gradients("true_hoh"), gradients("true_foh"), strict=True):
        assert torch.equal(got, expected)
    _, betas = DISCRETIZATIONS["true_hoh"](delta, z, earlier=(double(1e-9),))
    assert min(float(beta.detach().abs().min()) for beta in betas[1:]) > 1e5


# ── higher-order holds ───────────────────────────────────────────────────────────────────────────────────────────────


def test_hold_of_degree_zero_is_zero_order_hold() -> None:
    z = torch.cat([torch.zeros(1), -torch.logspace(-6, 1.9, 50)]).double()
    for got, expected in zip(_tensors(higher_order_hold(0), z), _tensors(ZOH, z), strict=True):
        assert torch.equal(got, expected)
    assert (higher_order_hold(0).exact_equilibrium, higher_order_hold(0).held_order) == (True, math.inf)


def test_holds_up_to_any_degree_add_the_papers_terms() -> None:
    """B̄_n − B̄_{n−1} = A^{−(n+1)}·(e^{AΔ} − Σ_{k≤n}(AΔ)^k/k!)/n!, written as printed; z = −4 so it hardly cancels."""
    A, delta = -2.0, 2.0
    for n in range(1, 6):
        tail = math.exp(A * delta) - sum((A * delta) ** k / math.factorial(k) for k in range(n + 1))
        expected = A ** -(n + 1) * tail / math.factorial(n)
        step = _flat(higher_order_hold(n), delta, A * delta)[1] - _flat(higher_order_hold(n - 1), delta, A * delta)[1]
        assert step == pytest.approx(expected, rel=1e-12)
    assert _flat(DISCRETIZATIONS["hoh"], 2, -4) == _flat(higher_order_hold(2), 2, -4)
    assert _flat(DISCRETIZATIONS["hoh3"], 2, -4) == _flat(higher_order_hold(3), 2, -4)


def test_hold_of_degree_five_runs_and_registers(clean_registry: None) -> None:
    """A degree that is not built in: as an object and, once registered, by name."""
    hold = higher_order_hold(5)
    one, u = torch.ones(1, 1).double(), torch.ones(1, 1, 4).double()
    y = selective_scan(u, u / 2, -one, one, one, discretization=hold, backend="reference")
    alpha, beta = _flat(hold, 0.5, -0.5)
    assert float(y[0, 0, 1]) == pytest.approx(alpha * beta + beta, rel=1e-12)
    register(hold)
    by_name = selective_scan(u, u / 2, -one, one, one, discretization="hoh5", backend="reference")
    assert torch.equal(by_name, y)


def test_hold_needs_a_degree_of_zero_or_more() -> None:
    with pytest.raises(ValueError, match="degree must be 0 or more, got -1"):
        higher_order_hold(-1)


def _tensors(discretization: Discretization, z: Tensor) -> list[Tensor]:
    alpha, betas = discretization(double(0.3).expand_as(z), z)
    return [alpha, *betas]


# ── the registry ─────────────────────────────────────────────────────────────────────────────────────────────────────

FALSE_FACTS = {
    "interval reaches too far below": (RK4_RAW, {"stable": (-3.5, 0)}, r"\|α\| exceeds 1"),
    "interval reaches a little too far below": (RK4_RAW, {"stable": (-2.8, 0)}, r"\|α\| exceeds 1"),
    "interval without end": (RK4_RAW, {"stable": (-math.inf, 0)}, r"\|α\| exceeds 1"),
    "interval ends too early": (ZOH, {"stable": (-5, 0)}, "the stable interval is larger"),
    "interval reaches above zero": (ZOH, {"stable": (-math.inf, 0.5)}, r"\|α\| exceeds 1"),
    "interval stops short of zero": (ZOH, {"stable": (-math.inf, -1)}, "the stable interval is larger"),
    "empty interval": (ZOH, {"stable": (0, 0)}, "empty stable interval"),
    "claims an exact equilibrium": (DISCRETIZATIONS["mamba"], {"exact_equilibrium": True}, "exact_equilibrium=True"),
    "denies its exact equilibrium": (ZOH, {"exact_equilibrium": False}, "exact_equilibrium=False"),
    "too many taps": (ZOH, {"betas": ("Δ·φ1", "0")}, "declares 2 input samples"),
    "no taps": (ZOH, {"betas": ()}, "declares 0 input samples"),
    "claims to converge": (
        DISCRETIZATIONS["foh"],
        {"order": 1, "held_order": 1},
        "does not converge to the continuous system",
    ),
    "denies that it converges": (ZOH, {"order": 0, "held_order": 0}, "it converges to the continuous system"),
    "converges for one input only": (ZOH, {"order": 0}, "it converges to the continuous system"),
    "not finite at z = 0": (
        ZOH,
        {"coefficients": lambda delta, z: (z.exp(), (delta * z.expm1() / z,))},
        "not finite",
    ),
    "a largest weight that is too small": (
        DISCRETIZATIONS["true_hoh"],
        {"largest_weight": 4.0},
        "declares the largest weight 4, but it is 4.0303",
    ),
    "no largest weight": (DISCRETIZATIONS["true_hoh"], {"largest_weight": None}, "largest_weight must be given"),
    "a largest weight without need": (ZOH, {"largest_weight": 1.0}, "largest_weight must be given"),
    "a bare tensor for the taps": (ZOH, {"coefficients": lambda delta, z: (z.exp(), delta)}, "in a tuple"),
}


@pytest.mark.parametrize(("discretization", "change", "message"), FALSE_FACTS.values(), ids=FALSE_FACTS)
def test_register_refuses_a_false_fact(
    discretization: Discretization, change: dict[str, object], message: str, clean_registry: None
) -> None:
    """One lie about an otherwise true rule is found, the sentence names the rule, and nothing is registered."""
    liar = dataclasses.replace(discretization, **{"name": "liar", **change})
    with pytest.raises(ValueError, match=message) as caught:
        register(liar)
    assert "'liar'" in str(caught.value)
    assert "liar" not in DISCRETIZATIONS


@pytest.mark.parametrize("name", ["", "two words", "1st", "a-b"])
def test_register_refuses_a_bad_name(name: str) -> None:
    with pytest.raises(ValueError, match="plain identifier"):
        register(dataclasses.replace(ZOH, name=name))


def test_register_refuses_a_taken_name() -> None:
    with pytest.raises(ValueError, match="'zoh' is already registered"):
        register(dataclasses.replace(DISCRETIZATIONS["mamba"], name="zoh"))
    assert DISCRETIZATIONS["zoh"] is ZOH


@each_discretization
def test_the_truth_is_accepted(discretization: Discretization, clean_registry: None) -> None:
    """The control of the tests above: the same rule with its true facts registers under another name."""
    twin = register(dataclasses.replace(discretization, name="twin"))
    assert DISCRETIZATIONS["twin"] is twin is get_discretization("twin") is get_discretization(twin)


@each_discretization
def test_facts_are_complete(discretization: Discretization) -> None:
    """Every rule says its formulas and its source, one formula per tap, under the name it is registered by."""
    assert DISCRETIZATIONS[discretization.name] is discretization
    assert discretization.taps == len(discretization.betas) >= discretization.steps
    assert discretization.alpha
    assert all(discretization.betas)
    assert discretization.source
    # One sample cannot know how the input varies; several cannot know that it jumped.
    assert discretization.order <= 1 if discretization.taps == 1 else discretization.held_order == 1
    assert min(discretization.held_order, discretization.order) >= 0


def test_unknown_discretization_lists_the_known_and_the_closest() -> None:
    with pytest.raises(
        ValueError, match=r"unknown discretization 'blil' \(did you mean 'bil'\?\); known: mamba, zoh, foh, bil"
    ):
        get_discretization("blil")
