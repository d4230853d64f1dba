"""The one table of tolerances: relative, by dtype, the same on every machine."""

import torch
from torch import Tensor

VALUES = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}
"""Of a coefficient, against itself; of a scan's output, against the largest output. The half dtypes: one rounding."""

SCAN = {**VALUES, torch.float32: 2e-6}
"""Of a fused backend's output, over hundreds of tokens and on every instruction set, against the largest output."""

DERIVATIVES = {torch.float64: 1e-12, torch.float32: 1e-5}


def assert_close(got: Tensor, expected: Tensor, table: dict[torch.dtype, float] = VALUES, what: str = "result") -> None:
    """`got` equals `expected` (of higher or equal precision) to the tolerance of its own dtype."""
    assert got.shape == expected.shape, f"{what}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    if not got.numel():
        return
    got, expected = got.detach(), expected.detach()  # so that the sentence below can show their values
    error = (got.double() - expected.double()).abs()
    scale = expected.double().abs().max().clamp(min=1e-30)
    worst = int(error.argmax())
    assert error.isfinite().all(), f"{what}: not finite"
    assert error.max() <= table[got.dtype] * scale, (
        f"{what}: off by {float(error.max() / scale):.2e} of the largest value, allowed {table[got.dtype]:.0e}; "
        f"got {float(got.flatten()[worst])!r}, expected {float(expected.flatten()[worst])!r} (element {worst})"
    )
