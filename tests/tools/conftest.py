# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import aioascend.testing
from aioascend.testing import Simulator

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def sim(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    """The simulator, with nothing switched on."""
    monkeypatch.setenv("AIOASCEND_BACKEND", "sim")
    monkeypatch.delenv("AIOASCEND_LIBRARY", raising=False)
    sim = aioascend.testing.simulator()
    sim.reset()
    yield sim
    sim.reset()


@pytest.fixture
def acl(sim: Simulator) -> ctypes.CDLL:
    """The ACL functions themselves, for what the runtime does not do of its own accord."""
    return ctypes.CDLL(sim.path)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def run_python() -> RunPython:
    """Runs Python with these arguments, and keywords as environment; gives what it did."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            cwd=Path(__file__).parent,  # not the source tree: its package would hide the installed one
        )

    return run
