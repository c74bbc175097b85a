# SPDX-License-Identifier: Apache-2.0
"""What the tests of pools share."""

from __future__ import annotations

import asyncio
import functools
import sys

import anyio
import anyio.lowlevel
import pytest

import aioascend as aa
from compose import scene

until = functools.partial(scene.until, seconds=60)


def check(pool: aa.StreamPool) -> aa.StreamPoolStatistics:
    """The sums that hold at any moment."""
    now = pool.statistics()
    assert now.size == now.idle + now.held + now.draining, now
    assert now.created == now.size + now.replaced + now.retired, now
    assert now.submitted == now.acquired + now.waiting + now.timed_out + now.cancelled + now.failed, now
    assert min(now.idle, now.held, now.draining, now.waiting) >= 0, now
    assert now.size <= now.wanted, now
    return now


def gauges(pool: aa.StreamPool) -> tuple[int, int, int, int]:
    """Idle, held, draining, waiting."""
    now = check(pool)
    return now.idle, now.held, now.draining, now.waiting


async def use(pool: aa.StreamPool, buffer: aa.DeviceBuffer) -> None:
    """A stream, for one operation that succeeds."""
    async with pool.acquire() as stream:
        await stream.memset(buffer, 1)


async def offered(pool: aa.StreamPool, count: int) -> list[aa.Stream]:
    """So many streams at the same time."""
    streams: list[aa.Stream] = []
    full = anyio.Event()

    async def hold() -> None:
        async with pool.acquire() as stream:
            streams.append(stream)
            if len(streams) == count:
                full.set()
            await full.wait()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(hold)
    assert len(set(streams)) == count
    return streams


class Told:
    """Failures that nobody has awaited."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, anyio_backend: object) -> None:
        self.errors: list[BaseException | None] = []
        if isinstance(anyio_backend, tuple) and anyio_backend[0] == "trio":
            monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: self.errors.append(unraisable.exc_value))
        else:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda loop, context: self.errors.append(context["exception"]))
