# SPDX-License-Identifier: Apache-2.0
"""What the tests of the composition layer share: a model that gives back its input, and waits for a condition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np

import aioascend as aa
from aioascend.testing import Simulator

SIZE = 1000
COPY = f"""
name = "copy"
inputs = [{{ name = "x", shape = [{SIZE}] }}]
outputs = [{{ name = "y", shape = [{SIZE}], fill = "copy" }}]
""".encode()
STAGE_NS = 1_000_000


def full(value: float) -> np.ndarray[Any, Any]:
    return np.full(SIZE, value, "float32")


async def until(condition: Callable[[], object], *, seconds: float = 10) -> None:
    """Lets other tasks run until it holds; bounded, should it never."""
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.lowlevel.checkpoint()


def set_stages(sim: Simulator, folder: Path, runs: int = 1) -> None:
    """Copying one in and copying it out take a millisecond each, on a unit for each, and a run takes that many."""
    rate = SIZE * 4 / STAGE_NS
    profile = folder / "stages.toml"
    profile.write_text(
        f'name = "stages"\nai_cores = 4\nh2d_gbps = {rate!r}\nd2h_gbps = {rate!r}\n'
        f'[models."copy"]\nlatency_us = {runs * STAGE_NS / 1000!r}\n',
        encoding="utf-8",
    )
    sim.set_profile(profile)


def check_sums(model: aa.Model) -> None:
    """The identity of the statistics."""
    now = model.statistics()
    assert now.calls == now.ok + now.failed + now.cancelled + now.waiting + now.running
    assert min(now.waiting, now.running, now.abandoned) >= 0
