# SPDX-License-Identifier: Apache-2.0
"""Units without a device, which end their calls when the test says so."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import aioascend as aa
from aioascend._deadlines import HomeLoop


async def settle() -> None:
    """Lets everything happen that waits for nothing but its turn. (anyio's own function for that sleeps.)"""
    for _ in range(25):
        await anyio.lowlevel.checkpoint()


class Clock:
    """The time that is seen by what is tested. By the loop's own clock it is long past, so timers are over at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.real = anyio.current_time
        self.now = time.monotonic() - 1000
        monkeypatch.setattr(anyio, "current_time", lambda: self.now)
        open_home = HomeLoop.__init__

        def open_(home: HomeLoop) -> None:
            open_home(home)
            home.now = lambda: self.now

        monkeypatch.setattr(HomeLoop, "__init__", open_)


class HeldUnit:
    """Does one call after the other, each for `seconds`, and ends them one by one."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.calls: list[Any] = []
        self.most = 0
        self.free_at = 0.0
        self._under_way: deque[tuple[float, anyio.Event, list[Any]]] = deque()

    async def __call__(self, value: Any) -> Any:
        self.calls.append(value)
        self.free_at = max(self.free_at, anyio.current_time()) + self.seconds
        outcome = [value]
        entry = (self.free_at, anyio.Event(), outcome)
        self._under_way.append(entry)
        self.most = max(self.most, len(self._under_way))
        try:
            await entry[1].wait()
        except BaseException:
            if entry in self._under_way:  # not ended in the same moment
                self._under_way.remove(entry)
            raise
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]

    @property
    def next_end(self) -> float:
        return self._under_way[0][0] if self._under_way else float("inf")

    def end(self, outcome: Any = None) -> None:
        """The oldest call returns its value, or what it is given, or raises that."""
        _, ended, result = self._under_way.popleft()
        if outcome is not None:
            result[0] = outcome
        ended.set()


async def run_out(units: Sequence[HeldUnit], clock: Clock) -> None:
    """Ends calls in the order of their time until there are none."""
    await settle()
    while (first := min(units, key=lambda unit: unit.next_end)).next_end < float("inf"):
        clock.now = first.next_end
        first.end()
        await settle()


def check_identity(statistics: aa.SchedulerStatistics) -> None:
    one = statistics
    assert one.submitted == one.ok + one.failed + one.cancelled + one.timed_out + one.waiting + one.running
    assert min(one.waiting, one.running, *(unit.abandoned for unit in one.units)) >= 0
