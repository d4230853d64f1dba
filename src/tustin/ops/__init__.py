"""HOW things run: the operators, each with its reference and its fused kernels, and what they share."""

from .conv import causal_conv
from .rowwise import gated_mean, rms_norm
from .scan import selective_scan
from .update import causal_conv_update, selective_state_update

__all__ = ["causal_conv", "causal_conv_update", "gated_mean", "rms_norm", "selective_scan", "selective_state_update"]
