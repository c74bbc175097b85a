# SPDX-License-Identifier: Apache-2.0
"""The shape of the code base: imports go downward, names are exported once, native rules hold."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

import aioascend

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "aioascend"
NATIVE = ROOT / "_native"

# From the bottom up. A module imports only from lines above its own.
LAYERS = [
    {"_error_table", "_interpreter", "_words"},
    {"errors", "_trio", "_debug"},
    {"_native"},
    {"_arguments", "_background", "_cancels", "_signals", "_threads", "_closing", "_backend", "tensors", "debug"},
    {"_deadlines", "_opened", "_places"},
    {"stream", "health", "_calls"},
    {"_instances"},
    {"_first_calls"},
    {"model"},
    {"device"},
    {"batcher", "infer_queue", "pipeline", "pool", "scheduler"},
    {"__init__"},
    {"testing"},
    {"_self_test", "_capability_costs", "demo", "bench", "soak"},
    {"doctor"},
    {"cli"},
    {"__main__"},
]


def layer_of(module: str) -> int:
    for level, names in enumerate(LAYERS):
        if module in names:
            return level
    raise AssertionError(f"aioascend.{module} is in no layer: add it to LAYERS")


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def runtime_imports(tree: ast.AST) -> set[str]:
    """First parts of what is imported from aioascend, other than for type checkers only."""
    found: set[str] = set()
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            skipped.update(child for statement in node.body for child in ast.walk(statement))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "aioascend":
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aioascend."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            found.update(
                "__init__" if name.name == "aioascend" else name.name.split(".")[1]
                for name in node.names
                if name.name.split(".")[0] == "aioascend"
            )
    modules = {part_of(path) for path in python_files()} | {"_native"}
    return {name if name in modules else "__init__" for name in found}


def python_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_downward(path: Path) -> None:
    module = part_of(path)
    if module == "sim":
        return
    for imported in runtime_imports(ast.parse(path.read_text(encoding="utf-8"))) - {module}:
        assert layer_of(imported) < layer_of(module), f"{module} imports {imported}, which is not below it"


def test_the_extension_imports_downward() -> None:
    for path in sorted(NATIVE.glob("*.pyx")):
        for imported in re.findall(r"from aioascend import (\w+)", path.read_text(encoding="utf-8")):
            assert layer_of(imported) < layer_of("_native"), f"{path.name} imports {imported}"


def test_every_public_name_is_exported_once() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    imported = Counter(
        name.asname or name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names
    )
    assert [name for name, count in imported.items() if count > 1] == []
    assert sorted([*imported, "__version__"]) == sorted(aioascend.__all__)
    owners: Counter[int] = Counter()
    for path in python_files():
        if path.stem in ("__init__", "__main__") or part_of(path) == "demo":
            continue
        module = importlib.import_module("aioascend." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts))
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if not hasattr(value, "__module__"):
                continue  # a constant, which may be equal to another one
            assert value.__module__ == module.__name__, f"{module.__name__} exports {name} of {value.__module__}"
            owners[id(value)] += 1
    assert [count for count in owners.values() if count > 1] == []


def test_no_python_where_no_gil_may_be() -> None:
    for folder in ("runtime", "sim", "abi"):
        for path in (NATIVE / folder).rglob("*"):
            if path.suffix in (".h", ".cpp", ".c", ".inc"):
                assert "Python.h" not in path.read_text(encoding="utf-8"), path


def test_acl_calls_of_the_extension_are_made_without_the_gil() -> None:
    call = re.compile(r"\bapi(\(\))?\.acl\w+\(|\bdevice\.(open|close|create_\w+|wrap_\w+|load_\w+|unload_\w+)\(")
    for path in sorted(NATIVE.glob("*.pyx")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if not call.search(line):
                continue
            indent = len(line) - len(line.lstrip())
            above = (
                before
                for before in reversed(lines[:number])
                if before.strip() and len(before) - len(before.lstrip()) < indent
            )
            block = next(above).strip()
            while block.startswith(("if ", "else")):
                block = next(above).strip()
            assert block == "with nogil:", f"{path.name}:{number + 1}: {line.strip()}"


def test_files_have_one_job() -> None:
    """Generated files and data aside, nothing is longer than one can read in one go."""
    generated = {"_error_table.py", "acl.h", "functions.inc"}
    for folder, pattern in ((PACKAGE, "*.py"), (NATIVE, "*.pyx"), (NATIVE, "*.cpp"), (NATIVE, "*.h")):
        for path in folder.rglob(pattern):
            if path.name not in generated:
                assert len(path.read_text(encoding="utf-8").splitlines()) <= 420, path


def prose() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", prose(), ids=lambda path: path.name)
def test_lines_of_prose_are_not_too_long(path: Path) -> None:
    """Those of tables and of what programs print are as long as they are."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")] == []
