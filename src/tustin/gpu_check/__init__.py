"""The GPU kernels on a GPU: are their numbers right, are they the same twice, and how fast are they?

What is asked of a GPU here is what the tests ask of Triton's interpreter, so that nothing but the device is new. The
interpreter can be asked the same questions, on one small shape: with TRITON_INTERPRET=1 and the device "cpu".
"""

from __future__ import annotations

from .device import Device, find
from .plan import Plan
from .report import failed, summary, tables
from .run import ChecksFailed, run

__all__ = ["ChecksFailed", "Device", "Plan", "failed", "find", "run", "summary", "tables"]
