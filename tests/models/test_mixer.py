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
    torch.manual_seed(0)
    long = Mixer(64, dt_init_forward="long", dt_init_backward="vim")
    torch.testing.assert_close(F.softplus(long.dt_proj.bias), 10 * F.softplus(vim.dt_proj.bias))
    assert torch.equal(long.x_proj_b.weight, vim.x_proj_b.weight), "nothing else starts otherwise"
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


def test_lambda_starts_at_a_half_and_is_learned() -> None:
    """And the other weights are those of another rule: a pair of runs differs in nothing but the rule."""
    models = []
    for discretization in ("mamba", "exptrap"):
        torch.manual_seed(0)
        models.append((Mixer(20, d_state=4, discretization=discretization), torch.randn(2, 9, 20)))
    (other, x), (mixer, same_x) = models
    assert torch.equal(x, same_x)
    own = dict(mixer.named_parameters())
    for name, parameter in other.named_parameters():
        assert torch.equal(parameter, own.pop(name)), name
    assert sorted(own) == [f"mix_proj{b}.{part}" for b in ("", "_b") for part in ("0.weight", "1.bias", "1.weight")]
    u = torch.randn(2, 40, 9)
    for reverse in (False, True):
        mix = mixer.scan_arguments(u, reverse)["mix"]
        assert mix.shape == u.shape
        assert bool((mix == 0.5).all())
    mixer(x).square().sum().backward()
    for part in (mixer.mix_proj, mixer.mix_proj_b):
        assert part is not None
        assert float(part[1].weight.grad.abs().max()) > 0  # type: ignore[union-attr]
    assert Mixer(20, discretization="exptrap", state=False).mix_proj is None


def test_unknown_names() -> None:
    with pytest.raises(ValueError, match=r"unknown discretization 'bill' \(did you mean 'bil'\?\); known: mamba, zoh"):
        Mixer(16, discretization="bill")
    with pytest.raises(
        ValueError, match=r"unknown dt_init_backward 'mambo' \(did you mean 'mamba'\?\); known: vim, mamba, long"
    ):
        Mixer(16, dt_init_backward="mambo")
    with pytest.raises(ValueError, match="unknown dt_init_forward 'short'"):
        Mixer(16, dt_init_forward="short")


# --- what experiments change ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d_conv", [1, 2, 3, 7])
def test_a_convolution_of_any_width(d_conv: int) -> None:
    mixer, x = mixer_and_input("zoh", d_conv=d_conv)
    exact = {f"mixer.{name}": p for name, p in slow_vim.double_parameters(mixer).items()}
    assert mixer.conv1d.weight.shape == (40, 1, d_conv)
    assert_close(mixer(x), slow_vim.mixer(exact, x.double(), "zoh"), DERIVATIVES)


@pytest.mark.parametrize("dilation", [2, 3])
def test_a_dilated_convolution_is_one_with_zeros_in_between(dilation: int) -> None:
    mixer, x = mixer_and_input("zoh", conv_dilation=dilation)
    exact = {f"mixer.{name}": p for name, p in slow_vim.double_parameters(mixer).items()}
    for name in ("mixer.conv1d.weight", "mixer.conv1d_b.weight"):
        wide = torch.zeros(40, 1, 3 * dilation + 1, dtype=torch.float64)
        wide[..., ::dilation] = exact[name]
        exact[name] = wide
    assert_close(mixer(x), slow_vim.mixer(exact, x.double(), "zoh"), DERIVATIVES)


@pytest.mark.parametrize("discretization", FUSED)
def test_a_scale_of_the_steps(discretization: str) -> None:
    """Δ/4 is what a step of Δ/4 is: the result is that of a mixer whose biases give such steps everywhere."""
    mixer, x = mixer_and_input(discretization, delta_scale=0.25)
    other, _ = mixer_and_input(discretization)
    with torch.no_grad():
        for one, suffix in ((mixer, ""), (mixer, "_b"), (other, ""), (other, "_b")):
            one.get_parameter(f"dt_proj{suffix}.weight").zero_()
            steps = torch.linspace(0.01, 0.4, 40) / (4 if one is other else 1)
            one.get_parameter(f"dt_proj{suffix}.bias").copy_(torch.log(torch.expm1(steps)))
    assert_close(mixer(x), other.double()(x.double()), DERIVATIVES)


def test_without_its_state_a_mixer_sees_what_the_convolution_sees() -> None:
    mixer, x = mixer_and_input(state=False)
    exact = {f"mixer.{name}": p for name, p in slow_vim.double_parameters(mixer).items()}
    for name in ("mixer.x_proj.weight", "mixer.x_proj_b.weight"):
        exact[name] = torch.zeros_like(exact[name])  # no B, no state
    assert_close(mixer(x), slow_vim.mixer(exact, x.double(), "bil"), DERIVATIVES)
    other = x.clone()
    other[:, 4] += 1
    changed = (mixer(x) != mixer(other)).any(dim=-1).any(dim=0)
    assert changed.nonzero().flatten().tolist() == list(range(1, 8)), "three tokens to either side"
    with_state, _ = mixer_and_input()
    assert mixer.state_dict().keys() == with_state.state_dict().keys()
    mixer(x).sum().backward()
    for name, p in mixer.named_parameters():
        assert (p.grad is None) == name.startswith(("x_proj", "dt_proj", "A_")), name
