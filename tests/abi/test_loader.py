# SPDX-License-Identifier: Apache-2.0
"""The loader, against small libraries that export what each case needs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

Compile = Callable[..., None]


@pytest.fixture(scope="module")
def probe(abi_folder: Path, tmp_path_factory: pytest.TempPathFactory, compile_: Compile) -> Path:
    program = tmp_path_factory.mktemp("probe") / "loader_probe"
    compile_(
        *("c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread"),
        *("-I", abi_folder, "-I", abi_folder / "include"),
        *(Path(__file__).with_name("loader_probe.cpp"), abi_folder / "loader.cpp", "-ldl", "-o", program),
    )
    return program


class Workshop:
    """Builds libraries and asks the loader about them."""

    def __init__(self, folder: Path, abi: dict[str, Any], probe: Path, compile_: Compile) -> None:
        self.folder = folder
        self.functions: dict[str, dict[str, Any]] = abi["functions"]
        self.probe = probe
        self.compile = compile_

    @property
    def required(self) -> list[str]:
        return [name for name, function in self.functions.items() if function.get("required")]

    def of_library(self, library: str) -> list[str]:
        return [name for name, function in self.functions.items() if function["library"] == library]

    def library(self, name: str, exports: Iterable[str], *linked: Path) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        source = path.with_suffix(".c")
        # Each its own body: identical ones could be folded into one address.
        bodies = (f"int {function}(void) {{ return {n}; }}\n" for n, function in enumerate(exports, 1))
        source.write_text("".join(bodies) or "int nothing_of_acl(void) { return 0; }\n", encoding="utf-8")
        self.compile(
            *("cc", "-shared", "-fPIC", "-Wl,--no-as-needed", f"-Wl,-soname,{path.name}", source, "-o", path),
            *linked,
            *(f"-Wl,-rpath,{library.parent}" for library in linked),
        )
        return path

    def load(self, *arguments: str | Path, search: Path | None = None) -> list[dict[str, Any]]:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(search) if search else ""}
        done = subprocess.run(
            [self.probe, *arguments], capture_output=True, text=True, env=environment, cwd=self.folder
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def workshop(tmp_path: Path, abi: dict[str, Any], probe: Path, compile_: Compile) -> Workshop:
    return Workshop(tmp_path, abi, probe, compile_)


def test_a_complete_library_has_everything(workshop: Workshop) -> None:
    path = workshop.library("libascendcl.so", workshop.functions)
    [loaded] = workshop.load(path)
    assert loaded["path"] == str(path.resolve())
    assert loaded["error"] == ""
    assert loaded["table_is_right"]
    assert loaded["missing_required"] == loaded["missing_optional"] == []
    assert all(loaded["can"].values())


def test_the_required_functions_are_enough(workshop: Workshop) -> None:
    [loaded] = workshop.load(workshop.library("libascendcl.so", workshop.required))
    assert loaded["table_is_right"]
    assert loaded["missing_required"] == []
    assert set(loaded["missing_optional"]) == workshop.functions.keys() - set(workshop.required)
    assert not any(loaded["can"].values())


def test_each_missing_required_function_is_named(workshop: Workshop) -> None:
    absent = ["aclrtSetCurrentContext", "aclrtMemcpyAsync"]
    path = workshop.library("libascendcl.so", [name for name in workshop.functions if name not in absent])
    [refused] = workshop.load(path)
    assert refused["error"].startswith(
        f"'{path}' lacks functions that aioascend needs: aclrtSetCurrentContext, aclrtMemcpyAsync;"
    )


def test_required_functions_are_those_of_every_release(workshop: Workshop) -> None:
    assert workshop.required
    for name in workshop.required:
        assert not workshop.functions[name]["optional"], name


def test_a_capability_needs_all_its_functions(workshop: Workshop, abi: dict[str, Any]) -> None:
    for name, needs in abi["capabilities"].items():
        assert set(needs) <= workshop.functions.keys(), name
    without = [name for name in workshop.functions if name != "aclrtProcessReport"]
    [loaded] = workshop.load(workshop.library("libascendcl.so", without))
    assert [name for name, present in loaded["can"].items() if not present] == ["launch_callback"]
    assert list(loaded["can"]) == list(abi["capabilities"])


def test_what_is_no_library_is_refused(workshop: Workshop) -> None:
    text = workshop.folder / "text.so"
    text.write_text("not ELF", encoding="utf-8")
    other = workshop.library("libother.so", [])
    refused = workshop.load("", "/nonexistent/libascendcl.so", text, workshop.folder, other)
    messages = [entry["error"] for entry in refused]
    assert messages[0].startswith("the path of the AscendCL library is empty")
    assert messages[1].startswith("cannot load an AscendCL library: /nonexistent/libascendcl.so: ")
    assert messages[2].startswith(f"cannot load an AscendCL library: {text}: ")
    assert messages[3].startswith("cannot load an AscendCL library: ")
    assert str(workshop.folder) in messages[3]
    assert messages[4].startswith(f"'{other}' is not an AscendCL library: it exports none of its functions")


def test_a_library_is_loaded_once_whatever_it_is_called(workshop: Workshop) -> None:
    path = workshop.library("libascendcl.so", workshop.functions)
    link = workshop.folder / "link.so"
    link.symlink_to(path)
    other = workshop.library("other/libascendcl.so", workshop.functions)
    loaded = workshop.load(path, link, "./libascendcl.so", other, path)
    assert [entry["number"] for entry in loaded] == [0, 0, 0, 1, 0]
    assert loaded[1]["path"] == str(path.resolve())
    assert loaded[3]["path"] == str(other.resolve())


def test_a_refused_library_is_refused_again(workshop: Workshop) -> None:
    path = workshop.library("libother.so", [])
    first, second = workshop.load(path, path)
    assert first == second
    assert "is not an AscendCL library" in first["error"]


def test_threads_get_the_same_library(workshop: Workshop) -> None:
    path = workshop.library("libascendcl.so", workshop.functions)
    [raced] = workshop.load("--threads", "8", path)
    assert raced == {"distinct": 1, "loaded": True}


def test_a_bare_name_is_searched_for(workshop: Workshop) -> None:
    path = workshop.library("lib/libascendcl.so", workshop.functions)
    [loaded] = workshop.load("libascendcl.so", search=path.parent)
    assert loaded["path"] == str(path.resolve())
    [refused] = workshop.load("libascendcl.so")
    assert "libascendcl.so" in refused["error"]


def test_functions_of_a_dependency_count(workshop: Workshop) -> None:
    runtime = workshop.library("deps/libacl_rt.so", workshop.of_library("libacl_rt.so"))
    models = workshop.library("deps/libacl_mdl.so", workshop.of_library("libacl_mdl.so"))
    [loaded] = workshop.load(workshop.library("libascendcl.so", [], runtime, models))
    assert loaded["table_is_right"]
    assert set(loaded["missing_optional"]) == set(workshop.of_library("libmsprofiler.so"))


def test_functions_are_found_in_the_libraries_beside_it(workshop: Workshop) -> None:
    workshop.library("libacl_rt.so", workshop.of_library("libacl_rt.so"))
    workshop.library("libacl_mdl.so", workshop.of_library("libacl_mdl.so"))
    [loaded] = workshop.load(workshop.library("libascendcl.so", ["aclInit"]))
    assert loaded["table_is_right"]
    assert loaded["can"]["launch_callback"]
    assert loaded["can"]["models"]
    assert loaded["can"]["exception_register"]


def test_an_empty_shell_finds_the_libraries_where_the_linker_does(workshop: Workshop) -> None:
    workshop.library("elsewhere/libacl_rt.so", workshop.of_library("libacl_rt.so"))
    workshop.library("elsewhere/libacl_mdl.so", workshop.of_library("libacl_mdl.so"))
    path = workshop.library("libascendcl.so", [])
    [loaded] = workshop.load(path, search=workshop.folder / "elsewhere")
    assert loaded["path"] == str(path.resolve())
    assert loaded["can"]["models"]
    [alone] = workshop.load(path)
    assert "is not an AscendCL library" in alone["error"]


def test_a_complete_library_is_not_mixed_with_another_installation(workshop: Workshop) -> None:
    workshop.library("elsewhere/libacl_rt.so", workshop.of_library("libacl_rt.so"))
    workshop.library("elsewhere/libacl_mdl.so", workshop.of_library("libacl_mdl.so"))
    old = [*workshop.required, "aclmdlLoadFromFile"]
    [loaded] = workshop.load(workshop.library("libascendcl.so", old), search=workshop.folder / "elsewhere")
    assert set(loaded["missing_optional"]) == workshop.functions.keys() - set(old)


def test_a_library_can_be_shown_without_some_functions(workshop: Workshop) -> None:
    path = workshop.library("libascendcl.so", workshop.functions)
    gone = ["aclrtStreamGetId", "aclrtProcessReport"]
    [reduced] = workshop.load("--without", gone[0], "--without", gone[1], "--without", gone[0], path)
    assert reduced["table_is_right"]
    assert reduced["missing_optional"] == gone
    lost = [name for name, present in reduced["can"].items() if not present]
    assert lost == ["launch_callback", "stream_get_id"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("aclrtSetDevice", "cannot do without 'aclrtSetDevice': it is required"),
        ("aclrtFlyAway", "cannot do without 'aclrtFlyAway': it is not an ACL function"),
    ],
)
def test_what_cannot_be_taken_away(workshop: Workshop, name: str, message: str) -> None:
    path = workshop.library("libascendcl.so", workshop.functions)
    [refused] = workshop.load("--without", name, path)
    assert refused["error"] == message
