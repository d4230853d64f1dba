"""What the doctor finds, on this machine and on others that are made up."""

import json
import platform
import warnings
from dataclasses import replace
from io import StringIO

import pytest
import torch
from rich.console import Console

from tustin import DISCRETIZATIONS, doctor
from tustin.doctor.report import render
from tustin.ops.scan import BACKENDS

V1 = {"fpu", "lm", "sse", "sse2", "fxsr", "cmov"}
V2 = V1 | {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}
V3 = V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


def shown(facts, width=100):
    console = Console(file=StringIO(), width=width)
    console.print(*render(facts), sep="\n")
    return console.file.getvalue()


@pytest.fixture
def with_backend():
    """Put one more backend first in the list, where "auto" looks first."""

    def add(**changes):
        extra = replace(BACKENDS["reference"], name="extra", description="made up", **changes)
        others = dict(BACKENDS)
        BACKENDS.clear()
        BACKENDS.update({"extra": extra, **others})

    before = dict(BACKENDS)
    yield add
    BACKENDS.clear()
    BACKENDS.update(before)


def of_extra(facts):
    return next(backend for backend in facts["backends"] if backend["name"] == "extra")


def test_facts_are_plain_data_and_complete():
    facts = doctor.collect()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["versions"]["python"] == platform.python_version()
    assert facts["cpu"]["torch_threads"] == torch.get_num_threads()
    assert 1 <= facts["cpu"]["usable_cores"] <= facts["cpu"]["cores"]
    assert [backend["name"] for backend in facts["backends"]] == list(BACKENDS)
    assert list(facts["auto"]["cpu"]) == list(DISCRETIZATIONS)
    assert set(facts["auto"]["cpu"].values()) <= set(BACKENDS)
    assert bool(facts["gpus"]) == torch.accelerator.is_available() == (facts["no_gpu_because"] is None)


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        (set(), None),
        (V1, "x86-64-v1"),
        (V2, "x86-64-v2"),
        (V3, "x86-64-v3"),
        (V4, "x86-64-v4"),
        (V4 - {"fma"}, "x86-64-v2"),  # a level counts only if the ones below it are complete
        (V4 - {"avx512vl"}, "x86-64-v3"),
    ],
)
def test_x86_level(flags, level):
    assert doctor.x86_level(flags) == level


def cpu_of(monkeypatch, machine, cpuinfo):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "processor", lambda: "")
    return doctor._cpu(cpuinfo)


def test_x86_processor(monkeypatch):
    core = f"processor\t: 0\nmodel name\t: Some CPU: 3 GHz\nflags\t\t: {' '.join(V4)} avx512_vnni\n\n"
    cpu = cpu_of(monkeypatch, "x86_64", core * 2)
    assert (cpu["model"], cpu["level"], cpu["features"]) == ("Some CPU: 3 GHz", "x86-64-v4", ["avx512_vnni"])


def test_arm_processor_is_named_as_such(monkeypatch):
    cpu = cpu_of(monkeypatch, "aarch64", "processor\t: 0\nFeatures\t: fp asimd sve\nCPU part\t: 0xd40\n\n")
    assert (cpu["model"], cpu["level"], cpu["features"]) == ("unknown", None, ["asimd", "sve"])
    assert "aarch64 with asimd, sve" in shown({**doctor.collect(), "cpu": cpu})


def test_system_without_cpuinfo(monkeypatch):
    cpu = cpu_of(monkeypatch, "AMD64", "")
    assert (cpu["model"], cpu["level"], cpu["features"]) == ("unknown", None, [])


def test_fewer_cores_for_this_process_are_told():
    facts = doctor.collect()
    facts["cpu"].update(cores=64, usable_cores=4)
    assert "64, 4 of them for this process" in shown(facts)


def test_gpus_are_listed_by_name(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU number {index}")
    facts = doctor.collect()
    assert facts["gpus"] == [{"device": f"cuda:{i}", "name": f"GPU number {i}"} for i in range(2)]
    assert list(facts["auto"]) == ["cpu", "cuda"]
    assert "cuda:1 GPU number 1" in shown(facts)


def test_a_driver_that_does_not_fit_is_the_reason(monkeypatch):
    def complain(check_available):
        warnings.warn("the driver is too old\nand more", stacklevel=1)

    monkeypatch.setattr(torch.accelerator, "current_accelerator", complain)
    facts = doctor.collect()
    assert facts["no_gpu_because"] == "the driver is too old"
    assert "none: the driver is too old" in shown(facts)


def test_missing_backend_says_why(with_backend):
    with_backend(missing=lambda: "not compiled; run make")
    facts = doctor.collect()
    assert of_extra(facts)["missing_because"] == "not compiled; run make"
    assert "extra" not in facts["auto"]["cpu"].values()
    assert "not compiled; run make" in shown(facts)


def test_auto_may_differ_by_discretization(with_backend, monkeypatch):
    def choose(operator, name, device, discretization):
        warnings.warn("slow", stacklevel=1)  # the table tells it; twice would be noise
        return "extra" if discretization.name == "bil" else "reference"

    with_backend()
    monkeypatch.setattr(doctor, "choose", choose)
    facts = doctor.collect()
    assert facts["auto"]["cpu"] == {name: "extra" if name == "bil" else "reference" for name in DISCRETIZATIONS}
    assert "extra for bil" in shown(facts, width=200)
