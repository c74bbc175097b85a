# SPDX-License-Identifier: Apache-2.0
"""The calls of a model: how many have buffers on the device, who waits for a place, and what became of them."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioascend import _native
from aioascend._places import Places
from aioascend.errors import RuntimeClosedError

if TYPE_CHECKING:
    from aioascend._native import Operation

__all__ = ["Calls", "ModelStatistics"]


@dataclass(frozen=True)
class ModelStatistics:
    """A snapshot of the calls of a model: `calls = ok + failed + cancelled + waiting + running`, at any moment.

    Attributes:
        calls: Calls so far that were taken: the model was open, and their arguments fitted.
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
    """Lets so many calls in at once, in their order, and counts them: `with calls:` goes around each of them."""

    def __init__(self, label: str, limit: int) -> None:
        self.closed = False
        self.places = Places(limit)
        self._label = label
        self._lock = threading.RLock()  # a collection of garbage in between may end a call
        self._leaving: set[Operation] = set()  # what the device has to be past before abandoned calls make room
        self._calls = self._ok = self._failed = self._cancelled = self._running = self._abandoned = 0

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
                abandoned=self._abandoned,
            )

    # --- going in and out ---

    async def enter(self) -> bool:
        """Waits for its turn. Whoever has come in goes out, by `leave` or by `leave_behind`.

        Returns:
            Whether no other call is in.

        Raises:
            RuntimeClosedError: the model was closed meanwhile, and what waits is not waited for.
        """
        if not self.places.take_now():
            self._take_over_abandoned()
            if not await self.places.take():
                raise RuntimeClosedError(f"model {self._label} is closed")
        with self._lock:
            self._running += 1
        return self.places.taken == 1

    def leave(self) -> None:
        """The call is over, and the device is past it."""
        with self._lock:
            self._running -= 1
        self.places.give_back()

    def abandon(self) -> None:
        """The call is over, but the device is not past it. It keeps its place until `is_past`."""
        with self._lock:
            self._running -= 1
            self._abandoned += 1

    def is_past(self) -> None:
        """The device is past a call that was abandoned."""
        with self._lock:
            self._abandoned -= 1
        self.places.give_back()

    def leave_behind(self, operations: Sequence[Operation]) -> None:
        """The call is over. It makes room when the device is past all that it has submitted."""
        self.abandon()
        for operation in operations:
            operation.cancel()  # nobody goes by it any more
        self._wait_until_past(list(operations))

    def _wait_until_past(self, operations: list[Operation]) -> None:
        heard = _native.running_bridge() is not None  # or else no loop would tell of the end
        while operations:  # the last first, since it is behind the others, but for waits that have failed
            past = operations.pop()._past()
            if heard and past.add_waiter(functools.partial(self._go_on_waiting, operations)):
                self._leaving.add(past)
                return
        self.is_past()

    def _go_on_waiting(self, operations: list[Operation], past: Operation) -> None:
        self._leaving.discard(past)
        self._wait_until_past(operations)

    def _take_over_abandoned(self) -> None:
        """The ends of calls that a closed loop has left behind are told to the loop that runs here."""
        for past in list(self._leaving):
            with contextlib.suppress(RuntimeError):  # trio has no loop to be got
                past.get_loop()
