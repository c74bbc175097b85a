# SPDX-License-Identifier: Apache-2.0
"""Requests, and those of them that wait."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio

from aioascend.scheduler.units import SchedulerUnit

__all__ = ["Request", "Waiting"]


@dataclass(eq=False)
class Request:
    """One call that somebody waits for.

    Attributes:
        deadline: Until when its timeout lets it begin.
        key: When its turn is: the time when it was made, and later the less urgent it is.
        unit: The unit that has it; None while it waits.
        lives: That of the unit when it got it.
        began: When the call was made on the unit; None before.
        calls: How many calls have been made for it.
        error: What it ends with, as nobody can take it.
        tried: Indices of units that cannot do it.
        woken: Set when it has a unit or an error; None before its caller waits.
    """

    made: float
    key: float
    deadline: float
    pinned: int | None
    affinity: Hashable
    kind: str | None
    retries: int
    unit: SchedulerUnit[Any] | None = None
    lives: int = 0
    began: float | None = None
    calls: int = 0
    error: Exception | None = None
    tried: frozenset[int] = frozenset()
    woken: anyio.Event | None = None

    def wake(self) -> None:
        if self.woken is not None:
            self.woken.set()

    @property
    def sort(self) -> tuple[Hashable, ...]:
        """Requests of one sort can go to the same units."""
        return (self.pinned, self.affinity, self.kind, self.tried)


class Waiting:
    """Requests in the order of their keys, at most `limit`; behind them those that wait for a place, as they came."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.queue: list[Request] = []
        self._door: deque[Request] = deque()

    @property
    def full(self) -> bool:
        return len(self.queue) >= self.limit

    def __len__(self) -> int:
        return len(self.queue) + len(self._door)

    def __iter__(self) -> Iterator[Request]:
        yield from self.queue
        yield from self._door

    def add(self, request: Request) -> None:
        """At its place if there is room, otherwise at the door."""
        if self.full:
            self._door.append(request)
        else:
            self.put_back(request)

    def put_back(self, request: Request) -> None:
        """At its place even if there is no room: it has been in the queue before."""
        bisect.insort(self.queue, request, key=lambda one: one.key)

    def remove(self, request: Request) -> None:
        """Wherever it is; the first at the door gets its place."""
        if request in self._door:
            self._door.remove(request)
            return
        self.queue.remove(request)
        while self._door and not self.full:
            self.put_back(self._door.popleft())
