"""The architecture holds: packages are layers, each importing only those before it, and no file is too long to read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tustin"
LAYERS = (
    {"support"},
    {"discretize"},
    {"ops"},
    {"report"},
    {"doctor"},
    {"models", "adapters"},
    {"compat"},
    {"data"},
    {"train"},
    {"export"},
    {"predict"},
    {"study", "bench"},
    {"gpu_check"},
    {"share"},
    {"cli"},
)
"""A package imports itself and those of the layers before its own, never one beside it."""

MODULES = {
    ".".join(("tustin", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
LONGEST = {".py": 350, ".cpp": 300, ".hpp": 300, ".h": 300}
"""Lines of a file that is read in one sitting."""


def imported(module: str, source: str, is_package: bool) -> Iterator[str]:
    """The modules of ours that a module imports: at once, inside functions, for its types, and by their names as text.

    What comes from the package itself and is no module has the name `tustin:NAME`.
    """
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            base = _resolved("." * node.level + (node.module or ""), package)
            for alias in node.names:
                if (name := f"{base}.{alias.name}") in MODULES:
                    yield name
                elif base in MODULES:
                    yield f"tustin:{alias.name}" if base == "tustin" else base
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = _resolved(node.value.rstrip("."), package)  # the beginning of an f-string may end with a dot
            if name in MODULES and name != "tustin":
                yield name


def _resolved(name: str, package: str) -> str:
    """An absolute name, as `import_module` makes it of a relative one."""
    dots = len(name) - len(name.lstrip("."))
    if dots == 0:
        return name
    parents = package.split(".")
    return ".".join([*parents[: len(parents) - dots + 1], *filter(None, [name[dots:]])])


def violations(module: str, source: str, is_package: bool) -> list[str]:
    """Each import that goes upwards or sideways, as `module imports module`."""
    allowed = _allowed(_package_of(module))
    return [
        f"{module} imports {name}"
        for name in dict.fromkeys(imported(module, source, is_package))
        if name != "tustin:__version__" and _package_of(name) not in allowed
    ]


def _package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def _allowed(package: str) -> set[str]:
    place = next(number for number, layer in enumerate(LAYERS) if package in layer)
    return {package}.union(*LAYERS[:place])


@pytest.mark.parametrize("package", [package for layer in LAYERS for package in sorted(layer)])
def test_a_package_imports_only_the_layers_before_it(package: str) -> None:
    found = [
        violation
        for module, path in MODULES.items()
        if module.startswith("tustin.") and _package_of(module) == package
        for violation in violations(module, path.read_text(encoding="utf-8"), path.name == "__init__.py")
    ]
    assert not found, "\n" + "\n".join(found)


def test_importing_tustin_imports_only_the_lowest_layer() -> None:
    """Everything imports it first. What it offers from above comes when it is asked for."""
    at_once = [node for node in ast.parse(MODULES["tustin"].read_text(encoding="utf-8")).body if _is_import(node)]
    names = {name for node in at_once for name in imported("tustin", ast.unparse(node), is_package=True)}
    assert {_package_of(name) for name in names} == {"support"}


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


@pytest.mark.parametrize(
    "source",
    [
        "from ..train import Config",
        "from .. import train",
        "import tustin.train.config",
        "def run():\n    from ..train.config import Config",
        "if TYPE_CHECKING:\n    from ..train import Config",
        "import_module('tustin.train')",
        "import_module('..train', __package__)",
        "import_module(f'..train.{name}', __package__)",
        "lazy_names(__name__, {'..train.config': ('Config',)})",
    ],
)
def test_an_import_that_goes_upwards_is_found(source: str) -> None:
    [found] = violations("tustin.data.images", source, is_package=False)
    assert found.startswith("tustin.data.images imports tustin.train")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from .. import __version__", []),
        ("from ..models import VisionMamba\nfrom . import batches\nimport torch", []),
        ("'train'; '.train'; 'tustin'; '..'; ''", []),
        ("from .. import selective_scan", ["tustin.data.images imports tustin:selective_scan"]),
        ("from tustin import selective_scan", ["tustin.data.images imports tustin:selective_scan"]),
    ],
)
def test_what_is_an_import_and_what_is_not(source: str, found: list[str]) -> None:
    assert violations("tustin.data.images", source, is_package=False) == found


def test_a_neighbour_in_the_same_layer_is_out_of_bounds() -> None:
    found = violations("tustin.study.page", "from ..bench import scan", is_package=False)
    assert found == ["tustin.study.page imports tustin.bench.scan"]


def test_every_package_has_its_layer_and_nothing_else_is_at_the_top() -> None:
    top = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert top == {package for layer in LAYERS for package in layer} | {"__init__.py", "__main__.py", "py.typed"}
    assert all((PACKAGE / package / "__init__.py").is_file() for layer in LAYERS for package in layer)


def test_every_file_of_bench_has_one_of_tests() -> None:
    files = {path.stem for path in (PACKAGE / "bench").glob("*.py")} - {"__init__"}
    assert files == {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "bench").glob("test_*.py")}


def test_files_are_short() -> None:
    files = [path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*") if path.suffix in LONGEST]
    assert len(files) > 100
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sorted(files)}
    found = [f"{path.relative_to(ROOT)}: {count}" for path, count in lines.items() if count > LONGEST[path.suffix]]
    assert not found, "\n" + "\n".join(found)
