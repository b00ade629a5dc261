"""Imports point down only, and a configuration can be checked without importing anything heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from composer_rl.config.paths import conf_dir, yaml_files

PACKAGE = Path(__file__).parents[1] / "composer_rl"

FAMILIES = {
    "losses",
    "po",
    "hints",
    "curricula",
    "envs",
    "sandboxes",
    "rollouts",
    "models",
    "optim",
    "rewards",
    "trackers",
    "report",
}
HEAVY = {
    "torch",
    "transformers",
    "trl",
    "peft",
    "wandb",
    "datasets",
    "accelerate",
    "pandas",
    "pyarrow",
    "plotly",
    "numpy",
}
FOUNDATION = {"errors", "types"}
ABOVE_THE_STAGES = {"run", "process", "preflight", "launch", "sweeps", "doctor", "cli"}
"""Top-level modules that put a run together; nothing below imports them."""
SHARED = {"runtime", "engagement"}
"""Top-level modules beside the families: settings and records that several layers read."""

BUILDS_RECORDS_OF = {("envs", "sandboxes")}
"""(family, other): the family fills in records that the other's base module defines, so it imports that module at run
time: an environment hands EvaluationJobs to the sandbox it was given."""


@dataclass(frozen=True)
class Import:
    """One import statement's target inside composer_rl, or an outside package."""

    file: str
    line: int
    module: str
    typing_only: bool
    lazy: bool

    @property
    def parts(self) -> list[str]:
        return self.module.split(".")

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def imports_of(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield from _visit(tree, str(path.relative_to(PACKAGE.parent)), typing_only=False, lazy=False)


def _visit(node: ast.AST, file: str, *, typing_only: bool, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(file, child.lineno, alias.name, typing_only, lazy)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{file}:{child.lineno}: relative import"
            module = str(child.module)
            for alias in child.names:
                yield Import(file, child.lineno, _module_or_parent(module, alias.name), typing_only, lazy)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for statement in child.body:
                yield from _visit(ast.Module([statement], []), file, typing_only=True, lazy=lazy)
            for statement in child.orelse:
                yield from _visit(ast.Module([statement], []), file, typing_only=typing_only, lazy=lazy)
        else:
            inside = lazy or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from _visit(child, file, typing_only=typing_only, lazy=inside)


def _module_or_parent(module: str, name: str) -> str:
    """`from composer_rl.config import paths` imports the module composer_rl.config.paths."""
    path = PACKAGE.parent.joinpath(*module.split("."), name)
    return f"{module}.{name}" if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file() else module


ALL_IMPORTS = [found for path in sorted(PACKAGE.rglob("*.py")) for found in imports_of(path)]


def layer_of(file: str) -> str:
    return Path(file).parts[1].removesuffix(".py")


def inside(layer: str) -> list[Import]:
    return [found for found in ALL_IMPORTS if layer_of(found.file) == layer]


def targets(found: Import) -> str | None:
    """The layer of composer_rl that is imported, None for other packages."""
    if found.parts[0] != "composer_rl":
        return None
    return found.parts[1] if len(found.parts) > 1 else "__init__"


def test_every_module_has_a_layer() -> None:
    known = FAMILIES | FOUNDATION | ABOVE_THE_STAGES | SHARED | {"config", "ops", "trainer", "stages", "__init__"}
    found = {layer_of(str(path.relative_to(PACKAGE.parent))) for path in PACKAGE.rglob("*.py")}
    assert found <= known, f"say in this test where {sorted(found - known)} belong"


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_family_imports_no_other_family(family: str) -> None:
    for found in inside(family):
        target = targets(found)
        if target in FAMILIES - {family}:
            allowed = found.typing_only or (family, target) in BUILDS_RECORDS_OF
            assert allowed, f"{found}: a family receives objects of other families"
            assert found.parts[2:] == ["base"], f"{found}: another family may be named by its base module only"
        assert target not in {"trainer", "stages"} | ABOVE_THE_STAGES, f"{found}: imports point down only"


@pytest.mark.parametrize("layer", sorted(FOUNDATION))
def test_the_foundation_imports_nothing_of_ours(layer: str) -> None:
    for found in inside(layer):
        assert targets(found) in {None, *FOUNDATION}, str(found)
        assert found.parts[0] not in HEAVY, str(found)


def test_ops_know_no_family() -> None:
    for found in inside("ops"):
        assert targets(found) in {None, "ops", *FOUNDATION}, str(found)


def test_config_knows_no_family_and_no_torch() -> None:
    for found in inside("config"):
        assert targets(found) in {None, "config", "__init__", *FOUNDATION}, str(found)
        assert found.parts[0] not in HEAVY, str(found)


@pytest.mark.parametrize("layer", ["cli", "launch", "preflight", "run", "process"])
def test_the_command_line_never_imports_torch(layer: str) -> None:
    for found in inside(layer):
        assert found.typing_only or found.parts[0] not in HEAVY, str(found)


def test_the_trainer_sees_families_through_their_base() -> None:
    for found in inside("trainer"):
        target = targets(found)
        if target in FAMILIES:
            assert found.parts[2:] == ["base"], f"{found}: the trainer sees a family by its base module"
        assert target not in {"stages", *ABOVE_THE_STAGES}, f"{found}: imports point down only"


def test_stages_do_not_import_what_runs_them() -> None:
    for found in inside("stages"):
        assert targets(found) not in ABOVE_THE_STAGES, f"{found}: imports point down only"


def named_modules() -> list[str]:
    """Modules that a YAML's `_target_` names."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    def targets_in(node: object) -> Iterator[str]:
        if isinstance(node, dict):
            if isinstance(node.get("_target_"), str) and node["_target_"].startswith("composer_rl."):
                yield node["_target_"].rpartition(".")[0]
            for value in node.values():
                yield from targets_in(value)
        elif isinstance(node, list):
            for value in node:
                yield from targets_in(value)

    return sorted({name for file in yaml_files(conf_dir()) for name in targets_in(yaml.load(file.read_text(), Loader))})


def test_components_import_nothing_heavy() -> None:
    """All of them in one fresh interpreter: what a configuration check imports."""
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[2:]:\n"
        "    importlib.import_module(name)\n"
        "    heavy = sorted(set(sys.argv[1].split(',')) & set(sys.modules))\n"
        "    assert not heavy, f'{name} imports {heavy} when it is imported'\n"
    )
    heavy = ",".join(sorted(HEAVY))
    done = subprocess.run(
        [sys.executable, "-c", code, heavy, *named_modules()], capture_output=True, text=True, cwd=PACKAGE.parent
    )
    assert done.returncode == 0, done.stderr


def test_the_package_itself_imports_nothing() -> None:
    code = "import sys, composer_rl; print([name for name in sys.modules if name.startswith('composer_rl.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent, check=True)
    assert done.stdout == "[]\n"
