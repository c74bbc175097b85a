# SPDX-License-Identifier: Apache-2.0
"""A pool of threads that block in synchronize, through run_in_executor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from aioascend.bench.contenders.base import AclContender

__all__ = ["Executor4", "Executor32"]


class _Executor(AclContender):
    """Submits on the loop, so that the order of a stream is that of the calls, and waits in the pool."""

    threads: ClassVar[int]

    async def open(self) -> None:
        await super().open()
        if self.under_trio:
            import trio

            self._entered = threading.local()
            self._limiter = trio.CapacityLimiter(self.threads)
            self._run_sync = trio.to_thread.run_sync
        else:
            self._loop = asyncio.get_running_loop()
            self._pool = ThreadPoolExecutor(self.threads, initializer=self._enter_thread)

    def _enter_thread(self) -> None:
        self.rt.set_context(self.rig.context)
        self.place.placement.release_thread()

    async def close(self) -> None:
        if not self.under_trio:
            self._pool.shutdown()
        await super().close()

    def waited_for(self, lane: Any) -> Awaitable[None]:
        if self.under_trio:
            return self._run_sync(self._synchronize, lane.stream, limiter=self._limiter)
        return self._loop.run_in_executor(self._pool, self.rt.synchronize_stream, lane.stream)

    def _synchronize(self, stream: int) -> None:
        # trio keeps its threads for everybody and lets nobody set them up.
        if not hasattr(self._entered, "before"):
            self._enter_thread()
            self._entered.before = True
        self.rt.synchronize_stream(stream)


class Executor4(_Executor):
    name = "executor-4"
    threads = 4


class Executor32(_Executor):
    name = "executor-32"
    threads = 32
