# SPDX-License-Identifier: Apache-2.0
"""A limited number of places, taken in the order of asking, by coroutines of any loops and threads."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any

import anyio

from aioascend import _native

__all__ = ["Places"]


class Places:
    """As a semaphore of anyio, for loops that know nothing of each other. Places can be given back by any thread.

    Guaranteed: who is cancelled takes no place, not even when one is given to him in the same moment.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.RLock()  # a collection of garbage in between may give one back
        self._taken = 0
        self._queue: deque[_Turn] = deque()
        self._coming = 0  # in the queue, or called in and not yet resumed
        self._drains: list[_Turn] = []  # who waits for there to be none

    @property
    def taken(self) -> int:
        """How many are taken, by those who go on and by those who were given up."""
        return self._taken

    def take_now(self) -> bool:
        """Take one if nobody has to be waited for."""
        with self._lock:
            if self._taken >= self._count or self._queue:
                return False
            self._taken += 1
            return True

    async def take(self) -> bool:
        """Wait for one. False: there is none any more, see `send_away`."""
        if self.take_now():
            return True
        turn = _Turn()
        with self._lock:
            self._coming += 1
            self._queue.append(turn)
        self._call_in()  # one may have been given back meanwhile
        try:
            await turn.come.wait()
        except BaseException:
            with self._lock:
                if not turn.called:
                    self._queue.remove(turn)
            self._has_come()
            if turn.has_place:
                self.give_back()
            raise
        self._has_come()
        return turn.has_place

    def give_back(self) -> None:
        with self._lock:
            self._taken -= 1
        self._call_in()

    async def drained(self) -> None:
        """Waits until nobody waits for a place any more."""
        turn = _Turn()
        with self._lock:
            if self._coming == 0:
                return
            self._drains.append(turn)
        await turn.come.wait()

    def send_away(self) -> None:
        """Whoever waits gets no place."""
        while True:
            with self._lock:
                if not self._queue:
                    return
                turn = self._queue.popleft()
                turn.called = True
            if not turn.call():
                self._has_come()

    def _call_in(self) -> None:
        """Calls in whoever comes first, as long as there are places. They are theirs from here on."""
        while True:
            with self._lock:
                if not self._queue or self._taken >= self._count:
                    return
                turn = self._queue.popleft()
                turn.called = turn.has_place = True
                self._taken += 1
            if not turn.call():
                self._has_come()
                with self._lock:
                    self._taken -= 1

    def _has_come(self) -> None:
        drains: list[_Turn] = []
        with self._lock:
            self._coming -= 1
            if self._coming == 0:
                drains, self._drains = self._drains, drains
        for turn in drains:
            turn.call()


class _Turn:
    """Somebody who waits, in a loop that is perhaps another one than that of who calls him."""

    def __init__(self) -> None:
        self.called = False
        self.has_place = False
        self.come = anyio.Event()
        self._bridge = _native.running_bridge()
        token: Any = None if self._bridge is None else self._bridge.token
        if token is not None:
            self._call_soon = token.run_sync_soon
        else:
            self._call_soon = asyncio.get_running_loop().call_soon_threadsafe

    def call(self) -> bool:
        """False: his loop has been closed."""
        if _native.running_bridge() is self._bridge:
            self.come.set()
            return True
        try:
            self._call_soon(self.come.set)
        except RuntimeError:
            return False
        return True
