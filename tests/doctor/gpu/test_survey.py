"""Kernels compiled at once in several processes, and what is kept of them."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.interpreter import ROOT, needs_triton

pytestmark = needs_triton


@pytest.fixture(autouse=True)
def triton_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def conv_cases() -> list[Any]:
    from tustin.doctor.gpu import cases

    return cases.cases(discretizations=(), dtypes=[torch.float32])[:2]


def kept_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/tustin_code.json"))


def test_what_was_seen_is_kept_and_not_compiled_again(
    conv_cases: list[Any], triton_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tustin.doctor.gpu import survey

    told: list[tuple[str, int, int]] = []
    first = survey.survey(["sm_90"], conv_cases, lambda *progress: told.append(progress))
    assert told == [("compiling for sm_90", 1, 2), ("compiling for sm_90", 2, 2)]
    assert len(kept_files(triton_cache)) == 2
    monkeypatch.setattr(survey, "compile_for", lambda *what: pytest.fail("compiled again"))
    again = survey.survey(["sm_90"], conv_cases, lambda *progress: pytest.fail("nothing to wait for"))
    assert [one.code for one in again] == [one.code for one in first]


@pytest.mark.parametrize("damage", ["", "[1, 2", '{"registers": 8}', "[1, 2, 3, 4, [[0]]]", "\udcff"])
def test_what_is_damaged_is_made_again(conv_cases: list[Any], triton_cache: Path, damage: str) -> None:
    from tustin.doctor.gpu import kept, survey

    launch = conv_cases[0].launch
    (found,) = survey.survey(["sm_90"], conv_cases[:1], lambda *progress: None)
    (file,) = kept_files(triton_cache)
    file.write_text(damage, errors="surrogateescape")
    assert kept.read("sm_90", launch) is None
    assert survey.survey(["sm_90"], conv_cases[:1], lambda *progress: None) == [found]
    assert kept.read("sm_90", launch) == found.code


def test_another_kernel_gpu_option_or_type_has_another_key(conv_cases: list[Any]) -> None:
    from tustin.doctor.gpu import cases
    from tustin.doctor.gpu.kept import _key

    launch = conv_cases[0].launch
    keys = {
        _key("sm_90", launch),
        _key("sm_80", launch),
        _key("sm_90", replace(launch, options=launch.options | {"num_warps": 8})),
        _key("sm_90", conv_cases[1].launch),
        _key("sm_90", cases.named("conv forward", None, "bfloat16").launch),
        *(_key("sm_90", cases.named("scan forward", rule, "float32").launch) for rule in ("foh", "pol", "hoh")),
    }
    assert len(keys) == 8
    assert _key("sm_90", launch) == _key("sm_90", cases.named("conv forward", None, "float32").launch)


def test_a_variable_of_triton_is_part_of_the_key(conv_cases: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from tustin.doctor.gpu.kept import _key

    before = _key("sm_90", conv_cases[0].launch)
    monkeypatch.setenv("TRITON_CACHE_DIR", "elsewhere")
    assert _key("sm_90", conv_cases[0].launch) == before
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    assert _key("sm_90", conv_cases[0].launch) != before


def test_the_source_of_a_rule_is_part_of_the_key() -> None:
    """Here and in another process, which has no other way to tell."""
    program = (
        "from tustin.doctor.gpu import cases, kept\n"
        "from tustin.ops.scan import triton_discretizations as rules\n"
        "case = lambda: cases.named('scan forward', 'bil', 'float32').launch\n"
        "before = kept._key('sm_90', case())\n"
        "step = rules.DISCRETIZATIONS['bil'].step\n"
        "step._unsafe_update_src(step.src.replace('0.5', '0.25'))\n"
        "cases._of.cache_clear()\n"
        "print(before, kept._key('sm_90', case()))"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.split()
    assert before != after


def test_processes_find_the_same_as_one(conv_cases: list[Any], triton_cache: Path) -> None:
    """And nothing of them is left."""
    from tustin.doctor.gpu import survey

    at_once = dict(survey._in_processes([("sm_90", case) for case in conv_cases], 2))
    assert {case.kernel for _, case in at_once} == {"conv forward", "conv backward"}
    assert len(kept_files(triton_cache)) == 2
    for file in kept_files(triton_cache):
        file.unlink()
    assert dict(survey._here([("sm_90", case) for case in conv_cases])) == at_once


def test_what_does_not_compile_is_named(conv_cases: list[Any], triton_cache: Path) -> None:
    from tustin.doctor.gpu import survey

    broken = replace(conv_cases[0], launch=replace(conv_cases[0].launch, options={"num_warps": 3}))
    with pytest.raises(RuntimeError, match="conv forward float32 does not compile for sm_90: "):
        survey.survey(["sm_90"], [broken], lambda *progress: None)
    assert kept_files(triton_cache) == []


def test_kept_is_plain_json(conv_cases: list[Any], triton_cache: Path) -> None:
    from tustin.doctor.gpu import survey

    survey.survey(["sm_90"], conv_cases[:1], lambda *progress: None)
    (file,) = kept_files(triton_cache)
    registers, spills, _, threads, instructions = json.loads(file.read_text())
    assert (registers > 0, spills, threads % 32) == (True, 0, 0)
    assert all(isinstance(opcode, str) and isinstance(kind, str) for opcode, kind, _ in instructions)
