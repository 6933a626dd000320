"""What stands around the code: requirements, experiments, commands, documents."""

import ast
import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from transformer.command_line import load_config
from transformer.config import Config
from transformer.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ["README.md", "CONTRIBUTING.md"]
EXPERIMENTS = sorted(
    path.stem for path in (ROOT / "configs").glob("*.py") if path.stem != "__init__"
)


def read(name: str) -> str:
    """The text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def requirement_lines(*names: str) -> list[str]:
    """The lines of requirements files that are no comments."""
    lines = [line for name in names for line in read(name).splitlines()]
    return [line for line in lines if line.strip() and not line.startswith("#")]


def distributions(*names: str) -> set[str]:
    """The canonical names that requirements files list."""
    return {
        canonicalize_name(Requirement(line.split("#")[0]).name)
        for line in requirement_lines(*names)
    }


ALL_REQUIREMENTS = requirement_lines("requirements.txt", "requirements-test.txt")


@pytest.mark.parametrize("line", ALL_REQUIREMENTS)
def test_requirement_has_bound_and_reason(line: str) -> None:
    """Each direct dependency says from which version on, and what it is for."""
    text, _, reason = line.partition("  # ")
    assert [part.operator for part in Requirement(text).specifier] == [">="]
    assert len(reason.split()) >= 2


@pytest.mark.parametrize("line", ALL_REQUIREMENTS)
def test_constraints_pin_every_requirement(line: str) -> None:
    """`make` installs exact versions, and none below the bound that is promised."""
    wanted = Requirement(line.split("#")[0])
    pins = [
        pin
        for pin in map(Requirement, requirement_lines("constraints.txt"))
        if canonicalize_name(pin.name) == canonicalize_name(wanted.name)
    ]
    assert pins
    for pin in pins:
        (version,) = pin.specifier
        assert version.operator == "=="
        assert Version(version.version) in wanted.specifier


def test_constraints_are_exact_and_name_no_index() -> None:
    """Pins only: an index or a folder of one machine would break every other one."""
    for line in requirement_lines("constraints.txt"):
        assert re.fullmatch(r"[a-z0-9.-]+==[^ ]+( ; .+)?", line), line


@pytest.mark.parametrize(
    "name",
    [
        *("requirements.txt", "requirements-test.txt", "constraints.txt"),
        *("Makefile", ".ci/run", "pyproject.toml"),
    ],
)
def test_no_package_index_is_named(name: str) -> None:
    """Where packages come from is the machine's own setting."""
    index = r"(https?|file)://|index-url|find-links|trusted-host"
    assert not re.search(index, read(name))


def third_party(*roots: str) -> Iterator[tuple[str, str]]:
    """File and name of every package imported that is neither ours nor Python's."""
    ours = {path.stem for path in ROOT.iterdir()} | set(sys.stdlib_module_names)
    files = [path for root in roots for path in sorted(ROOT.glob(root))]
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                if (top := name.split(".")[0]) not in ours:
                    yield str(path.relative_to(ROOT)), top


@pytest.mark.parametrize(
    ("roots", "files"),
    [
        (("*.py", "configs/*.py", "transformer/**/*.py"), ["requirements.txt"]),
        (("tests/**/*.py",), ["requirements.txt", "requirements-test.txt"]),
    ],
)
def test_every_import_is_a_listed_requirement(
    roots: tuple[str, ...], files: list[str]
) -> None:
    """A package that came only as another's dependency may go with the next version."""
    providers = importlib.metadata.packages_distributions()
    listed = distributions(*files)
    found = list(third_party(*roots))
    assert found
    for path, name in found:
        names = {canonicalize_name(provider) for provider in providers[name]}
        assert names & listed, f"{path} imports {name}, listed nowhere in {files}"


def variants(experiment: str) -> tuple[str, ...]:
    """The variants that an experiment names; () where it has none."""
    return getattr(importlib.import_module(f"configs.{experiment}"), "VARIANTS", ())


@pytest.mark.parametrize(
    "flag",
    [
        f"configs/{name}.py{suffix}"
        for name in EXPERIMENTS
        for suffix in ("", *(f":{variant}" for variant in variants(name)))
    ],
)
def test_every_experiment_loads(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file and variant passes the strict reader."""
    monkeypatch.chdir(ROOT)
    assert isinstance(load_config(flag, {}), Config)


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if variants(name)])
def test_unknown_variant_is_the_users_mistake(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence names the variants that there are."""
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError, match=re.escape(variants(name)[0])):
        load_config(f"configs/{name}.py:no_such_variant", {})


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_tells_how_to_run_it(name: str) -> None:
    """The docstring holds the command, the hardware and time, and the target."""
    doc = importlib.import_module(f"configs.{name}").__doc__ or ""
    assert re.search(
        rf"python train\.py --config=configs/{name}\.py\S* --workdir=", doc
    )
    assert "Hardware and time:" in doc
    assert re.search(r"[Tt]argets?\b", doc)


def test_ruff_holds_the_style() -> None:
    """The rules that STYLE asks for are on, at its width, with Google's docstrings."""
    ruff = tomllib.loads(read("pyproject.toml"))["tool"]["ruff"]
    assert {"E", "F", "I", "UP", "B", "D"} <= set(ruff["lint"]["select"])
    assert ruff["line-length"] == 88
    assert ruff["lint"]["pydocstyle"]["convention"] == "google"


def dry_run(target: str, folder: Path) -> str:
    """What `make TARGET` would run in a copy that has no environment yet."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    names = ("Makefile", "requirements.txt", "requirements-test.txt", "constraints.txt")
    for name in names:
        shutil.copy(ROOT / name, folder)
    command = ["make", "--no-print-directory", "--dry-run", target]
    # A `make test` above hands its own settings down, an environment's name included.
    clean = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "VENV")}
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True, env=clean
    ).stdout


@pytest.mark.parametrize(
    ("target", "steps"),
    [
        ("test", ["ruff check", "ruff format --check", "mypy", "pytest"]),
        ("demo", ["train.py --config=configs/demo.py", "evaluate.py"]),
    ],
)
def test_make_sets_up_and_then_does_all(
    target: str, steps: list[str], tmp_path: Path
) -> None:
    """On a fresh machine: an environment, the pinned packages, then each step."""
    commands = dry_run(target, tmp_path)
    places = [commands.find(s) for s in ["-m venv", "constraints.txt", *steps]]
    assert -1 not in places and places == sorted(places), commands


def test_ci_runs_what_a_developer_runs() -> None:
    """One definition of passing; the script stops at the first failure."""
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "set -euo pipefail" in read(".ci/run")
    assert re.search(r"^make test$", read(".ci/run"), re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_name_only_what_exists(document: str) -> None:
    """Files, links and make targets in the documents are really there."""
    text = read(document)
    rooms = "transformer|configs|tests|docs|benchmarks"
    paths = set(re.findall(rf"(?:{rooms})/[\w/]+\.(?:py|md)", text))
    paths |= set(re.findall(r"python (\w+\.py)", text))
    paths |= set(re.findall(r"\]\(([^)#:]+)\)", text))
    assert paths
    paths.discard("configs/NAME.py")  # stands for any experiment
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+)\b(?=`|$)", text, re.MULTILINE)) <= targets


def test_readme_names_every_experiment_and_key_is_real() -> None:
    """Every experiment is in the README, and every --config.KEY there exists."""
    text = read("README.md")
    assert [name for name in EXPERIMENTS if f"configs/{name}.py" not in text] == []
    keys = load_config(str(ROOT / "configs" / "base.py"), {}).flatten()
    used = set(re.findall(r"--config\.((?:model|data|train|decode)\.\w+)", text))
    used |= set(re.findall(r"`((?:model|data|train|decode)\.\w+)`", text))
    assert used and used <= set(keys)
