"""What a model keeps from token to token, and a name that models import and seldom use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

__all__ = ["GenerationMixin", "InferenceParams"]


@dataclass
class InferenceParams:
    """How far a model has read, and the states of its layers by `layer_idx`."""

    max_seqlen: int
    max_batch_size: int
    seqlen_offset: int = 0
    batch_size_offset: int = 0
    key_value_memory_dict: dict[int, Any] = field(default_factory=dict)
    lengths_per_sample: Tensor | None = None

    def reset(self, max_seqlen: int, max_batch_size: int) -> None:
        self.max_seqlen, self.max_batch_size, self.seqlen_offset = max_seqlen, max_batch_size, 0
        if self.lengths_per_sample is not None:
            self.lengths_per_sample.zero_()


class GenerationMixin:
    """Vision models import this name and leave it at that. Nobody can inherit from it: it generates nothing."""

    def __init_subclass__(cls, **options: Any) -> None:
        raise ImportError(
            f"{cls.__name__} needs mamba_ssm's GenerationMixin, which tustin.compat does not have; "
            "to generate text, use a Mamba model of transformers with tustin.adapt"
        )
