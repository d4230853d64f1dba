"""The native backend: the same bits every time, tensors of any size, and what it leaves to the reference."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.native import needs_native
from tests.systems import OPTIONAL, discretizations_of, system
from tustin import DISCRETIZATIONS, register, selective_scan
from tustin.ops.scan import BACKENDS

pytestmark = needs_native
each_discretization = pytest.mark.parametrize("discretization", discretizations_of("native"))


def results(x: dict[str, Tensor], **how: object) -> dict[str, Tensor]:
    """Output, last state, and the gradient of every argument for fixed random gradients of both."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in x.items()}
    out, last = selective_scan(**leaves, return_last_state=True, **how)
    random = torch.Generator().manual_seed(1)
    outgoing = [torch.randn(t.shape, generator=random).to(t.dtype) for t in (out, last)]
    gradients = torch.autograd.grad([out, last], list(leaves.values()), outgoing)
    return {"out": out.detach(), "last_state": last.detach()} | dict(zip(leaves, gradients, strict=True))


def assert_same_bits(got: dict[str, Tensor], expected: dict[str, Tensor], what: str) -> None:
    for name, tensor in expected.items():
        assert torch.equal(got[name], tensor), f"{name} differs: {what}"


@each_discretization
def test_same_bits_every_time(discretization: str) -> None:
    """Over runs, numbers of threads, layouts, and whether a sample is alone or in a batch."""
    x = system(8, 40, 70, 5, optional=OPTIONAL, discretization=discretization)
    how = {"discretization": discretization, "backend": "native", "delta_softplus": True}
    first = results(x, **how)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            for _ in range(7):
                assert_same_bits(results(x, **how), first, f"another run on {count} threads")
    finally:
        torch.set_num_threads(threads)
    moved = x | {name: x[name].transpose(1, 2).contiguous().transpose(1, 2) for name in ("u", "delta", "z")}
    assert_same_bits(results(moved, **how), first, "another layout")

    per_sample = ("u", "delta", "z", "B", "C", "initial_state", "mix")
    whole = selective_scan(**x, **how)
    for i in range(8):
        one = {name: t[i : i + 1] if name in per_sample else t for name, t in x.items()}
        assert torch.equal(selective_scan(**one, **how), whole[i : i + 1])


@pytest.mark.parametrize("reverse", [False, True])
def test_offsets_beyond_32_bits(reverse: bool, tmp_path: Path) -> None:
    """Strides of over 2³¹ elements, in a file that is nearly all hole."""
    far = (1 << 31) + 64
    memory = torch.from_file(str(tmp_path / "far"), shared=True, size=4 * far, dtype=torch.float32)
    x = system(2, 3, 4, 2)
    spread = dict(x)
    for place, (name, strides) in enumerate({"u": (far, 20, 1), "delta": (1, far, 2), "B": (50, 1, far)}.items()):
        view = memory[1000 * place :].as_strided(x[name].shape, strides)
        spread[name] = view.copy_(x[name])
    how = {"discretization": "zoh", "reverse": reverse, "backend": "native"}
    assert_same_bits(results(spread, **how), results(x, **how), "far apart in memory")


def test_a_discretization_of_ones_own_runs_on_the_reference_and_says_so_once(clean_registry: None) -> None:
    """`auto` falls back with one warning; asking for native by name is an error that says why."""
    register(replace(DISCRETIZATIONS["bil"], name="mine"))
    x = system()
    with pytest.warns(UserWarning, match="because the native backend cannot run it: discretization 'mine'"):
        out = selective_scan(**x, discretization="mine")
    assert torch.equal(out, selective_scan(**x, discretization="mine"))  # a second warning would be an error
    assert torch.equal(out, selective_scan(**x, discretization="bil", backend="reference"))
    with pytest.raises(
        RuntimeError, match="'native' cannot be used: discretization 'mine' is not one of those compiled"
    ):
        selective_scan(**x, discretization="mine", backend="native")
    imitation = replace(DISCRETIZATIONS["zoh"], coefficients=DISCRETIZATIONS["bil"].coefficients)
    assert BACKENDS["native"].refuses(torch.device("cpu"), imitation)
