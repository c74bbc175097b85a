# SPDX-License-Identifier: Apache-2.0
"""A thread for each request: it waits for an event, then calls back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

from aioascend.bench.contenders.base import AclContender

__all__ = ["Thread"]


_NAME = "bench-request"


class Thread(AclContender):
    name = "thread"
    trio = False  # trio has its own threads, which are the executor's
    events = True

    async def open(self) -> None:
        await super().open()
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        for thread in threading.enumerate():  # a coroutine may be told before its thread is through
            if thread.name == _NAME:
                thread.join()
        await super().close()

    def waited_for(self, lane: Any) -> Awaitable[None]:
        self.rt.record_event(lane.event, lane.stream)
        future = self._loop.create_future()
        threading.Thread(target=self._wait, args=(lane.event, future), name=_NAME, daemon=True).start()
        return future

    def _wait(self, event: int, future: asyncio.Future[None]) -> None:
        self.place.placement.release_thread()
        self.rt.set_context(self.rig.context)
        self.rt.synchronize_event(event)
        try:  # noqa: SIM105 - suppress() takes time, this does not
            self._loop.call_soon_threadsafe(future.set_result, None)
        except RuntimeError:  # Ctrl-C has closed the loop
            pass
