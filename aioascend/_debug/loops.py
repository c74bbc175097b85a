# SPDX-License-Identifier: Apache-2.0
"""Says where the thread of an event loop sits when the loop does not come round, whoever keeps it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from aioascend._debug.settings import settings
from aioascend._debug.stacks import logger, reported, shown, stack_of
from aioascend._debug.watchers import Watcher

if TYPE_CHECKING:
    import trio


def watch_asyncio(loop: asyncio.AbstractEventLoop) -> None:
    """Watch a loop of asyncio, uvloop or another library until it is closed or gone."""
    LoopWatcher(AsyncioLoop(loop)).start()


def watch_trio(token: trio.lowlevel.TrioToken) -> None:
    """Watch a run of trio until it ends."""
    LoopWatcher(TrioRun(token)).start()


class Loop(Protocol):
    """A loop, seen from another thread."""

    def post(self, call: Callable[[], None]) -> None:
        """Have it called soon."""

    def running(self) -> bool:
        """Whether it runs now: a loop that is stopped is late for nobody."""

    def ended(self) -> bool:
        """Whether it will never run again."""


class AsyncioLoop:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)

    def post(self, call: Callable[[], None]) -> None:
        loop = self._loop()
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(call)

    def running(self) -> bool:
        loop = self._loop()
        return loop is not None and loop.is_running()

    def ended(self) -> bool:
        loop = self._loop()
        return loop is None or loop.is_closed()


class TrioRun:
    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token

    def post(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # trio.RunFinishedError
            self._token.run_sync_soon(call)

    def running(self) -> bool:
        return not self.ended()

    def ended(self) -> bool:
        try:
            self._token.run_sync_soon(_nothing, idempotent=True)
        except RuntimeError:
            return True
        return False


def _nothing() -> None:
    pass


class LoopWatcher(Watcher):
    """Asks the loop that runs on this thread to call back, again and again."""

    def __init__(self, loop: Loop) -> None:
        super().__init__("aioascend-loop-watch")
        self._loop = loop
        self._came = threading.Event()
        self._thread = threading.get_ident()  # that runs the loop, which may move

    def _come(self) -> None:
        self._thread = threading.get_ident()
        self._came.set()

    def run(self) -> None:
        while not self.ending.wait(settings.slow / 2):
            self._came.clear()
            asked = time.monotonic()
            self._loop.post(self._come)
            if not self._came.wait(settings.slow) and self._loop.running():
                self._report(time.monotonic() - asked)
            while not self._came.wait(settings.slow):  # once for each time that it stands still
                if self.ending.is_set() or self._loop.ended():
                    return

    def _report(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._thread)
        if frame is None:
            return
        stack = stack_of(frame)
        del frame
        if reported.new(stack, "late"):
            logger.warning(
                "an event loop has not come round for %.0f ms; its thread is at\n%s", seconds * 1000, shown(stack)
            )
