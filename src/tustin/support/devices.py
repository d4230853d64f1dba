"""Where tensors may be. A module of its own, so that the command line knows it without importing PyTorch."""

GPUS = ("cuda", "xpu")
"""The devices that Triton compiles for, by PyTorch's names: AMD's are "cuda", too."""
