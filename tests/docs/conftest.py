# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import select
import time
from collections.abc import Iterator

import pytest

from aioascend import _native
from aioascend.testing import LIVE_OBJECTS, simulator


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a program of a page has made is gone when its test ends, or tests that count would find it."""
    sim = simulator("sim")

    def live() -> dict[str, int]:
        return {what: sim.live(what) for what in LIVE_OBJECTS}

    before = live()
    yield
    sim.reset()
    request.node.funcargs.clear()
    _native.forget_closed_loops()
    gc.collect()
    limit = time.monotonic() + 10
    while live() != before and time.monotonic() < limit:  # a thread of a pool holds what it has run a moment longer
        select.select([], [], [], 0)
        gc.collect()
    assert live() == before
