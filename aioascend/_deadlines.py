# SPDX-License-Identifier: Apache-2.0
"""The time of requests: their limits, their turns, the deadlines of those who make them, and the loop whose clock it
is."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import anyio
import anyio.lowlevel

from aioascend import _native
from aioascend._arguments import seconds, whole

__all__ = ["HomeLoop", "check_priority", "checkpoint_if_late", "limit_of", "recent_mean", "turn_of"]


class HomeLoop:
    """The event loop that runs, for what belongs to it.

    Attributes:
        now: Its clock, that of `anyio.current_time`, which itself is for tasks only.
    """

    now: Callable[[], float]

    def __init__(self) -> None:
        self._bridge = _native.running_bridge()
        if self._bridge is None or self._bridge.token is None:
            self.now = asyncio.get_running_loop().time
        else:
            import trio  # here, as only programs that use it have it

            self.now = trio.lowlevel.current_clock().current_time

    def check(self, what: str) -> None:
        """A `RuntimeError` in any other loop or thread."""
        if _native.running_bridge() is not self._bridge:
            raise RuntimeError(f"{what} belongs to the event loop that has entered it; make one for each loop")


def limit_of(timeout: object) -> float:
    """The seconds that the argument `timeout` gives; infinite for None."""
    return math.inf if timeout is None else seconds("timeout", timeout)


def check_priority(priority: object) -> int:
    """The argument `priority`, of which lower ones are more urgent."""
    return whole("priority", priority, -1_000_000, 1_000_000, "a whole number, the lower the more urgent")


def turn_of(now: float, priority: int, ageing: float) -> float:
    """Where a request comes in a queue, the lowest first: a step of priority is worth as much as having come so many
    seconds sooner. It does not change while it waits."""
    return now + priority * ageing


def recent_mean(mean: float | None, newest: float) -> float:
    """What something takes as of late; None before it has been seen once."""
    return newest if mean is None else mean + 0.2 * (newest - mean)


async def checkpoint_if_late() -> None:
    """Raises the cancellation of the caller's scopes if their deadline has passed, however late the loop is in noticing
    it. Returns when it has not, or was moved."""
    while anyio.current_effective_deadline() <= anyio.current_time():
        await anyio.lowlevel.checkpoint()
