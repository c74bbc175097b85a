# SPDX-License-Identifier: Apache-2.0
"""What tests of batchers are made of: calls that end when the test says so, callers, and virtual time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

import aioascend as aa

CANCELLED = "cancelled"
BURSTS = (1, 4, 5, 7, 8, 9, 17)  # with batches of 4


async def quiet() -> None:
    """Lets everybody go on as far as they get: the longest way from one event to the last that follows is shorter."""
    for _ in range(40):
        await anyio.lowlevel.checkpoint()


class Gate:
    """An async function that doubles items; each call ends when it is let through."""

    def __init__(self, *, closed: bool = True) -> None:
        self.batches: list[list[Any]] = []
        self.results: Callable[[list[Any]], Any] = lambda items: [item * 2 for item in items]
        self._closed = closed
        self._held: list[anyio.Event] = []

    async def __call__(self, items: list[Any]) -> Any:
        self.batches.append(list(items))
        if self._closed:
            self._held.append(anyio.Event())
            await self._held[-1].wait()
        return self.results(items)

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]

    async def let_through(self, calls: int = 1) -> None:
        for _ in range(calls):
            self._held.pop(0).set()
            await quiet()

    async def open(self) -> None:
        self._closed = False
        while self._held:
            await self.let_through()


class Callers:
    """Tasks that make one request each, and what has become of them."""

    def __init__(self, group: anyio.abc.TaskGroup, batcher: aa.Batcher[Any, Any]) -> None:
        self.outcomes: dict[Any, Any] = {}
        self._group = group
        self._batcher = batcher
        self._scopes: dict[Any, anyio.CancelScope] = {}

    async def start(self, *items: Any, **options: Any) -> None:
        """All of them submit before this returns."""
        for item in items:
            self._group.start_soon(self._call, item, options)
        await quiet()

    async def cancel(self, *items: Any) -> None:
        for item in items:
            self._scopes[item].cancel()
        await quiet()

    async def _call(self, item: Any, options: dict[str, Any]) -> None:
        with anyio.CancelScope() as scope:
            self._scopes[item] = scope
            try:
                self.outcomes[item] = await self._batcher(item, **options)
            except Exception as error:
                self.outcomes[item] = error
        if scope.cancelled_caught:
            self.outcomes[item] = CANCELLED

    def doubled(self, *items: Any) -> bool:
        """Whether all of these have got their own answers."""
        return all(self.outcomes.get(item) == item * 2 for item in items)


def check_books(batcher: aa.Batcher[Any, Any], **expected: float) -> aa.BatcherStatistics:
    """The identity holds, nothing is negative, and what is given is so."""
    now = batcher.statistics()
    assert now.submitted == now.ok + now.failed + now.cancelled + now.timed_out + now.waiting + now.running, now
    assert min(vars(now).values()) >= 0, now
    assert now.batches == now.full + now.delay + now.idle + now.close
    assert {name: getattr(now, name) for name in expected} == expected
    return now


# --- time ---


class _Jumps(selectors.DefaultSelector):
    """Time jumps to the next timer when there is nothing else to do."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("everybody waits, and nothing will ever come")
            self.now += max(timeout, 0)
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumps = _Jumps()
        super().__init__(self._jumps)

    def time(self) -> float:
        return self._jumps.now


def in_virtual_time(backend: str, main: Callable[[], Awaitable[Any]]) -> None:
    """Runs it on a clock of its own, which does not wait."""
    if backend == "trio":
        from trio.testing import MockClock

        anyio.run(main, backend="trio", backend_options={"clock": MockClock(autojump_threshold=0)})
    else:
        anyio.run(main, backend="asyncio", backend_options={"loop_factory": _VirtualLoop})


class Machine:
    """An async function that takes some seconds for a batch, one at a time; and what it was given when."""

    def __init__(self, takes: float, per_item: float = 0) -> None:
        self.takes = takes
        self.per_item = per_item
        self.batches: list[list[Any]] = []
        self.began: list[float] = []
        self._one = anyio.Lock()

    async def __call__(self, items: list[Any]) -> Sequence[Any]:
        self.batches.append(list(items))
        self.began.append(anyio.current_time())
        async with self._one:
            await anyio.sleep(self.takes + self.per_item * len(items))
        return [item * 2 for item in items]


virtual_loops = pytest.mark.parametrize("backend", ["asyncio", "trio"])
