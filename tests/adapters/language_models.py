"""Small language models of transformers with random weights, one of each type that can be adapted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

transformers.logging.set_verbosity_error()  # it warns of the slow path that we replace
VOCABULARY = 61
_HYBRID = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "mamba_d_state": 4,
    "mamba_dt_rank": 3,
}


def mamba(**more: Any) -> nn.Module:
    config = transformers.MambaConfig(vocab_size=VOCABULARY, hidden_size=24, state_size=5, num_hidden_layers=2, **more)
    return transformers.MambaForCausalLM(config)


def falcon_mamba() -> nn.Module:
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 24, "state_size": 4, "num_hidden_layers": 2}
    return transformers.FalconMambaForCausalLM(transformers.FalconMambaConfig(**sizes))


def jamba() -> nn.Module:
    layers = {"num_hidden_layers": 4, "attn_layer_period": 4, "attn_layer_offset": 2, "expert_layer_offset": 1}
    config = transformers.JambaConfig(**_HYBRID, **layers, num_experts=2, num_experts_per_tok=1)
    return transformers.JambaForCausalLM(config)


def zamba() -> nn.Module:
    layers = {"num_hidden_layers": 5, "attn_layer_period": 2, "attn_layer_offset": 0, "n_mamba_heads": 2}
    config = transformers.ZambaConfig(**_HYBRID, **layers)
    return transformers.ZambaForCausalLM(config)


MODELS = (mamba, falcon_mamba, jamba, zamba)
each_model = pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)


def built(build: Callable[..., nn.Module], **more: Any) -> nn.Module:
    """Ready to predict, always with the same weights, none of which is zero."""
    torch.manual_seed(0)
    model = build(**more).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("A_log", ".D")):
                weight.add_(0.2 * torch.rand_like(weight))
            elif "norm" not in name:
                weight.copy_(
                    0.2 * torch.randn_like(weight) - (2.0 if name.endswith(("dt_proj.bias", "dt_proj_bias")) else 0)
                )
    return model


def tokens(batch: int = 2, length: int = 12) -> Tensor:
    return torch.randint(0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(1))


def logits(model: nn.Module, ids: Tensor, **more: Any) -> Tensor:
    with torch.no_grad():
        out: Tensor = model(ids, **more).logits
    return out
