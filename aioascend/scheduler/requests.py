# SPDX-License-Identifier: Apache-2.0
"""Requests, and those of them that wait."""

from __future__ import annotations

import bisect
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
        turn: When its turn is: the time when it was made, and later the less urgent it is.
        unit: The unit that has it; None while it waits.
        callee: What of the unit is called, and `lives`, that of the unit then.
        began: When the call was made on the unit; None before.
        calls: How many calls have been made for it.
        error: What it ends with, as nobody can take it.
        tried: Units that cannot do it, by their index and lives.
        sort: Requests of one sort can go to the same units; known while it waits.
        woken: Set when it has a unit or an error; None before its caller waits.
    """

    made: float
    turn: float
    deadline: float
    pinned: int | None
    affinity: Hashable
    kind: str | None
    retries: int
    unit: SchedulerUnit[Any] | None = None
    callee: Any = None
    lives: int = 0
    began: float | None = None
    calls: int = 0
    error: Exception | None = None
    tried: frozenset[tuple[int, int]] = frozenset()
    sort: tuple[Hashable, ...] = ()
    woken: anyio.Event | None = None

    def begin(self, unit: SchedulerUnit[Any], now: float) -> Any:
        """What is called, now."""
        self.callee, self.lives, self.began = unit.unit, unit.lives, now
        self.calls += 1
        return self.callee

    def wake(self) -> None:
        if self.woken is not None:
            self.woken.set()

    def accepts(self, unit: SchedulerUnit[Any]) -> bool:
        """Whether it may go to the unit as that is now."""
        return self.pinned in (None, unit.index) and (unit.index, unit.lives) not in self.tried


class Waiting:
    """Requests in the order of their turns."""

    def __init__(self) -> None:
        self.queue: list[Request] = []

    def __len__(self) -> int:
        return len(self.queue)

    def __iter__(self) -> Iterator[Request]:
        """Those that wait now; they may leave meanwhile."""
        return iter(self.queue.copy())

    def add(self, request: Request) -> None:
        request.sort = (request.pinned, request.affinity, request.kind, request.tried)
        bisect.insort(self.queue, request, key=lambda one: one.turn)

    def remove(self, request: Request) -> None:
        self.queue.remove(request)
