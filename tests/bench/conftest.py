# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator

import pytest

import aioascend.testing
from aioascend.bench.settings import Settings
from aioascend.testing import Simulator


@pytest.fixture(autouse=True)
def sim(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    """The simulator, with nothing switched on, and nothing left behind by the test."""
    monkeypatch.setenv("AIOASCEND_BACKEND", "sim")
    monkeypatch.delenv("AIOASCEND_LIBRARY", raising=False)
    sim = aioascend.testing.simulator()
    sim.reset()
    yield sim
    left = {what: sim.live(what) for what in aioascend.testing.LIVE_OBJECTS if sim.live(what)}
    sim.reset()
    assert left == {}


@pytest.fixture
def tiny() -> Settings:
    """Settings that run everything once, with a handful of operations, wherever this machine has cores."""
    usual = Settings.for_this_machine(quick=True)
    return Settings(quick=True, loops=("asyncio",), placements=usual.placements[:1], rounds=1, scale=0.002)
