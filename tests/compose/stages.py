# SPDX-License-Identifier: Apache-2.0
"""Stages that a test has in its hands."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel

import aioascend as aa


class Gate:
    """A stage that lets items through when it is told to.

    Attributes:
        inside: Items that are in it.
        seen: All that have come in, in this order.
        cancelled: Those that were cancelled in it.
        most: How many were in it at the same time.
    """

    def __init__(self, *, opened: bool = False) -> None:
        self.__name__ = "gate"
        self.inside: list[Any] = []
        self.seen: list[Any] = []
        self.cancelled: list[Any] = []
        self.most = 0
        self._open = opened
        self._passing: set[Any] = set()
        self._changed = anyio.Event()

    def open(self, *items: Any) -> None:
        """For these items; for all from now on when there are none."""
        self._open = self._open or not items
        self._passing.update(items)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def __call__(self, item: Any) -> Any:
        self.inside.append(item)
        self.seen.append(item)
        self.most = max(self.most, len(self.inside))
        self._notify()
        try:
            while not self._open and item not in self._passing:
                await self._changed.wait()
            await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(item)
            raise
        finally:
            self.inside.remove(item)
            self._notify()
        return item

    async def holds(self, *items: Any) -> None:
        """Waits until these are in it, and no others."""
        with anyio.fail_after(60):
            while sorted(self.inside) != sorted(items):
                await self._changed.wait()


async def double(item: int) -> int:
    return item * 2


async def pass_on(item: Any) -> Any:
    await anyio.lowlevel.checkpoint()
    return item


async def collected(results: Any) -> list[Any]:
    with anyio.fail_after(60):
        return [result async for result in results]


async def settled() -> None:
    """Lets everything that can go on do so."""
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


def check_books(pipeline: aa.Pipeline[Any, Any], *, at_rest: bool = True) -> aa.PipelineStatistics:
    """That what came in is accounted for, as a whole and in each stage."""
    seen = pipeline.statistics()
    assert seen.submitted == seen.ok + seen.failed + seen.cancelled + seen.timed_out + seen.waiting + seen.running
    arrived = seen.submitted
    for stage in seen.stages:
        gauges = (stage.waiting, stage.running)
        assert min(gauges) >= 0
        assert arrived == sum(gauges) + stage.done + stage.failed + stage.cancelled, (arrived, stage)
        arrived = stage.done
    assert seen.ok <= arrived
    if at_rest:
        assert arrived == seen.ok
        assert (seen.waiting, seen.running) == (0, 0)
        assert {(stage.waiting, stage.running) for stage in seen.stages} == {(0, 0)}
    return seen


def notes_of(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))
