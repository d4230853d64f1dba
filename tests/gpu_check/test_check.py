"""`tustin doctor --gpu-check`: in Triton's interpreter, and as far as the rest of it goes without a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.interpreter import needs_triton, run_interpreted
from tustin import DISCRETIZATIONS, gpu_check
from tustin.cli import main
from tustin.gpu_check import device, scans, speed, whole
from tustin.gpu_check.device import Device
from tustin.gpu_check.plan import AWKWARD, VIM_TINY, Plan

FILE = "tests/gpu_check/interpreted_check.py"
H100 = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=85 * 10**9,
    clock_rate=1_980_000,
    memory_clock_rate=2_619_000,
    memory_bus_width=5120,
)


@needs_triton
def test_in_the_interpreter() -> None:
    assert " passed" in run_interpreted(FILE, seconds=1800)


# --- no GPU that could be checked: one sentence each ------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU that is not there; it can be described, and nothing else."""
    properties = SimpleNamespace(**vars(H100))
    module = SimpleNamespace(device_count=lambda: 1, get_device_properties=lambda which: properties)
    monkeypatch.setattr(device, "no_gpu_because", lambda kind: None)
    monkeypatch.setattr(torch, "get_device_module", lambda which: module)
    monkeypatch.setattr(device, "_launch", lambda found: None)
    return properties


def failure(capsys: pytest.CaptureFixture[str], tmp_path: Path, *more: str) -> str:
    """The one line that the command ends with; it leaves no file."""
    file = tmp_path / "gpu-check.json"
    assert main(["doctor", "--gpu-check", str(file), *more]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), file.exists()) == ("", 1, False)
    return err.removeprefix("tustin: error: ").rstrip("\n")


@needs_triton
def test_a_missing_driver(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(device, "no_gpu_because", lambda kind: "Found no NVIDIA driver on your system.")
    told = failure(capsys, tmp_path)
    assert told == "there is no GPU to check: Found no NVIDIA driver on your system."


@needs_triton
def test_an_old_gpu(gpu: SimpleNamespace, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    gpu.name, gpu.major, gpu.minor = "Tesla P100", 6, 0
    told = failure(capsys, tmp_path)
    assert told == "Tesla P100 has compute capability 6.0, and Triton needs at least 7.0"


@needs_triton
def test_a_gpu_with_another_number(gpu: SimpleNamespace, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert failure(capsys, tmp_path, "--device", "cuda:3") == "there is no cuda:3: this machine has 1 such devices"


def test_no_triton(no_triton: None, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert failure(capsys, tmp_path).startswith("Triton is not installed; get it with 'pip install triton'")


@needs_triton
def test_a_triton_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(name: str) -> Any:
        raise ImportError(f"{Path.home()}/lib/libtriton.so: undefined symbol: PyExc\nmore")

    monkeypatch.setattr(device, "import_module", broken)
    told = failure(capsys, tmp_path)
    expected = "Triton is installed but broken, it cannot be imported: ~/lib/libtriton.so: undefined symbol: PyExc"
    assert told == expected


@needs_triton
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            RuntimeError("Failed to find C compiler.\nPlease"),
            "is broken, it cannot run a kernel on NVIDIA H100 80GB HBM3",
        ),
        (
            torch.OutOfMemoryError("CUDA out of memory."),
            "has too little free memory even for the smallest scan: CUDA out of memory.",
        ),
    ],
)
def test_a_gpu_that_cannot_run_the_smallest_kernel(
    gpu: SimpleNamespace,
    error: Exception,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def launch(found: Device) -> None:
        raise error

    monkeypatch.setattr(device, "_launch", launch)
    assert told in failure(capsys, tmp_path)


@needs_triton
def test_the_cpu_without_the_interpreter(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "set TRITON_INTERPRET=1" in failure(capsys, tmp_path, "--device", "cpu")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (
            ["--gpu-check", "no/such/folder.json"],
            "argument --gpu-check: no/such/folder.json: No such file or directory",
        ),
        (
            ["--gpu-check", "--device", "gpu"],
            "argument --device: expected cuda, cuda:1 and so on, xpu or cpu, got 'gpu'",
        ),
        (["--device", "cuda"], "--device works only with --gpu-check"),
        (["--gpu-check", "--gpu-compile"], "--gpu-compile and --gpu-check cannot be used together"),
    ],
)
def test_a_wrong_command_line_is_one_line(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *argv]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


# --- a GPU that is described, and what would be done with it ----------------------------------------------------------


@needs_triton
def test_a_gpu_is_named_as_its_compiler_does(gpu: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gpu_check.find(None)
    assert (found.target, str(found.device)) == ("sm_90", "cuda:0")
    assert found.facts()["total_memory"] == 85 * 10**9
    monkeypatch.setattr(torch.version, "hip", "6.4")
    gpu.gcnArchName = "gfx942:sramecc+:xnack-"
    assert gpu_check.find("cuda").target == "gfx942"


@needs_triton
def test_the_estimate_is_that_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels compiled for this GPU, and its data sheet; or else what its driver tells."""
    from tustin.doctor.gpu import cases, roofline, survey

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    here = Device(torch.device("cuda", 0), H100.name, "sm_90", H100)
    estimated = speed._estimates("bil", Plan.choose(), here)
    chosen = [cases.named(f"scan {name}", "bil", "float32") for name in ("forward", "backward")]
    least = [
        roofline.estimate(roofline.GPUS["sm_90"], one.case, one.code).seconds * 1e6
        for one in survey.survey(["sm_90"], chosen, lambda *progress: None)
    ]
    assert estimated == {"forward": least[0], "forward and backward": sum(least)}
    assert speed._estimates("bil", Plan.choose(), replace(here, target=None)) == {}
    other = SimpleNamespace(**vars(H100) | {"multi_processor_count": 66})
    assert roofline.described("sm_90", H100.name, H100) == roofline.GPUS["sm_90"]
    told = roofline.described("sm_90", "half of it", other)
    assert told is not None
    assert (told.processors, told.bytes_per_second) == (66, pytest.approx(3.35e12, rel=0.01))
    assert roofline.described("gfx942", "MI300X", other) is None


def test_a_graph_is_recorded_once_and_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a graph that computes anew what it has recorded, and with one that does not."""
    recorded: list[Any] = []

    class Graph:
        def replay(self) -> None:
            for old, new in zip(recorded[0], eager(*recorded[1]), strict=True):
                old.copy_(new)

    @contextmanager
    def recording(graph: Graph) -> Iterator[None]:
        yield

    def remember(call: Any, x: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        found = eager(call, x)
        recorded[:] = [found, (call, x)]
        return found

    eager = whole._with_gradient
    call = whole._call
    monkeypatch.setattr(whole, "_call", lambda u, **others: call(u, **others))
    monkeypatch.setattr(whole, "selective_scan", lambda backend, **how: gpu_scan(**how))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", recording)
    here = SimpleNamespace(device=torch.device("cuda"), synchronize=lambda: None)
    x = {
        n: t for n, t in scans.inputs(AWKWARD[2], DISCRETIZATIONS["bil"], torch.float32).items() if n != "initial_state"
    }
    monkeypatch.setattr(whole, "_small", lambda plan, device: dict(x))

    calls = [0]

    def third(call: Any, x: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        calls[0] += 1
        return remember(call, x) if calls[0] == 3 else eager(call, x)

    monkeypatch.setattr(whole, "_with_gradient", third)
    assert whole._graphs(Plan.choose(), here).status == "passed"
    calls[0] = 0
    monkeypatch.setattr(Graph, "replay", lambda self: None)
    assert whole._graphs(Plan.choose(), here).status == "failed"


def gpu_scan(**how: Any) -> torch.Tensor:
    from tustin import selective_scan

    return selective_scan(**how)


@pytest.mark.parametrize("shape", [VIM_TINY, *AWKWARD], ids=str)
def test_no_expected_value_is_too_large_for_half_precision(shape: Any) -> None:
    """Or a GPU would be blamed for an overflow."""
    for rule in ("hoh3", "rk4_raw", "bil"):
        x = scans.inputs(shape, DISCRETIZATIONS[rule], torch.float32)
        how = {"discretization": rule, "reverse": shape.reverse, "delta_softplus": True}
        found = scans.results(x, torch.float32, **how, backend="auto")
        for what, value in found.items():
            if value.numel() and what.removeprefix("gradient of ") in ("output", *scans.NARROW):
                assert value.abs().max() < 3e4, f"{what} of {rule}: {value.abs().max()}"
