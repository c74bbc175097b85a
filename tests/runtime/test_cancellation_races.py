# SPDX-License-Identifier: Apache-2.0
"""A result, a timeout and a cancel from outside that meet: each task ends in one way, and the cancel wins."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend import _native
from aioascend.testing import Simulator
from runtime.cancellation import AN_HOUR_S, PAST

pytestmark = pytest.mark.anyio

ROUNDS = 1000


class Race:
    """Rounds in which a copy is let go, its wait times out and is cancelled, within a turn of the loop or two.

    Attributes:
        submitted: Whether the copy of this round is in flight.
    """

    def __init__(self, sim: Simulator, stream: aa.Stream, buffer: aa.DeviceBuffer) -> None:
        self.sim = sim
        self.stream = stream
        self.buffer = buffer
        self.chance = random.Random(17)
        self.submitted = False
        self.ends: Counter[str] = Counter()

    async def copy(self) -> None:
        self.submitted = True
        await self.stream.memcpy(np.empty(64, "uint8"), self.buffer)

    def let_go(self) -> None:
        self.sim.release(self.stream)
        if self.chance.random() < 0.7:  # so that the loop hears of it in its next turn
            while self.sim.live("tasks"):
                pass

    async def run(self, *others: Callable[[], object]) -> None:
        """One round, once the copy is in flight."""
        while not self.submitted:
            await anyio.lowlevel.checkpoint()
        self.submitted = False
        actions: list[Callable[[], object]] = [self.let_go, *others]
        self.chance.shuffle(actions)
        for action in actions:
            for _ in range(self.chance.randrange(3)):
                await anyio.lowlevel.checkpoint()
            action()


@pytest.fixture
async def race(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> AsyncIterator[Race]:
    buffer = npu.empty(64, "uint8")
    race = Race(sim, stream, buffer)
    await stream.memset(buffer, 1)
    await race.copy()
    race.submitted = False
    live = npu._core.pool_statistics()["pinned_live_blocks"]
    yield race
    sim.reset()
    await stream
    gc.collect()
    assert npu._core.pool_statistics()["pinned_live_blocks"] == live == 0
    assert _native.ticket_counts()["live"] == 0
    assert sum(race.ends.values()) == ROUNDS


async def test_a_result_a_timeout_and_a_scope_from_outside(race: Race) -> None:
    for _ in range(ROUNDS):
        race.sim.hold(race.stream)
        race.ends[await _in_scopes(race)] += 1
    assert set(race.ends) == {"result", "timeout", "cancelled"}


async def _in_scopes(race: Race) -> str:
    ended: list[str] = []
    outer, inner = anyio.CancelScope(), anyio.CancelScope(deadline=anyio.current_time() + AN_HOUR_S)

    async def work() -> None:
        with outer:
            try:
                with inner:
                    await race.copy()
                    ended.append("result")
            finally:
                if inner.cancelled_caught:
                    ended.append("timeout")
        if outer.cancelled_caught:
            ended.append("cancelled")

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await race.run(lambda: setattr(inner, "deadline", PAST), outer.cancel)
    (end,) = ended
    return end


Actions = list[Callable[[], object]]


async def _cancelled_from_outside(race: Race, work: Callable[[Actions], Coroutine[object, object, None]]) -> None:
    """Rounds of tasks of asyncio."""
    for _ in range(ROUNDS):
        race.sim.hold(race.stream)
        race.ends[await _as_task(race, work)] += 1


async def _as_task(race: Race, work: Callable[[Actions], Coroutine[object, object, None]]) -> str:
    others: Actions = []
    cancelled: list[bool] = []
    task = asyncio.get_running_loop().create_task(work(others))
    while not race.submitted:
        await anyio.lowlevel.checkpoint()
    await race.run(*others, lambda: cancelled.append(task.cancel()))
    await asyncio.wait([task])
    assert task.cancelled() == (cancelled == [True])
    return "cancelled" if task.cancelled() else type(task.exception()).__name__


@pytest.mark.asyncio_only
async def test_a_result_and_a_cancel_from_outside(race: Race) -> None:
    await _cancelled_from_outside(race, lambda _: race.copy())
    assert set(race.ends) == {"NoneType", "cancelled"}


if sys.version_info >= (3, 11):

    @pytest.mark.asyncio_only
    async def test_a_result_a_timeout_and_a_cancel_from_outside(race: Race) -> None:
        async def work(others: Actions) -> None:
            def run_out() -> None:
                with contextlib.suppress(RuntimeError):  # it is over
                    timeout.reschedule(PAST)

            async with asyncio.timeout(AN_HOUR_S) as timeout:
                others.append(run_out)
                await race.copy()

        await _cancelled_from_outside(race, work)
        assert set(race.ends) == {"NoneType", "TimeoutError", "cancelled"}


@pytest.mark.asyncio_only
async def test_wait_for_that_runs_out(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer, target = npu.empty(4, "uint8"), np.zeros(4, "uint8")
    await stream.memset(buffer, 1)
    with sim.hold(stream):
        operation = stream.memcpy(target, buffer)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(operation, 1e-9)
        assert operation.cancelled()
    await stream
    assert not target.any()


@pytest.mark.asyncio_only
async def test_wait_for_whose_result_comes_together_with_a_cancel(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    with sim.hold(stream):
        operation = stream.memset(npu.empty(4, "uint8"), 1)
        assert operation.add_waiter(lambda _: task.cancel())
        task = asyncio.ensure_future(asyncio.wait_for(operation, AN_HOUR_S))
        await asyncio.sleep(0)
    await asyncio.wait([task])
    assert task.cancelled() == (sys.version_info >= (3, 12))
