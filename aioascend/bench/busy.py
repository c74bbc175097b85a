# SPDX-License-Identifier: Apache-2.0
"""A device that is kept busy while something else is measured."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from aioascend.bench.contenders import Contender

__all__ = ["Tally", "busy"]


@dataclasses.dataclass
class Tally:
    """How many operations are done so far."""

    done: int = 0
    stop: bool = False


@contextlib.asynccontextmanager
async def busy(contender: Contender) -> AsyncIterator[Tally]:
    """Keeps the device busy from all lanes of a contender, on asyncio; at the end what is in flight gets done."""
    tally = Tally()
    copy = contender.copy

    async def repeat(lane: Any) -> None:
        while not tally.stop:
            await copy(lane)
            tally.done += 1

    tasks = [asyncio.ensure_future(repeat(lane)) for lane in contender.lanes]
    try:
        yield tally
    finally:
        tally.stop = True
        await asyncio.gather(*tasks)
