# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ABI_FOLDER = Path(__file__).resolve().parents[2] / "_native" / "abi"


@pytest.fixture(scope="session")
def abi_folder() -> Path:
    return ABI_FOLDER


@pytest.fixture(scope="session")
def abi() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((ABI_FOLDER / "acl_abi.json").read_text(encoding="utf-8"))
    return data


@pytest.fixture(scope="session")
def compile_() -> Callable[..., None]:
    """Runs a compiler; the test fails with the compiler's own words when it refuses."""

    def run(*command: str | Path) -> None:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stderr}"

    return run
