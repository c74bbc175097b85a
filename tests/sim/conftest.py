# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def library_folder() -> Path:
    """Where libascendcl.so lies: the installed package, or what AIOASCEND_SIM_LIBRARY names."""
    if named := os.environ.get("AIOASCEND_SIM_LIBRARY"):
        return Path(named).resolve().parent
    spec = find_spec("aioascend")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "sim"


@pytest.fixture(scope="session")
def c_environment(library_folder: Path) -> dict[str, str]:
    """No setting of the caller's may change what the programs see."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIOASCEND_")}
    return {**kept, "ACL_LIBRARY_DIR": str(library_folder)}


def compile_program(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    assert done.stderr == "", done.stderr  # no warnings either
