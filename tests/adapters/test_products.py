"""Linear layers by oneDNN: the same numbers, and only where nobody wants more than numbers."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import tustin
from tests.adapters.language_models import built, each_model, logits, mamba, tokens
from tests.tolerances import assert_close
from tustin.adapters import products

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch was built without oneDNN")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As on a CPU where oneDNN is faster. Every layer of which a mixer's forward pass asks says who computes it."""
    told: list[str] = []
    plain = products.are_plain

    def are_plain(*tensors: Tensor | None) -> bool:
        told.append("onednn" if plain(*tensors) else "torch")
        return told[-1] == "onednn"

    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "are_plain", are_plain)
    return told


@needs_onednn
@each_model
def test_prompts(build: Callable[..., torch.nn.Module], taken: list[str]) -> None:
    model, own = tustin.adapt(built(build)), built(build)
    with torch.inference_mode():
        got = logits(model, tokens())
    assert taken
    assert set(taken) == {"onednn"}
    assert_close(got, logits(own, tokens()), {torch.float32: 1e-4})


@needs_onednn
@pytest.mark.parametrize("bias", [False, True])
def test_a_layer(bias: bool) -> None:
    torch.manual_seed(0)
    for rows, inputs, outputs in ((2, 3, 4), (512, 768, 100), (5, 1, 1)):
        x, weight = torch.randn(2, rows, inputs), torch.randn(outputs, inputs)
        more = (torch.randn(outputs),) if bias else ()
        for given in (x, x.transpose(0, 1), x.flip(0)[..., :inputs]):
            with torch.no_grad(), products._ByOneDNN():
                got = F.linear(given, weight, *more)
            exact = F.linear(given.double(), weight.double(), *(b.double() for b in more))
            assert_close(got, exact.float(), {torch.float32: 1e-5})


def test_where_it_is_left_alone(taken: list[str]) -> None:
    model = tustin.adapt(built(mamba))
    model(tokens())  # with gradients
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            model(tokens())
        with FlopCounterMode(display=False) as counter:
            model(tokens())
        assert counter.get_total_flops() > 0
        model(tokens(1, 1))
    assert taken == []
    with torch.no_grad():
        model.double()(tokens())
    assert set(taken) == {"torch"}


@pytest.mark.parametrize("missing", ["AuthenticAMD", "AVX512", "mkldnn", "mkl"])
def test_it_is_for_amd_with_avx_512(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "vendor_id : AuthenticAMD"
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: missing != "mkl")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: missing != "mkldnn")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2" if missing == "AVX512" else "AVX512")
    monkeypatch.setattr(products.Path, "exists", lambda path: True)
    monkeypatch.setattr(products.Path, "read_text", lambda path: text.replace(missing, "GenuineIntel"))
    assert not products.onednn_is_faster.__wrapped__()
