"""What torch.compile is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def assume_constant_result(function: Function) -> Function:
    """As `torch.compiler.assume_constant_result`, but calling that imports the compiler, which takes two seconds."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
