"""The house: imports run one way, and a room touches only what is its own."""

import ast
import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "transformer"

# A room may import rooms of lower rank. Rooms of one rank do not know each other.
RANKS = {
    "errors": 0,
    "config": 1,
    "parsing": 2,
    "paper": 2,
    "model": 3,
    "data": 4,
    "training": 5,
    "decoding": 6,
    "evaluation": 7,
    "explorer": 8,
    "interop": 8,
    "command_line": 9,
}
JAX_LIBRARIES = {"jax", "jaxlib", "flax", "optax", "orbax"}
FILE_LIBRARIES = {
    *("etils", "fsspec", "glob", "io", "json", "os", "pathlib", "pickle", "shutil"),
    *("tempfile", "orbax", "sentencepiece", "tensorflow_datasets"),
}
FILE_CALLS = {"open", "load", "save", "savez", "loadtxt", "savetxt", "memmap"}


def module_name(path: Path) -> str:
    """`transformer/data/text.py` as `transformer.data.text`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_name(path): path.read_text(encoding="utf-8")
    for path in sorted((ROOT / PACKAGE).rglob("*.py"))
}


def imported(source: str, module: str, is_package: bool = False) -> set[str]:
    """Every dotted name that a module's text imports, wherever the import stands.

    `from a import b` gives `a` and `a.b`: `b` may be a module or a name in one.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = len(parts) - node.level + is_package
                base = ".".join([*parts[:kept], *filter(None, [base])])
            names.add(base)
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def room(name: str) -> str:
    """The room of a dotted module name; the package's own `__init__` is ""."""
    return ".".join(name.split(".")[1:2])


def imports_of(module: str) -> set[str]:
    """`imported` for a module of the package."""
    is_package = (ROOT / Path(*module.split(".")) / "__init__.py").is_file()
    return imported(MODULES[module], module, is_package)


def wrong_way(module: str, names: set[str]) -> list[str]:
    """Those of `names` that are rooms to the right of `module`'s, or its equals."""
    own = room(module)
    return sorted(
        name
        for name in names
        if name.startswith(f"{PACKAGE}.")
        and room(name) in RANKS
        and room(name) != own
        and RANKS[room(name)] >= RANKS[own]
    )


def reached(module: str) -> set[str]:
    """All that importing `module` imports, through the package's own modules too."""
    seen: set[str] = set()
    names = {module}
    while names:
        name = names.pop()
        seen.add(name)
        if name in MODULES:
            names |= imports_of(name) - seen
    return seen


def of_room(*rooms: str) -> list[str]:
    """The modules of these rooms."""
    return [module for module in MODULES if room(module) in rooms]


def test_every_room_has_its_place_in_the_order() -> None:
    """A new room, or a file beside the rooms, must be given a rank first."""
    assert {room(module) for module in MODULES} - {""} <= set(RANKS)
    assert {"errors", "config", "model", "data", "training"} <= {
        room(module) for module in MODULES
    }


@pytest.mark.parametrize("module", [name for name in MODULES if room(name)])
def test_imports_run_one_way(module: str) -> None:
    """A module imports only rooms to the left of its own."""
    assert wrong_way(module, imports_of(module)) == []


def test_package_init_imports_nothing_before_it_is_asked() -> None:
    """Importing any room imports `transformer`, so that must not load the others.

    The commands set JAX up after they have imported one. The translator comes late,
    and what only training needs, and takes long to import, does not come with it.
    """
    program = (
        "import sys, transformer\n"
        "assert 'jax' not in sys.modules\n"
        "assert not [name for name in sys.modules if name.startswith('transformer.')]\n"
        "from transformer import Translator\n"
        "assert Translator.__module__ == 'transformer.decoding.translator'\n"
        "assert 'tensorboardX' not in sys.modules\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("transformer.model.a", "import transformer.data.text", True),
        ("transformer.model.a", "from transformer import data", True),
        ("transformer.model.a", "def f():\n    from ..data import text", True),
        ("transformer.paper", "from transformer.parsing import trees", True),
        ("transformer.config", "from transformer.errors import UserError", False),
        ("transformer.data.a", "from . import text", False),
        ("transformer.training.a", "from transformer.model import b", False),
    ],
)
def test_wrong_way_is_seen_in_every_form(module: str, source: str, wrong: bool) -> None:
    """Absolute, relative and local imports are all judged."""
    assert bool(wrong_way(module, imported(source, module))) is wrong


@pytest.mark.parametrize("module", MODULES)
def test_package_knows_no_experiment_or_script(module: str) -> None:
    """`configs` and the scripts stand on the package, never under it."""
    outside = {path.stem for path in ROOT.glob("*.py")}
    outside |= {"configs", "tests", "benchmarks"}
    assert {name.split(".")[0] for name in imports_of(module)} & outside == set()


def flag_definitions(source: str) -> list[str]:
    """Calls that define a flag with absl, and imports of argparse."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("DEFINE_"):
            found.append(node.attr)
        if isinstance(node, ast.Name) and node.id.startswith("DEFINE_"):
            found.append(node.id)
    found.extend(name for name in imported(source, "x") if name == "argparse")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_only_the_command_line_defines_flags(module: str) -> None:
    """Flags defined at import once kept two scripts from being imported together."""
    if module != "transformer.command_line":
        assert flag_definitions(MODULES[module]) == []
    assert flag_definitions("from absl import flags\nflags.DEFINE_bool('a', 1, '')")


def file_accesses(source: str, module: str) -> Iterator[str]:
    """Libraries and calls in a module's text that read or write files."""
    for name in imported(source, module):
        if name.split(".")[0] in FILE_LIBRARIES:
            yield name
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            function = node.func
            name = getattr(function, "attr", getattr(function, "id", ""))
            if name in FILE_CALLS:
                yield f"{name}()"


@pytest.mark.parametrize("module", of_room("model"))
def test_model_touches_no_files(module: str) -> None:
    """The network is a function of arrays."""
    assert list(file_accesses(MODULES[module], module)) == []
    assert list(file_accesses("with open('x') as f:\n    pass", module))
    assert list(file_accesses("import os.path", module))


@pytest.mark.parametrize("module", of_room("data", "parsing", "paper"))
def test_data_is_numpy_only(module: str) -> None:
    """Neither a data module nor what it imports of ours uses JAX."""
    libraries = {name.split(".")[0] for name in reached(module)}
    assert libraries & JAX_LIBRARIES == set()


def test_jax_is_seen_behind_an_import() -> None:
    """The check above follows our own modules: Flax stands behind `model` here."""
    module = "transformer.training.step"
    assert "flax" not in {name.split(".")[0] for name in imports_of(module)}
    assert "flax" in {name.split(".")[0] for name in reached(module)}


def test_importing_data_touches_no_device() -> None:
    """Workers import `data`: with no usable JAX backend that still works.

    Grain imports JAX itself, so the modules loaded say nothing; a backend that does
    not exist fails at the first device asked for.
    """
    package = importlib.import_module("transformer.data")
    modules = [
        module.name
        for module in pkgutil.walk_packages(package.__path__, "transformer.data.")
    ]
    assert modules
    result = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(modules)}"],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "none_at_all"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
