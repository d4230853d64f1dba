"""The GPU kernels as compiled code, on a machine that needs no GPU: what they use, and what that lets one expect."""

from __future__ import annotations

from ...support.names import unknown

TARGETS: dict[str, tuple[str, int | str, int]] = {
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "gfx942": ("hip", "gfx942", 64),
}
"""What is compiled for, A100, H100, B200 and MI300X, in the words of Triton: backend, architecture, lanes of a warp."""


def described(name: str) -> tuple[str, int | str, int]:
    """A target in the words of Triton; also one of NVIDIA's or AMD's that is not listed above."""
    if name in TARGETS:
        return TARGETS[name]
    if name.startswith("sm_"):
        return "cuda", int(name.removeprefix("sm_")), 32
    return "hip", name, 64 if name.startswith("gfx9") else 32


def known_target(name: str) -> str:
    """The name, if there is such a target."""
    if name not in TARGETS:
        raise ValueError(unknown("target", name, list(TARGETS)))
    return name
