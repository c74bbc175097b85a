# SPDX-License-Identifier: Apache-2.0
"""`python -m aioascend.bench.in_flight_memory KIND COUNT`: bytes of an operation in flight.

In a process of its own, as memory that something else has used before and given back would be used again unseen.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from pathlib import Path
from typing import Any

from aioascend.bench.concurrent import STREAMS
from aioascend.bench.contenders import CONTENDERS, Place
from aioascend.bench.in_flight import AWAIT, submit
from aioascend.bench.placement import Placement
from aioascend.bench.settings import Settings

__all__ = ["bytes_per_operation"]

_WARM_UP = 256


async def bytes_per_operation(kind: str, count: int) -> float:
    """By how much the resident memory grows, per operation, while `count` of them are in flight."""
    settings = Settings()
    sim = settings.simulator("holding operations in flight")
    sim.set_timeline_capacity(0)
    contender = CONTENDERS["aioascend"](Place(settings, Placement("one"), STREAMS, STREAMS))
    await contender.open()
    operations: list[Any] = [None] * count
    try:
        await AWAIT[kind](contender, submit(contender, [None] * _WARM_UP), _WARM_UP)
        gc.collect()
        before = _resident_bytes()
        with sim.hold(device=0):
            done = asyncio.ensure_future(AWAIT[kind](contender, submit(contender, operations), count))
            await asyncio.sleep(0)  # it has made its tasks
            await asyncio.sleep(0)  # and these wait
            grown = _resident_bytes() - before
        await done
    finally:
        await contender.close()
    return grown / count


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(asyncio.run(bytes_per_operation(sys.argv[1], int(sys.argv[2]))))
