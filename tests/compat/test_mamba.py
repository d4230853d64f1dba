"""Mamba's layer and block, as they come from `mamba_ssm`."""

import copy
import io
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import ModuleType

import pytest
import torch
from torch import nn

import tustin.compat
from tests.tolerances import SCAN, assert_close
from tustin.discretize import DISCRETIZATIONS
from tustin.models.mixer import Mixer

from . import oracle
from .stand_in import installed

KINDS = {
    "mamba": {},
    "odd sizes": {"d_state": 5, "d_conv": 3, "expand": 3, "dt_rank": 2, "bias": True, "conv_bias": False},
    "v1": {"bimamba_type": "v1"},
    "v2": {"bimamba_type": "v2"},
    "v2, halved": {"bimamba_type": "v2", "if_divide_out": True, "init_layer_scale": 0.5},
    "v2, slow path": {"bimamba_type": "v2", "use_fast_path": False, "dt_init": "constant"},
}


@pytest.fixture
def mamba_ssm() -> Iterator[ModuleType]:
    with installed():
        import mamba_ssm

        torch.manual_seed(0)
        yield mamba_ssm


def tokens(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", KINDS)
def test_it_computes_what_a_mamba_layer_computes(mamba_ssm: ModuleType, kind: str) -> None:
    layer = mamba_ssm.Mamba(12, **KINDS[kind])
    exact = copy.deepcopy(layer).double()
    x = tokens(2, 19, 12)
    y, expected = layer(x), oracle.mamba(exact, x.double())
    assert_close(y, expected, SCAN)
    direction = tokens(2, 19, 12)
    y.backward(direction)
    expected.backward(direction.double())
    for (name, parameter), (_, exactly) in zip(layer.named_parameters(), exact.named_parameters(), strict=True):
        assert_close(parameter.grad, exactly.grad, {torch.float32: 2e-5}, name)


def test_its_parameters_are_those_of_our_own_mixer(mamba_ssm: ModuleType) -> None:
    """Whose names are the official ones, so that Vision Mamba's weights load."""
    layer, mixer = mamba_ssm.Mamba(16, bimamba_type="v2", if_divide_out=True), Mixer(16)
    mixer.load_state_dict(layer.state_dict())
    x = tokens(2, 9, 16)
    assert torch.equal(layer(x), mixer(x))
    assert set(mamba_ssm.Mamba(16, bimamba_type="v1").state_dict()) == {
        name for name in layer.state_dict() if "_b." not in name and name != "D_b"
    }


@pytest.mark.parametrize(
    ("words", "kind", "halved"),
    [
        ({"bimamba": True}, "v2", False),
        ({"bimamba": False}, "none", False),
        ({"bimamba_type": None}, "none", False),
        ({"bimamba_type": "v2", "if_devide_out": True}, "v2", True),
    ],
)
def test_the_words_of_other_forks(mamba_ssm: ModuleType, words: dict[str, object], kind: str, halved: bool) -> None:
    layer = mamba_ssm.Mamba(16, **words)
    assert (layer.bimamba_type, layer.if_divide_out) == (kind, halved)


def test_what_a_generic_initialisation_must_spare_is_marked(mamba_ssm: ModuleType) -> None:
    layer = mamba_ssm.Mamba(16, bimamba_type="v2", dtype=torch.bfloat16)
    assert layer.dt_proj.bias._no_reinit
    assert not hasattr(layer.dt_proj_b.bias, "_no_reinit")  # as in the official code
    for name in ("A_log", "D", "A_b_log", "D_b"):
        parameter = getattr(layer, name)
        assert parameter._no_weight_decay
        assert parameter.dtype == torch.float32
    steps = nn.functional.softplus(mamba_ssm.Mamba(64).dt_proj.bias)
    assert steps.min() >= 0.99e-3
    assert steps.max() <= 0.101


# ── token by token ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.filterwarnings("ignore:selective_.* runs on the slow")  # rules of several samples
@pytest.mark.parametrize("rule", DISCRETIZATIONS)
@pytest.mark.parametrize("first", [1, 2, 7])
def test_prefill_and_steps_are_the_whole(mamba_ssm: ModuleType, rule: str, first: int) -> None:
    from mamba_ssm.utils.generation import InferenceParams

    tustin.compat.install(replace=True, discretization=rule)
    layer = mamba_ssm.Mamba(12, layer_idx=3, bias=True)
    x = tokens(2, 9, 12)
    kept = InferenceParams(max_seqlen=9, max_batch_size=2)
    with torch.no_grad():
        pieces = [layer(x[:, :first], inference_params=kept)]
        for k in range(first, 9):
            kept.seqlen_offset = k
            pieces.append(layer(x[:, k : k + 1], inference_params=kept))
        assert_close(torch.cat(pieces, 1), layer(x), SCAN)
    assert list(kept.key_value_memory_dict) == [3]
    kept.reset(9, 2)
    assert kept.seqlen_offset == 0


def test_mistakes_are_sentences(mamba_ssm: ModuleType) -> None:
    Mamba = mamba_ssm.Mamba
    with pytest.raises(ValueError, match=r"unknown bimamba_type 'v3'.*known: none, v1, v2"):
        Mamba(16, bimamba_type="v3")
    with pytest.raises(ValueError, match="unknown dt_init 'zero'"):
        Mamba(16, dt_init="zero")
    with pytest.raises(ValueError, match=r"hidden_states has shape \(4, 16\), expected \(batch, L, 16\)"):
        Mamba(16)(torch.zeros(4, 16))
    with pytest.raises(ValueError, match="made without one"):
        Mamba(16)(torch.zeros(1, 4, 16), inference_params=object())
    with pytest.raises(ValueError, match="reads both directions, so it cannot run token by token"):
        Mamba(16, bimamba_type="v2").allocate_inference_cache(1, 8)
    conv_state, ssm_state = Mamba(16).allocate_inference_cache(2, 8, dtype=torch.float64)
    assert (conv_state.shape, ssm_state.shape) == ((2, 32, 4), (2, 32, 16))
    assert ssm_state.dtype == torch.float64
    with pytest.raises(ValueError, match="has 2 tokens, expected 1"):
        Mamba(16).step(torch.zeros(2, 2, 16), conv_state, ssm_state)


# ── what people do to layers ─────────────────────────────────────────────────────────────────────────────────────────


def test_it_can_be_copied_pickled_saved_and_loaded(mamba_ssm: ModuleType) -> None:
    layer, x = mamba_ssm.Mamba(16), tokens(1, 5, 16)
    y = layer(x)
    assert torch.equal(copy.deepcopy(layer)(x), y)
    pickled = pickle.dumps(layer)
    assert b"tustin" not in pickled, "the real package can read it"
    assert torch.equal(pickle.loads(pickled)(x), y)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), y)


def test_threads_see_the_same_rule_and_get_the_same_bits(mamba_ssm: ModuleType) -> None:
    tustin.compat.install(replace=True, discretization="bil")
    layer, x = mamba_ssm.Mamba(16), tokens(1, 33, 16)
    y = layer(x)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(other, y) for other in pool.map(lambda _: layer(x), range(8)))
    tustin.compat.install(replace=True, discretization="mamba")
    assert not torch.equal(layer(x), y)


@pytest.mark.usefixtures("own_caches")
def test_it_compiles_whole(mamba_ssm: ModuleType) -> None:
    tustin.compat.install(replace=True, discretization="zoh")
    layer, x = mamba_ssm.Mamba(16, bimamba_type="v2"), tokens(2, 9, 16)
    expected = layer(x)
    expected.sum().backward()
    gradient, layer.in_proj.weight.grad = layer.in_proj.weight.grad, None
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
    compiled.sum().backward()
    assert_close(compiled, expected, SCAN)
    assert_close(layer.in_proj.weight.grad, gradient, {torch.float32: 1e-5})


@pytest.mark.parametrize("kind", ["mamba", "v1", "v2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_by_dtype_and_by_autocast(mamba_ssm: ModuleType, kind: str, dtype: torch.dtype) -> None:
    layer = mamba_ssm.Mamba(16, **KINDS[kind])
    x = tokens(2, 9, 16)
    expected = layer(x)
    with torch.autocast("cpu", dtype):
        cast = layer(x)
    half = layer.to(dtype)(x.to(dtype))
    for y in (cast, half):
        assert y.dtype == dtype
        assert_close(y, expected, {dtype: 4e-2})  # weights, projections and products are rounded, too


def test_an_empty_batch_and_one_token(mamba_ssm: ModuleType) -> None:
    for kind in KINDS.values():
        layer = mamba_ssm.Mamba(16, **kind)
        assert layer(torch.zeros(0, 5, 16)).shape == (0, 5, 16)
        assert layer(tokens(1, 1, 16)).shape == (1, 1, 16)


@pytest.mark.parametrize("rms", [False, True])
@pytest.mark.parametrize("mlp", [None, partial(nn.Linear, 12)])
def test_a_fused_block_is_the_same_as_one_that_is_not(mamba_ssm: ModuleType, rms: bool, mlp: object) -> None:
    from mamba_ssm.modules.mamba_simple import Block
    from mamba_ssm.ops.triton.layernorm import RMSNorm

    options = {"norm_cls": partial(RMSNorm if rms else nn.LayerNorm, eps=1e-5), **({"mlp_cls": mlp} if mlp else {})}
    fused = Block(12, mamba_ssm.Mamba, fused_add_norm=True, residual_in_fp32=True, **options)
    plain = Block(12, mamba_ssm.Mamba, residual_in_fp32=True, **options)
    plain.load_state_dict(fused.state_dict())
    x = tokens(2, 5, 12)
    states = [block(*block(x)) for block in (fused, plain)]
    for got, expected in zip(*states, strict=True):
        assert_close(got, expected, SCAN)
    with pytest.raises(TypeError, match="needs a LayerNorm or RMSNorm, got Identity"):
        Block(12, mamba_ssm.Mamba, norm_cls=lambda d: nn.Identity(), fused_add_norm=True)
