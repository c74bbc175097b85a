# SPDX-License-Identifier: Apache-2.0
"""Builds the C++ tests of the simulator's core against the installed library and runs each case by itself."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sim.conftest import ROOT, compile_program

FOLDER = Path(__file__).parent
CASES = [
    (source.stem, name)
    for source in sorted(FOLDER.glob("*_test.cpp"))
    for name in re.findall(r"^TEST\((\w+)\)", source.read_text(), re.MULTILINE)
]


@pytest.fixture(scope="session")
def program(library_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The test program of a source file, built when first asked for."""
    folder = tmp_path_factory.mktemp("sim_core")
    includes = [f"-I{ROOT}/_native/sim/include", f"-I{ROOT}/_native/abi/include"]

    def build(stem: str) -> Path:
        target = folder / stem
        if not target.exists():
            sources = [str(FOLDER / f"{stem}.cpp"), str(FOLDER / "main.cpp")]
            link = [f"-L{library_folder}", "-lascendcl", f"-Wl,-rpath,{library_folder}", "-pthread"]
            compile_program(["c++", "-std=c++17", "-Wall", "-Wextra", *includes, *sources, "-o", str(target), *link])
        return target

    return build


@pytest.mark.parametrize(("stem", "case"), CASES, ids=[f"{stem}-{case}" for stem, case in CASES])
def test_case(stem: str, case: str, program: Callable[[str], Path], c_environment: dict[str, str]) -> None:
    done = subprocess.run(
        [program(stem), case], capture_output=True, text=True, env=c_environment, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"ok   {case}\n"
