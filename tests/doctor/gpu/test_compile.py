"""The GPU kernels as compiled code, with no GPU: they compile, spill nothing, and touch memory alike for every rule."""

import json
import os
from dataclasses import replace
from typing import Any

import pytest

from tests.interpreter import needs_triton
from tests.systems import FUSED
from tustin import DISCRETIZATIONS
from tustin.cli import main
from tustin.doctor.gpu import TARGETS, known_target

pytestmark = needs_triton
each_target = pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx942"])


@pytest.fixture(autouse=True)
def triton_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One folder for all tests of this process, so that nothing is compiled twice; another if the variable says so."""
    if "TRITON_CACHE_DIR" not in os.environ:
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "triton"))


def assert_sound(
    target: str, dtypes: list[str], discretizations: tuple[str, ...], segments: bool | None = None
) -> None:
    """All compile; nothing is spilled on NVIDIA; no atomics; as many loads and stores for one rule as for another.

    A rule of two samples loads u and B (of all states of a thread) once more, and stores the second part of the state,
    which segments also hand on; one with a λ reads it where it reads u, and stores its gradient.
    """
    import torch

    from tustin.doctor.gpu import cases, survey

    chosen = [
        case
        for case in cases.cases(discretizations, [getattr(torch, dtype) for dtype in dtypes])
        if segments is None or ("in segments" in case.kernel) == segments
    ]
    kernels: dict[tuple[str, str], dict[str, Any]] = {}
    seen: set[str] = set()
    for one in survey.survey([target], chosen, lambda *progress: None):
        name = " ".join((target, one.case.kernel, str(one.case.discretization), one.case.dtype))
        assert one.code.spills == 0 or target.startswith("gfx"), f"{name} spills {one.code.spills} times"
        assert one.code.count("atomic") == 0, f"{name}: the order of its sums would be left to chance"
        if one.case.discretization:
            kernels.setdefault((one.case.kernel, one.case.dtype), {})[one.case.discretization] = one
            seen.add(one.case.discretization)
    assert seen == {*discretizations}
    for kernel, codes in kernels.items():
        rules = {name: DISCRETIZATIONS[name] for name in codes}
        for kind in ("global load", "global store"):
            counts = {discretization: one.code.count(kind) for discretization, one in codes.items()}
            (least,) = {counts[name] for name, rule in rules.items() if rule.taps == 1}
            assert least > 0
            for name in (name for name, rule in rules.items() if rule.taps == 2):
                case, threads = codes[name].case, codes[name].code.threads
                states = -(-case.launch.options["N"] * case.launch.options["BLOCK_D"] // threads)
                tile = case.launch.options["UNROLL"] if target.startswith("gfx") else 1  # AMD loads one token at a time
                more = states * (2 if "in segments" in case.kernel else 1) + 2 * tile * rules[name].mixes
                assert least <= counts[name] <= least + more + (kind == "global load"), f"{target}, {kernel}: {counts}"


MOST = {  # instructions of a lane per token and state on sm_90, forward and backward
    "mamba": (16.0, 75.0),
    "zoh": (19.0, 85.0),
    "bil": (15.0, 75.0),
    "rk4": (14.0, 75.0),
    "hoh": (26.0, 110.0),  # docs/gpu.md says where they go
    "pol": (24.2, 95.0),
    "hoh3": (29.5, 115.0),
    "true_foh": (31.4, 115.0),
}


def instructions(target: str, rule: str) -> tuple[float, float]:
    from tustin.doctor.gpu import cases, survey

    chosen = [cases.named(f"scan {side}", rule, "float32") for side in ("forward", "backward")]
    found = survey.survey([target], chosen, lambda *progress: None)
    assert [one.code.loops for one in found] == [2, 3]
    forward, backward = (one.per_update() or 0.0 for one in found)
    return forward, backward


def test_few_instructions() -> None:
    """The numbers that the kernels were written for; on the GPU before within a tenth of them."""
    for rule, most in MOST.items():
        forward, backward = instructions("sm_90", rule)
        assert 8 < forward <= most[0], f"{rule} forward: {forward}"
        assert forward < backward <= most[1], f"{rule} backward: {backward}"
    assert_sound("sm_90", ["float32"], tuple(MOST), segments=False)


@pytest.mark.long
def test_hardly_more_instructions_on_an_older_gpu() -> None:
    for rule, most in MOST.items():
        found = instructions("sm_80", rule)
        assert all(side <= 1.1 * limit for side, limit in zip(found, most, strict=True)), f"{rule}: {found}"


@pytest.mark.long
@each_target
def test_every_rule(target: str) -> None:
    """The convolution, and the scan of whole sequences."""
    assert_sound(target, ["float32"], tuple(FUSED), segments=False)


def test_time_cut_into_segments() -> None:
    assert_sound("sm_90", ["float32"], ("zoh", "bil", "exptrap"), segments=True)


@pytest.mark.wide
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@each_target
def test_every_kernel_rule_and_dtype(target: str, dtype: str) -> None:
    """A quarter of an hour."""
    assert_sound(target, [dtype], tuple(FUSED))


def test_the_survey_leaves_out_no_kernel() -> None:
    """Every function that is launched, in both regimes."""
    from tustin.doctor.gpu import cases
    from tustin.ops.scan import triton_discretizations

    assert tuple(triton_discretizations.DISCRETIZATIONS) == tuple(FUSED)
    whole = {"conv forward", "conv backward", "scan forward", "scan backward"}
    cut = {"end_of_segment", "join_segments", "forward", "start_of_segment", "join_segments, backwards", "backward"}
    assert {case.kernel for case in cases.cases()} == whole | {f"scan {name}, in segments" for name in cut}


@pytest.fixture
def conv_cases() -> list[Any]:
    import torch

    from tustin.doctor.gpu import cases

    return cases.cases(discretizations=(), dtypes=[torch.float32])


def test_what_spills_is_seen(conv_cases: list[Any]) -> None:
    """The gradient of the convolution with a quarter of the registers that it wants."""
    from tustin.doctor.gpu.compile import compile_for
    from tustin.doctor.gpu.inspect import inspect

    launch = conv_cases[1].launch
    starved = replace(launch, options=launch.options | {"maxnreg": 32})
    assert inspect(compile_for("sm_80", launch)).spills == 0
    assert inspect(compile_for("sm_80", starved)).spills > 0


def test_long_filters_are_not_unrolled() -> None:
    """Forty taps are less code than eight."""
    import torch

    from tustin.doctor.gpu.compile import compile_for, launches
    from tustin.doctor.gpu.inspect import inspect
    from tustin.ops.conv import triton

    def code(taps: int) -> Any:
        x, weight = (torch.empty(shape, device="meta") for shape in ((2, 64, 50), (64, taps)))
        (launch,) = launches(lambda: triton.backward(x, x, weight, None, True, True)[0])
        return inspect(compile_for("sm_80", launch))

    assert code(8).loops == 0
    assert code(40).loops > 0
    assert code(40).count() < code(8).count()


# --- the estimate -----------------------------------------------------------------------------------------------------


def test_the_estimate_is_what_bytes_and_instructions_say(conv_cases: list[Any]) -> None:
    """By hand: 100 instructions of a warp, 50 of them float, in 2 · 108 · 4 + 1 programs of one warp: three turns."""
    from tustin.doctor.gpu.inspect import Code, Instruction
    from tustin.doctor.gpu.roofline import GPUS, estimate

    gpu = GPUS["sm_80"]
    case = replace(conv_cases[0], launch=replace(conv_cases[0].launch, grid=(2 * 108 * 4 + 1, 1, 1)))
    half = 50 * (Instruction("FFMA", "float", None),)
    least = estimate(gpu, case, Code(8, 0, 0, 32, half + 50 * (Instruction("MOV", "move", None),)))
    assert least.issue == pytest.approx(3 * 100 / 1.41e9)
    assert least.units == pytest.approx(50 * 865 * 32 / (64 * 108 * 1.41e9))
    assert least.memory == pytest.approx(case.launch.bytes / 2.039e12)
    assert case.launch.bytes == 4 * (2 * 64 * 384 * 197 + 384 * 4 + 384)
    assert least.seconds == least.memory
    assert least.limit == "memory"


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def few_cases(conv_cases: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The command knows the convolution and `zoh` and `bil` of the simplest kernel of the scan alone."""
    import torch

    from tustin.doctor.gpu import cases

    scans = [c for c in cases.cases(("zoh", "bil"), [torch.float32]) if c.kernel.startswith("scan start_of_segment")]
    few = [*conv_cases[:2], *scans]
    monkeypatch.setattr(cases, "cases", lambda dtypes: few)
    return few


def test_json_has_all_that_was_found(few_cases: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--gpu-compile", "sm_80,gfx942,sm_80", "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert "tustin doctor: compiling for sm_80, 1 of 8 done" in err
    assert told["shape"] == {"D": 384, "N": 16, "L": 197, "K": 4}
    assert [(k["target"], k["discretization"]) for k in told["kernels"]] == [
        (target, discretization) for target in ("sm_80", "gfx942") for discretization in (None, None, "zoh", "bil")
    ]
    for kernel in told["kernels"]:
        assert kernel["registers"] > 0
        assert kernel["instructions"] == sum(kernel["mix"].values())
        assert kernel["per_token_and_state"]["global_loads"] > 0
        assert (kernel["estimate"] is None) == (kernel["target"] == "gfx942")
    zoh, bil = told["kernels"][2:4]
    assert zoh["instructions_relative_to_zoh"] == 1
    share = bil["per_token_and_state"]["instructions"] / zoh["per_token_and_state"]["instructions"]
    assert bil["instructions_relative_to_zoh"] == pytest.approx(share)


def test_the_tables_are_for_people(
    few_cases: list[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["doctor", "--gpu-compile", "gfx942"]) == 0
    out = capsys.readouterr().out
    assert "gfx942, scan start_of_segment, in segments" in out
    rows = [line.split() for line in out.splitlines()]
    assert any(row[:1] == ["zoh"] and row[5] == "1.00" for row in rows)
    assert any(row[:1] == ["bil"] for row in rows)
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out


def test_an_unknown_target_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--gpu-compile", "sm80"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "unknown target 'sm80' (did you mean 'sm_80'?); known: sm_80, sm_90, sm_100, gfx942" in err
    assert [known_target(name) for name in TARGETS] == list(TARGETS)


def test_an_unknown_dtype_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--gpu-compile", "sm_80", "--dtype", "bf16"]) == 2
    assert "unknown dtype 'bf16'" in capsys.readouterr().err


def test_a_dtype_alone_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--dtype", "float32"]) == 2
    assert capsys.readouterr().err == "tustin: error: --dtype works only with --gpu-compile\n"


def test_without_triton_it_is_one_line(no_triton: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--gpu-compile"]) == 1
    assert capsys.readouterr().err.startswith("tustin: error: Triton is not installed; get it with 'pip install tri")


def test_interpreted_it_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert main(["doctor", "--gpu-compile", "sm_80"]) == 1
    assert "TRITON_INTERPRET=1 is set, so Triton interprets the kernels" in capsys.readouterr().err
