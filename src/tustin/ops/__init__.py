"""HOW things run: the operators, each with its reference and its fused kernels, and what they share."""

from .conv import causal_conv
from .onnx import register_when_needed
from .rowwise import gated_mean, rms_norm
from .scan import selective_scan

__all__ = ["causal_conv", "gated_mean", "rms_norm", "selective_scan"]

register_when_needed()
