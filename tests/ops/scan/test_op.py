"""The scan as a PyTorch operator: what traces, transforms or moves it must see the same function."""

import multiprocessing
import platform
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.native import in_threads_at_once, run_python
from tests.systems import FUSED, OPTIONAL, system
from tustin import DISCRETIZATIONS, selective_scan
from tustin.ops import native
from tustin.ops.scan.arguments import Options, Tensors

pytestmark = [
    pytest.mark.skipif(bool(native.missing()), reason=str(native.missing())),
    pytest.mark.usefixtures("own_caches"),
]
TWO_SAMPLES = [name for name in FUSED if DISCRETIZATIONS[name].taps == 2]


def scan(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    out = selective_scan(u, delta, A, B, C, discretization="bil", delta_softplus=True)
    assert isinstance(out, Tensor)
    return out


def operator_arguments(x: dict[str, Tensor], discretization: str) -> tuple[Any, ...]:
    tensors = Tensors(**{name: t.requires_grad_() for name, t in x.items()})
    return *tensors, *Options(True, discretization, False), True


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck looks at it
@pytest.mark.parametrize("optional", [(), OPTIONAL], ids=["bare", "all"])
@pytest.mark.parametrize(
    ("form", "discretization"),
    [("token", "zoh"), ("grouped", "zoh"), ("constant", "zoh"), *(("token", name) for name in TWO_SAMPLES)],
)
def test_opcheck(optional: tuple[str, ...], form: str, discretization: str) -> None:
    """PyTorch's own examination: schema, fake tensors, autograd registration, tracing with dynamic shapes."""
    x = system(2, 4, 5, 3, B=form, optional=optional, discretization=discretization)
    arguments = operator_arguments(x, discretization)
    torch.library.opcheck(torch.ops.tustin.selective_scan.default, arguments)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_without_a_graph_break(backend: str) -> None:
    """One graph, the same bits, and the gradient through it."""
    x = [t.requires_grad_() for t in system(2, 16, 40, 4).values()]
    compiled = torch.compile(scan, fullgraph=True, backend=backend)
    assert torch.equal(compiled(*x), scan(*x))
    gradients = torch.autograd.grad(compiled(*x).sum(), x)
    for got, expected in zip(gradients, torch.autograd.grad(scan(*x).sum(), x), strict=True):
        assert torch.equal(got, expected)


def test_compile_with_dynamic_shapes() -> None:
    compiled = torch.compile(scan, fullgraph=True, backend="aot_eager", dynamic=True)
    for L in (7, 40, 65):
        x = system(2, 16, L, 4).values()
        assert torch.equal(compiled(*x), scan(*x))


def test_export() -> None:
    class Layer(torch.nn.Module):
        def forward(self, *x: Tensor) -> Tensor:
            return scan(*x)

    x = tuple(system(2, 16, 40, 4).values())
    assert torch.equal(torch.export.export(Layer(), x).module()(*x), scan(*x))


@pytest.mark.parametrize("discretization", TWO_SAMPLES)
def test_a_state_of_two_parts_is_compiled_and_exported(discretization: str) -> None:
    """The same bits of output and last state, and the same gradients, also of λ and of the state before."""
    x = system(2, 16, 40, 4, optional=OPTIONAL, discretization=discretization)
    names, values = list(x), tuple(t.requires_grad_() for t in x.values())

    class Layer(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
            given = dict(zip(names, tensors, strict=True))
            return selective_scan(**given, discretization=discretization, return_last_state=True)  # type: ignore[arg-type]

    expected = Layer()(*values)
    gradients = torch.autograd.grad([t.sum() for t in expected], values)
    compiled = torch.compile(Layer(), fullgraph=True, backend="aot_eager", dynamic=True)
    for run in (compiled, torch.export.export(Layer(), values).module()):
        got = run(*values)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
        assert [t.stride() for t in got] == [t.stride() for t in expected]
        found = torch.autograd.grad([t.sum() for t in got], values)
        assert all(torch.equal(a, b) for a, b in zip(found, gradients, strict=True))


def test_autocast_leaves_the_scan_in_float32_inside() -> None:
    """The linear layer before it gives bfloat16; state and accumulation stay float32."""
    x = system(2, 8, 30, 4)
    layer = torch.nn.Linear(30, 30)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        u = layer(x["u"])
        out, last = selective_scan(**(x | {"u": u}), return_last_state=True)
    assert out.dtype == u.dtype == torch.bfloat16
    assert last.dtype == torch.float32
    out.float().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.isfinite().all()


def test_checkpoint_gives_the_same_gradients() -> None:
    x = [t.requires_grad_() for t in system(2, 8, 40, 4).values()]
    plain = torch.autograd.grad(scan(*x).square().sum(), x)
    again = torch.autograd.grad(torch.utils.checkpoint.checkpoint(scan, *x, use_reentrant=False).square().sum(), x)
    for got, expected in zip(again, plain, strict=True):
        assert torch.equal(got, expected)


def test_gradients_only_where_asked() -> None:
    """And through the last state alone."""
    x = system(2, 4, 5, 3)
    x["B"].requires_grad_()
    _, last = selective_scan(**x, return_last_state=True, backend="native")
    last.sum().backward()
    assert x["B"].grad is not None
    assert x["u"].grad is None
    assert not selective_scan(**{k: t.detach() for k, t in x.items()}, backend="native").requires_grad


def test_second_derivatives_are_refused_in_one_sentence() -> None:
    x = system(1, 2, 3, 2, dtype=torch.float64)
    x["u"].requires_grad_()
    x["delta"].requires_grad_()
    out = selective_scan(**x, backend="native")
    (first,) = torch.autograd.grad(out.square().sum(), x["u"], create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivatives; use backend='reference'"):
        first.sum().backward()


def test_threads_at_once_do_not_disturb_each_other() -> None:
    """As DataParallel does it: the same bits as alone."""
    samples = [list(system(2, 24, 50, 4, seed=seed).values()) for seed in range(4)]
    alone = [scan(*x) for x in samples]
    assert all(map(torch.equal, in_threads_at_once(scan, samples), alone))


def _in_child(queue: Any, seed: int) -> None:
    x = [t.requires_grad_() for t in system(2, 24, 50, 4, seed=seed).values()]
    out = scan(*x)
    queue.put([out.detach().numpy(), torch.autograd.grad(out.sum(), x[0])[0].numpy()])


def fork_after_threads_have_run() -> None:
    x = [t.requires_grad_() for t in system(2, 24, 50, 4, seed=3).values()]
    out = scan(*x)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue, 3))
    child.start()
    got, gradient = queue.get(timeout=60)
    child.join(timeout=60)
    assert child.exitcode == 0
    assert torch.equal(torch.from_numpy(got), out)
    assert torch.equal(torch.from_numpy(gradient), torch.autograd.grad(out.sum(), x[0])[0])


def test_fork_after_threads_have_run() -> None:
    """The parent's pool of threads does not exist in the child; the child must not wait for it.

    In a process of its own: PyTorch refuses gradients in a fork of one that has computed any on another thread.
    """
    done = run_python("from tests.ops.scan.test_op import fork_after_threads_have_run as run; run(); print('done')")
    assert done.stdout.strip() == "done", done.stderr


def test_without_the_library_everything_else_works() -> None:
    """`auto` falls back and says so once; native by name says how to get it."""
    done = run_python(
        "import torch, tustin\n"
        "x = torch.ones(1, 2, 3)\n"
        "a = -torch.ones(2, 1)\n"
        "for _ in range(2): print(tustin.selective_scan(x, x, a, a, a).shape)\n"
        "tustin.selective_scan(x, x, a, a, a, backend='native')",
        TUSTIN_NATIVE_LIBRARY="/nowhere/_native.so",
    )
    assert done.stdout.count("torch.Size([1, 2, 3])") == 2
    assert done.stderr.count("slow reference backend") == 1
    assert "RuntimeError: backend 'native' cannot be used: /nowhere/_native.so" in done.stderr


def test_cpu_level_from_the_environment() -> None:
    code = "from tustin.ops import native; print(native.missing() or native.cpu_level())"
    lowest = "v2" if native.cpu_level() != "baseline" else "baseline"
    assert run_python(code, TUSTIN_CPU_LEVEL=lowest).stdout.strip() == lowest
    assert "TUSTIN_CPU_LEVEL=v9 is unknown" in run_python(code, TUSTIN_CPU_LEVEL="v9").stdout


FAULTS = """
import resource, torch
from tustin.ops import native
native.library()
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def run(): return [torch.ones(1 << 20) for _ in range(12)] and None
for _ in range(5): run()
start = faults()
for _ in range(20): run()
print((faults() - start) // 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that gives memory back")
def test_freed_memory_is_kept_unless_the_environment_says_otherwise() -> None:
    """Twelve tensors of 4 MiB are 12288 pages; where others were before, they cost few of them."""
    assert int(run_python(FAULTS).stdout) < 6000  # some, where the system takes away what lies idle
    assert int(run_python(FAULTS, MALLOC_TRIM_THRESHOLD_="65536").stdout) > 10000
    code = "from tustin.ops import native; native._keep_freed_memory = lambda: print('kept'); native.library()"
    assert run_python(code).stdout == "kept\n"
    assert run_python(code, TUSTIN_KEEP_MEMORY="0").stdout == ""


MEMORY = """
import resource, torch, tustin
def run(L):
    u, delta, z = (torch.rand(1, L, 384).transpose(1, 2).requires_grad_() for _ in range(3))
    A = (-torch.rand(384, 16)).requires_grad_()
    B, C = (torch.rand(1, L, 16).transpose(1, 2).requires_grad_() for _ in range(2))
    x = (u, delta, A, B, C, z)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out = tustin.selective_scan(u, delta, A, B, C, z=z, discretization="zoh", backend="native")
    gradients = torch.autograd.grad(out, x, torch.ones_like(out))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
    bytes_of = lambda tensors: sum(t.numel() * t.element_size() for t in tensors)
    return peak * 1024 + bytes_of(x), bytes_of(x) + bytes_of([out])
run(100)
print(*run(6085))
"""


def test_memory_of_a_long_sequence() -> None:
    """Forward and backward in at most three times the bytes of inputs and outputs; (batch, L, D, N) would be four."""
    peak, size = map(int, run_python(MEMORY).stdout.split())
    assert peak <= 3 * size, f"{peak / size:.2f} times the bytes of inputs and outputs"
