"""The mixer alone: its definition, its symmetry, its initialisation."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.models import slow_vim
from tests.systems import FUSED
from tests.tolerances import DERIVATIVES, assert_close
from tustin.models import Mixer

FORWARD = ("conv1d.weight", "conv1d.bias", "x_proj.weight", "dt_proj.weight", "dt_proj.bias", "A_log", "D")
BACKWARD = (
    "conv1d_b.weight",
    "conv1d_b.bias",
    "x_proj_b.weight",
    "dt_proj_b.weight",
    "dt_proj_b.bias",
    "A_b_log",
    "D_b",
)


def mixer_and_input(discretization: str = "bil", d: int = 20, L: int = 9, **kwargs: object) -> tuple[Mixer, Tensor]:
    torch.manual_seed(0)
    mixer = Mixer(d, d_state=4, discretization=discretization, dt_init_backward="mamba", **kwargs)  # type: ignore[arg-type]
    slow_vim.randomise(mixer)
    return mixer, torch.randn(2, L, d)


@pytest.mark.parametrize("L", [1, 2, 3, 4, 66])
@pytest.mark.parametrize("discretization", FUSED)
def test_equals_the_definition(discretization: str, L: int) -> None:
    mixer, x = mixer_and_input(discretization, L=L)
    x.requires_grad_()
    out = mixer(x)
    weights = torch.randn(out.shape)
    exact_x = x.detach().double().requires_grad_()
    exact = {f"mixer.{name}": p for name, p in slow_vim.double_parameters(mixer).items()}
    expected = slow_vim.mixer(exact, exact_x, discretization)
    assert_close(out, expected, DERIVATIVES)
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    for name, p in [("input", x), *mixer.named_parameters()]:
        reference = exact_x if p is x else exact[f"mixer.{name}"]
        assert p.grad is not None, name
        assert reference.grad is not None, name
        assert_close(p.grad, reference.grad, DERIVATIVES, name)


def test_float64_all_the_way() -> None:
    mixer, x = mixer_and_input("zoh")
    exact = {f"mixer.{name}": p.double() for name, p in slow_vim.double_parameters(mixer).items()}
    got = mixer.double()(x.double())
    assert got.dtype == torch.float64
    assert_close(got, slow_vim.mixer(exact, x.double(), "zoh"))


def test_backends_agree() -> None:
    mixer, x = mixer_and_input()
    reference, _ = mixer_and_input(backend="reference")
    assert_close(mixer(x), reference(x).double(), DERIVATIVES)


def test_exchanging_the_directions_flips_the_output() -> None:
    mixer, x = mixer_and_input()
    exchanged, _ = mixer_and_input()
    state = mixer.state_dict()
    pairs = dict([*zip(FORWARD, BACKWARD, strict=True), *zip(BACKWARD, FORWARD, strict=True)])
    exchanged.load_state_dict({name: state[pairs.get(name, name)] for name in state})
    assert_close(exchanged(x.flip(1)).flip(1), mixer(x).double(), DERIVATIVES)


def test_each_direction_sees_only_its_side() -> None:
    """Silence the outputs of one direction: a change of token 5 then moves 5, 6, … or 5, 4, …, and no other."""
    for silent, moved in (("x_proj_b.weight", range(5, 9)), ("x_proj.weight", range(6))):
        mixer, x = mixer_and_input()
        suffix = "_b" if silent.startswith("x_proj_b") else ""
        with torch.no_grad():
            mixer.get_parameter(silent).zero_()
            mixer.get_parameter(f"D{suffix}").zero_()
        other = x.clone()
        other[:, 5] += 1
        changed = (mixer(x) != mixer(other)).any(dim=-1).any(dim=0)
        assert changed.nonzero().flatten().tolist() == list(moved)


def test_initial_steps() -> None:
    """Mamba's steps lie between 0.001 and 0.1; ViM's backward direction starts at softplus(0) = 0.69."""
    torch.manual_seed(0)
    vim, symmetric = Mixer(64), Mixer(64, dt_init_backward="mamba")
    for bias in (vim.dt_proj.bias, symmetric.dt_proj.bias, symmetric.dt_proj_b.bias):
        steps = F.softplus(bias)
        assert 0.001 <= steps.min() < 0.003
        assert 0.05 < steps.max() <= 0.1001
    assert not vim.dt_proj_b.bias.any()
    assert not torch.equal(symmetric.dt_proj.bias, symmetric.dt_proj_b.bias)


def test_initial_system() -> None:
    mixer = Mixer(24, d_state=5)
    for A_log, D in ((mixer.A_log, mixer.D), (mixer.A_b_log, mixer.D_b)):
        torch.testing.assert_close(A_log.exp(), torch.arange(1.0, 6.0).expand(48, 5))
        assert torch.equal(D, torch.ones(48))
    for dt_proj in (mixer.dt_proj, mixer.dt_proj_b):
        assert dt_proj.weight.shape == (48, 2)
        assert 0.6 < dt_proj.weight.abs().max() <= 2**-0.5


def test_unknown_names() -> None:
    with pytest.raises(ValueError, match=r"unknown discretization 'bill' \(did you mean 'bil'\?\); known: mamba, zoh"):
        Mixer(16, discretization="bill")
    with pytest.raises(
        ValueError, match=r"unknown dt_init_backward 'mambo' \(did you mean 'mamba'\?\); known: vim, mamba"
    ):
        Mixer(16, dt_init_backward="mambo")
