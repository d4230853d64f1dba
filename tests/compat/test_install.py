"""Where the stand-in is found, where it is not, and what it says of what it lacks."""

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tustin.compat
from tustin.compat import __main__ as command
from tustin.compat import rule

from .stand_in import imports_restored

OURS = Path(tustin.compat.__file__).parent / "packages"
NAMES = {
    "mamba_ssm": ("Mamba", "mamba_inner_fn", "selective_scan_fn"),
    "mamba_ssm.modules.block": ("Block",),
    "mamba_ssm.modules.mamba_simple": ("Block", "Mamba"),
    "mamba_ssm.ops.selective_scan_interface": (
        "bimamba_inner_fn",
        "mamba_inner_fn",
        "mamba_inner_fn_no_out_proj",
        "selective_scan_fn",
        "selective_scan_ref",
    ),
    "mamba_ssm.ops.triton.layer_norm": ("RMSNorm", "layer_norm_fn", "rms_norm_fn"),
    "mamba_ssm.ops.triton.layernorm": ("RMSNorm", "layer_norm_fn", "rms_norm_fn"),
    "mamba_ssm.ops.triton.selective_state_update": ("selective_state_update",),
    "mamba_ssm.utils.generation": ("GenerationMixin", "InferenceParams"),
    "mamba_ssm.utils.hf": ("load_config_hf", "load_state_dict_hf"),
    "causal_conv1d": ("causal_conv1d_fn", "causal_conv1d_update"),
    "causal_conv1d.causal_conv1d_interface": ("causal_conv1d_fn", "causal_conv1d_update"),
}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with imports_restored():
        yield


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which the real packages are not installed."""
    find_spec = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> object:
        spec = find_spec(name, package)
        ours = spec is not None and spec.origin is not None and Path(spec.origin).is_relative_to(OURS)
        return spec if ours or name not in tustin.compat.NAMES else None

    monkeypatch.setattr(tustin.compat.importlib.util, "find_spec", find)


def real(folder: Path, name: str, code: str = "") -> Path:
    """A package that somebody has installed."""
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text(f"real = True\n{code}")
    return package


@pytest.mark.usefixtures("missing")
def test_every_name_is_there_and_ours() -> None:
    assert tustin.compat.install() == ("mamba_ssm", "causal_conv1d")
    for module, names in NAMES.items():
        imported = importlib.import_module(module)
        assert Path(imported.__file__).is_relative_to(OURS)
        for name in names:
            assert getattr(imported, name).__module__.split(".")[0] in tustin.compat.NAMES
    assert tustin.compat.install() == ("mamba_ssm", "causal_conv1d"), "a second time changes nothing"
    assert sum(entry == str(OURS) for entry in sys.path) == 1


def test_nothing_is_there_without_being_installed() -> None:
    assert str(OURS) not in sys.path
    spec = importlib.util.find_spec("mamba_ssm")
    assert spec is None or not Path(str(spec.origin)).is_relative_to(OURS)


def test_a_real_mamba_ssm_stays_and_nothing_is_put_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream's layer would take our convolution for its own, and miss what it needs of it."""
    real(tmp_path, "mamba_ssm")
    monkeypatch.syspath_prepend(tmp_path)
    assert tustin.compat.install() == ()
    assert importlib.import_module("mamba_ssm").real
    assert str(OURS) not in sys.path
    assert tustin.compat.install() == (), "the same when it has been imported"


def test_a_real_causal_conv1d_stays_beside_the_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real(tmp_path, "causal_conv1d")
    monkeypatch.syspath_prepend(tmp_path)
    if tustin.compat._real("mamba_ssm"):
        pytest.skip("mamba_ssm is installed here")
    assert tustin.compat.install() == ("mamba_ssm",)
    assert importlib.import_module("causal_conv1d").real
    assert Path(importlib.import_module("mamba_ssm").__file__).is_relative_to(OURS)


def test_a_real_one_is_replaced_if_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real(tmp_path, "mamba_ssm", code="raise OSError('libcudart.so.12: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    assert tustin.compat.install() == (), "that it is broken does not make it ours"
    assert tustin.compat.install(replace=True) == ("mamba_ssm", "causal_conv1d")
    assert Path(importlib.import_module("mamba_ssm").__file__).is_relative_to(OURS)


def test_one_that_is_in_use_cannot_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real(tmp_path, "mamba_ssm")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("mamba_ssm")
    with pytest.raises(RuntimeError, match=r"mamba_ssm is already imported from .*mamba_ssm.*; call install"):
        tustin.compat.install(replace=True)


def test_a_module_that_somebody_has_made_up_is_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no file and no spec."""
    monkeypatch.setitem(sys.modules, "mamba_ssm", type(sys)("mamba_ssm"))
    assert tustin.compat.install() == ()


@pytest.mark.usefixtures("missing")
def test_a_folder_without_code_is_not_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mamba_ssm").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert "mamba_ssm" in tustin.compat.install()
    assert hasattr(importlib.import_module("mamba_ssm"), "Mamba")


def test_a_rule_that_a_real_package_would_ignore_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real(tmp_path, "mamba_ssm")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError, match=r"'bil' has no effect on the mamba_ssm in .*install\(replace=True\)"):
        tustin.compat.install(discretization="bil")


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("from mamba_ssm import Mamba2", "mamba_ssm.Mamba2"),
        ("from mamba_ssm import Mamba, MambaLMHeadModel", "mamba_ssm.MambaLMHeadModel"),
        ("import mamba_ssm.modules.mamba2", "mamba_ssm.modules.mamba2"),
        (
            "from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined",
            "mamba_ssm.ops.triton.ssd_combined",
        ),
        ("from mamba_ssm.ops.triton import layernorm_gated", "mamba_ssm.ops.triton.layernorm_gated"),
        ("from causal_conv1d.cpp_functions import causal_conv1d_fwd_function", "causal_conv1d.cpp_functions"),
    ],
)
def test_what_it_lacks_says_so_by_name(code: str, name: str) -> None:
    with pytest.raises(ImportError) as told:
        exec(code)
    package = name.split(".")[0]
    assert str(told.value).startswith(f"tustin.compat replaces {package}, but has no {name}; it has ")


@pytest.mark.usefixtures("stand_in")
def test_what_a_module_lacks_says_so_too() -> None:
    with pytest.raises(ImportError, match=r"'SelectiveScanFn' from 'mamba_ssm.ops.selective_scan_interface'.*tustin"):
        exec("from mamba_ssm.ops.selective_scan_interface import SelectiveScanFn")
    mamba_ssm = importlib.import_module("mamba_ssm")
    assert not hasattr(mamba_ssm, "Mamba2"), "asking politely is no import"


@pytest.mark.usefixtures("stand_in")
def test_nobody_inherits_what_generates_nothing() -> None:
    mixin = importlib.import_module("mamba_ssm.utils.generation").GenerationMixin
    with pytest.raises(ImportError, match="Model needs mamba_ssm's GenerationMixin"):
        type("Model", (mixin,), {})


# ── the rule ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_rule_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, name in (("bil", "bil"), ("", "mamba")):
        monkeypatch.setenv(rule.VARIABLE, value)
        assert rule._from_environment().name == name
    monkeypatch.setenv(rule.VARIABLE, "bill")
    with pytest.raises(ValueError, match=r"TUSTIN_DISCRETIZATION: unknown discretization 'bill' \(did you mean 'bil'"):
        rule._from_environment()


@pytest.mark.usefixtures("missing")
def test_a_wrong_rule_is_one_sentence() -> None:
    with pytest.raises(ValueError, match="unknown discretization 'bill'"):
        tustin.compat.install(discretization="bill")
    assert rule.rule().name == "mamba"


# ── python -m tustin.compat ──────────────────────────────────────────────────────────────────────────────────────────

SCRIPT = """\
import multiprocessing, sys, threading
from mamba_ssm import Mamba
from helper import answer  # lies beside the script
from tustin.compat.rule import rule

class Layer(Mamba):
    pass

def work(queue):
    queue.put((type(Layer(16)).__mro__[1].__module__, rule().name))

if __name__ == "__main__":
    print(sys.argv[1:], answer, rule().name)
    thread = threading.Thread(target=lambda: print(rule().name))
    thread.start(); thread.join()
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(*queue.get())
    process.join()
    sys.exit(7)
"""


def test_a_script_runs_with_it_and_so_do_the_processes_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("answer = 42\n")
    monkeypatch.setenv(rule.VARIABLE, "bil")
    program = [sys.executable, "-m", "tustin.compat", "--replace", str(tmp_path / "train.py"), "--replace", "-m", "3"]
    done = subprocess.run(program, capture_output=True, text=True, cwd="/", timeout=300)
    assert done.stdout.splitlines() == [
        "['--replace', '-m', '3'] 42 bil",
        "bil",
        "mamba_ssm.modules.mamba_simple bil",
    ], done.stderr
    assert (done.returncode, done.stderr) == (7, "")


def test_a_module_runs_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "a_program.py").write_text(
        "import sys, mamba_ssm\nprint(__name__, sys.argv[1:], mamba_ssm.Mamba.__name__)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["?"])
    command.main(["--replace", "-m", "a_program", "--x"])
    assert capsys.readouterr().out == "__main__ ['--x'] Mamba\n"


def test_a_script_is_told_that_the_real_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    real(tmp_path, "mamba_ssm")
    script = tmp_path / "script.py"
    script.write_text("import mamba_ssm; print(mamba_ssm.real)\n")
    monkeypatch.setattr(sys, "argv", ["?"])
    command.main([str(script)])
    told = capsys.readouterr()
    assert told.out == "True\n"
    assert told.err == "tustin.compat: the installed mamba_ssm is used; --replace uses the replacement instead\n"


def test_a_mistake_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    script = tmp_path / "script.py"
    script.write_text("")
    real(tmp_path, "mamba_ssm")
    monkeypatch.setattr(sys, "argv", ["?"])
    rule.set_rule("bil")
    for arguments, sentence in (
        (["nowhere.py"], "nowhere.py: no such file"),
        ([str(script)], "the discretization 'bil' has no effect on the mamba_ssm in "),
    ):
        with pytest.raises(SystemExit) as ended:
            command.main(arguments)
        assert ended.value.code == 2
        assert capsys.readouterr().err.startswith(f"tustin.compat: error: {sentence}")
