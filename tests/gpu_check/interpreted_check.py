"""The check of a GPU, with Triton's interpreter in its place; test_check.py starts it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.interpreter import patch_once
from tests.tolerances import DERIVATIVES, SCAN
from tustin.cli import main
from tustin.gpu_check import Plan, plan, scans
from tustin.gpu_check.outcome import Check, Finding
from tustin.ops.scan.triton_discretizations import DISCRETIZATIONS

patch_once()
RULES = tuple(DISCRETIZATIONS)
LAST = RULES[-1]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rules instead of all, and no speed: seconds instead of minutes."""
    chosen = Plan.choose()
    few = replace(chosen, rules=("bil",), dtypes=chosen.dtypes[:2], speed_rules=())
    monkeypatch.setattr(Plan, "choose", lambda: few)
    monkeypatch.setattr("tustin.gpu_check.whole.checks", lambda plan, device: [])


def test_the_whole_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], own_caches: None
) -> None:
    """One rule in every dtype, the training step, torch.compile and the speed: each passes, and the file has it all."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    chosen = Plan.choose()
    assert chosen.rules == RULES
    monkeypatch.setattr(Plan, "choose", lambda: replace(chosen, rules=(LAST,)))
    assert main(["doctor", "--gpu-check", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    facts = json.loads((folder / "gpu-check.json").read_text())
    assert [path.name for path in folder.iterdir()] == ["gpu-check.json"]
    assert facts["complete"] is True
    assert facts["counts"] == {"passed": 6, "failed": 0, "skipped": 2, "all": 8}
    assert {c["name"]: c["status"] for c in facts["checks"]} == {
        **{f"{LAST}, {dtype}": "passed" for dtype in ("float32", "bfloat16", "float16")},
        "a training step of vim_tiny_patch16_224, CPU and GPU": "passed",
        "torch.compile": "passed",
        "CUDA graphs": "skipped",
        "mamba_ssm": "skipped",
        RULES[0]: "passed",
    }
    assert "6 of 8 checks passed, 0 failed, 2 skipped." in out
    assert "Every rule, forward and backward" in out
    assert "tustin doctor: checking scan" in err
    assert "/home/" not in json.dumps(facts)


@pytest.mark.usefixtures("few")
def test_a_wrong_kernel_fails_with_its_own_code_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`bil` with the functions of `mamba`: a sentence for people, 3 for programs."""
    monkeypatch.setitem(DISCRETIZATIONS, "bil", DISCRETIZATIONS["mamba"])
    file = tmp_path / "found.json"
    assert main(["doctor", "--gpu-check", str(file), "--device", "cpu", "--json"]) == 3
    out, err = capsys.readouterr()
    facts = json.loads(file.read_text())
    assert facts == json.loads(out)
    assert (facts["complete"], facts["counts"]["failed"]) == (True, 2)
    last = err.splitlines()[-1]
    assert last.startswith("tustin: error: 2 of 3 checks failed, the first: scan bil, float32: output is off by")
    assert "allowed 2e-06" in last


@pytest.mark.usefixtures("few")
def test_other_bits_the_second_time_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    true, calls = scans.results, [0.0]

    def unsteady(*arguments: object, **how: object) -> dict[str, torch.Tensor]:
        calls[0] += 1e-9 if how["backend"] == "triton" else 0.0
        found = true(*arguments, **how)
        return found | {"output": found["output"] + calls[0]} if how["backend"] == "triton" else found

    monkeypatch.setattr(scans, "results", unsteady)
    file = tmp_path / "found.json"
    assert main(["doctor", "--gpu-check", str(file), "--device", "cpu"]) == 3
    first = json.loads(file.read_text())["checks"][0]
    assert first["says"].startswith("output has different bits the second time")


@pytest.mark.usefixtures("few")
def test_out_of_memory_is_one_sentence_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full() -> Finding:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee documentation")

    true = scans.checks
    monkeypatch.setattr(scans, "checks", lambda *how: [Check("scan", "big, float32", full), *true(*how)])
    file = tmp_path / "found.json"
    assert main(["doctor", "--gpu-check", str(file), "--device", "cpu"]) == 3
    facts = json.loads(file.read_text())
    sentence = "the GPU has too little free memory: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert facts["checks"][0]["says"] == sentence
    assert facts["counts"] == {"passed": 2, "failed": 1, "skipped": 1, "all": 4}
    assert sentence in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("few")
def test_what_was_found_before_a_crash_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, or worse: the file is whole, and says that it is not complete."""

    def crash() -> Finding:
        raise KeyboardInterrupt

    true = scans.checks
    monkeypatch.setattr(scans, "checks", lambda *how: [*true(*how), Check("scan", "last, float32", crash)])
    file = tmp_path / "found.json"
    assert main(["doctor", "--gpu-check", str(file), "--device", "cpu"]) == 130
    facts = json.loads(file.read_text())
    assert (facts["complete"], len(facts["checks"]), facts["counts"]["all"]) == (False, 2, 4)


def test_a_gpu_that_is_not_there_is_not_interpreted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["doctor", "--gpu-check", str(tmp_path / "x.json"), "--device", "cuda"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_tolerances_are_those_of_the_tests() -> None:
    assert {dtype: SCAN[dtype] for dtype in scans.VALUES} == scans.VALUES
    assert scans.DERIVATIVES[torch.float32] == DERIVATIVES[torch.float32]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_every_rule_dtype_and_shape_is_asked_of_a_gpu(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU each rule has ViM-tiny's shape and an awkward one, and every awkward one has its turn."""
    monkeypatch.setattr(plan, "interpreted", lambda: False)
    chosen = Plan.choose()
    asked = {rule: chosen.shapes_of(rule, dtype) for rule in RULES}
    assert all(shapes[0] == plan.VIM_TINY for shapes in asked.values())
    assert {shapes[1] for shapes in asked.values()} == {*plan.AWKWARD}
    assert chosen.speed_rules == RULES
    assert (chosen.image_size, chosen.depth, chosen.speed_batch, chosen.speed_length) == (224, None, 64, 197)
