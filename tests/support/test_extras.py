"""A library that is not installed: the sentence that says how to get it, and the list behind it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tustin.support.extras import EXTRAS, how_to_get

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "pyyaml", "faster_coco_eval": "faster-coco-eval"}
"""Where they are not called like the module."""
WITHOUT = """
import sys

sys.modules |= dict.fromkeys({modules!r})  # as if they were not installed
sys.argv = ["tustin", *{argv!r}]
"""
OPTIONAL = {module for modules in EXTRAS.values() for module in modules}


def without(argv, program, modules=OPTIONAL):
    """Run a program where these modules are missing."""
    code = WITHOUT.format(modules=modules, argv=argv) + program
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)


def test_the_list_is_that_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra, modules in EXTRAS.items():
        brought = {re.split(r"[\[>=<]", one)[0].lower() for one in project["optional-dependencies"][extra]} - {"tustin"}
        assert brought == {DISTRIBUTIONS.get(module, module) for module in modules}


def test_other_modules_are_not_ours_to_explain():
    assert how_to_get(ModuleNotFoundError("No module named 'x'", name="x")) is None
    assert "tustin[study]" in how_to_get(ModuleNotFoundError("", name="scipy.stats"))


COMMAND = "from tustin.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize(
    ("argv", "missing", "extra"),
    [
        (["train", "digits"], OPTIONAL - {"yaml"}, "train"),
        (["study", "digits"], set(EXTRAS["study"]), "study"),
        (["discretizations", "--plot", "nowhere.png"], OPTIONAL, "train"),
    ],
)
def test_a_command_says_what_to_install(argv, missing, extra):
    done = without(argv, COMMAND, missing)
    assert done.returncode == 1
    assert re.fullmatch(
        rf"tustin: error: this needs \w+, which is not installed; get it with: pip install 'tustin\[{extra}\]'\n",
        done.stderr,
    )


@pytest.mark.parametrize("argv", [["--help"], ["discretizations"], ["doctor"], ["info", "vim_tiny_patch16_224"]])
def test_what_the_package_does_without_extras(argv):
    done = without(argv, COMMAND)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_scan_needs_torch_and_numpy_only():
    program = """
import torch, tustin
u = torch.ones(1, 2, 3, requires_grad=True)
tustin.selective_scan(u, torch.ones(1, 2, 3), -torch.ones(2, 4), torch.ones(2, 4), torch.ones(2, 4)).sum().backward()
print(u.grad.shape)
"""
    done = without([], program, OPTIONAL | {"timm", "torchvision", "safetensors", "huggingface_hub", "PIL", "rich"})
    assert done.stdout == "torch.Size([1, 2, 3])\n", done.stderr
