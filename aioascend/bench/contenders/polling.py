# SPDX-License-Identifier: Apache-2.0
"""Coroutines that ask the device again and again, and sleep in between: not at all, or a millisecond."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from aioascend.bench.contenders.base import AclContender

__all__ = ["PollingBusy", "PollingMillisecond"]

_COMPLETE = 1  # of query_event_status


class _Polling(AclContender):
    events = True
    pause: ClassVar[float]

    async def open(self) -> None:
        await super().open()
        self._sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
        if self.under_trio:
            import trio

            self._sleep = trio.sleep

    def waited_for(self, lane: Any) -> Awaitable[None]:
        self.rt.record_event(lane.event, lane.stream)
        return self._polled(lane.event)

    async def _polled(self, event: int) -> None:
        query, sleep, pause = self.rt.query_event_status, self._sleep, self.pause
        while query(event)[0] != _COMPLETE:
            await sleep(pause)


class PollingBusy(_Polling):
    name = "polling-0"
    pause = 0.0


class PollingMillisecond(_Polling):
    name = "polling-1ms"
    pause = 0.001
