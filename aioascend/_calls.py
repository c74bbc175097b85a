# SPDX-License-Identifier: Apache-2.0
"""The calls of a model: how many have buffers on the device, who waits for a place, and what became of them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from aioascend import _native
from aioascend.errors import RuntimeClosedError

if TYPE_CHECKING:
    from aioascend._native import Operation

__all__ = ["Calls", "ModelStatistics"]


@dataclass(frozen=True)
class ModelStatistics:
    """A snapshot of the calls of a model: `calls = ok + failed + cancelled + waiting + running`, at any moment.

    Attributes:
        calls: Calls so far whose arguments fitted.
        ok: Those that have returned.
        failed: Those that have raised.
        cancelled: Those that were cancelled.
        waiting: Those that wait on the host, and have nothing on the device.
        running: Those that are on the device.
        abandoned: Those that were cancelled and that the device is not past yet; they are part of `cancelled`, and take
            the place of a running one.
    """

    calls: int
    ok: int
    failed: int
    cancelled: int
    waiting: int
    running: int
    abandoned: int


class Calls:
    """Lets so many calls in at once, in the order in which they came, whatever loops and threads they come from.

    `with calls:` around each of them counts it.
    """

    def __init__(self, label: str, limit: int) -> None:
        self.closed = False
        self._label = label
        self._limit = limit
        self._lock = threading.RLock()  # a collection of garbage in between may end a call
        self._inside = 0
        self._queue: deque[_Turn] = deque()
        self._coming = 0  # in the queue, or called in and not yet resumed
        self._drains: list[_Turn] = []  # who waits for there to be none
        self._leaving: set[Operation] = set()  # what the device has to be past before abandoned calls make room
        self._calls = self._ok = self._failed = self._cancelled = self._running = 0

    def __enter__(self) -> None:
        with self._lock:
            self._calls += 1

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._lock:
            if kind is None:
                self._ok += 1
            elif issubclass(kind, Exception):
                self._failed += 1
            else:
                self._cancelled += 1

    def statistics(self) -> ModelStatistics:
        with self._lock:
            over = self._ok + self._failed + self._cancelled
            return ModelStatistics(
                calls=self._calls,
                ok=self._ok,
                failed=self._failed,
                cancelled=self._cancelled,
                waiting=self._calls - over - self._running,
                running=self._running,
                abandoned=len(self._leaving),
            )

    @property
    def alone(self) -> bool:
        """Whether one call is in, and no more."""
        return self._inside == 1

    # --- going in and out ---

    async def enter(self) -> None:
        """Waits for a place. Whoever has got one gives it back, by `leave` or by `leave_behind`.

        Raises:
            RuntimeClosedError: the model was closed meanwhile, and what waits is not waited for.
        """
        with self._lock:
            if self._inside < self._limit and not self._queue:
                self._inside += 1
                self._running += 1
                return
        self._take_over_abandoned()
        turn = _Turn()
        with self._lock:
            self._coming += 1
            self._queue.append(turn)
        self._call_in()  # a place may have become free meanwhile
        try:
            await turn.come.wait()
        except BaseException:
            with self._lock:
                if not turn.called:
                    self._queue.remove(turn)
            self._has_come()
            if turn.has_place:
                self._make_room()
            raise
        self._has_come()
        if not turn.has_place:
            raise RuntimeClosedError(f"model {self._label} is closed")
        with self._lock:
            self._running += 1

    def leave(self) -> None:
        """The call is over, and the device is past it."""
        with self._lock:
            self._running -= 1
        self._make_room()

    def leave_behind(self, operations: Sequence[Operation]) -> None:
        """The call is over. It makes room when the device is past what it has submitted, which is in this order."""
        with self._lock:
            self._running -= 1
        for operation in operations:
            operation.cancel()  # nobody goes by it any more
        heard = _native.running_bridge() is not None  # or else no loop would tell of the end
        for operation in reversed(operations):
            past = operation._past()
            if heard and not past.done():
                self._leaving.add(past)
                past.add_waiter(self._has_left)
                return
        self._make_room()

    def _has_left(self, past: Operation) -> None:
        self._leaving.discard(past)
        self._make_room()

    def _take_over_abandoned(self) -> None:
        """The ends of calls that a closed loop has left behind are told to the loop that runs here."""
        for past in list(self._leaving):
            with contextlib.suppress(RuntimeError):  # trio has no loop to be got
                past.get_loop()

    def _make_room(self) -> None:
        with self._lock:
            self._inside -= 1
        self._call_in()

    def _call_in(self) -> None:
        """Calls in whoever comes first, as long as there is room. The place is theirs from here on."""
        while True:
            with self._lock:
                if not self._queue or self._inside >= self._limit:
                    return
                turn = self._queue.popleft()
                turn.called = turn.has_place = True
                self._inside += 1
            if not turn.call():
                self._has_come()
                with self._lock:
                    self._inside -= 1

    # --- closing ---

    async def drained(self) -> None:
        """Waits until nobody waits for a place any more. When this is cancelled, those who do are sent away."""
        turn = _Turn()
        with self._lock:
            if self._coming == 0:
                return
            self._drains.append(turn)
        try:
            await turn.come.wait()
        except BaseException:
            self.send_away()
            raise

    def send_away(self) -> None:
        """Whoever waits for a place gets none."""
        while True:
            with self._lock:
                if not self._queue:
                    return
                turn = self._queue.popleft()
                turn.called = True
            if not turn.call():
                self._has_come()

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
