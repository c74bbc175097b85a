# SPDX-License-Identifier: Apache-2.0
"""Cancelling abandons the wait; the device goes on, and what it touches stays."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend import _native
from aioascend.testing import Simulator

pytestmark = pytest.mark.anyio


async def test_cancel_returns_at_once_and_keeps_the_buffers(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    source = np.full(1 << 20, 3, "uint8")
    pinned = await npu.pinned(1 << 20, "uint8")
    pinned.array[:] = source
    buffer = npu.empty(1 << 20, "uint8")
    await stream.memset(buffer, 0)
    blocks = npu._core.pool_statistics()["pinned_live_blocks"]
    with sim.hold(stream):
        with anyio.move_on_after(0) as scope:
            await stream.memcpy(buffer, pinned)
        assert scope.cancelled_caught
        del pinned
        gc.collect()
        assert npu._core.pool_statistics()["pinned_live_blocks"] == blocks  # the device may still read it
    target = np.zeros(1 << 20, "uint8")
    await stream.memcpy(target, buffer)
    assert (target == 3).all()
    assert npu._core.pool_statistics()["pinned_live_blocks"] == blocks - 1


async def test_a_cancelled_copy_does_not_reach_the_array(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(64, "uint8")
    await stream.memset(buffer, 9)
    target = np.zeros(64, "uint8")
    with sim.hold(stream):
        with anyio.move_on_after(0):
            await stream.memcpy(target, buffer)
    await stream
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:  # under trio only the wait is cancelled
        assert (target == 0).all()


@pytest.mark.asyncio_only
async def test_a_small_copy_behind_a_large_one_can_be_cancelled_as_late_as_others(
    npu: aa.Device, stream: aa.Stream
) -> None:
    source = npu.empty(1 << 20, "uint8")
    await stream.memset(source, 9)
    large, small = np.zeros(1 << 20, "uint8"), np.zeros(64, "uint8")
    operations = [stream.memcpy(large, source), stream.memcpy(small, source[:64])]
    operations[1].add_done_callback(lambda _: None)  # somebody waits, so the report comes
    while not large[-1]:  # the loop does not run meanwhile: the worker has written it
        pass
    assert npu.empty(3 << 20, "uint8").address  # the worker, which does one thing after the other, is through
    operations[1].cancel()
    await operations[0]
    await stream
    assert (large == 9).all()
    assert not small.any()


@pytest.mark.asyncio_only
async def test_gather_collects_a_cancelled_operation_like_the_others(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(4, "uint8")
    with sim.hold(stream):
        operations = [stream.memset(buffer, value) for value in range(4)]
        gathered = asyncio.gather(*operations, return_exceptions=True)
        operations[1].cancel()
        operations[2].cancel("enough")
    with anyio.fail_after(60):
        first, second, third, fourth = await gathered
    assert first is fourth is None
    assert isinstance(second, asyncio.CancelledError)
    assert isinstance(third, asyncio.CancelledError)
    assert third.args == ("enough",)


async def test_cancelling_one_wait_of_an_event_leaves_the_others(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    with sim.hold(stream):
        stream.memset(npu.empty(4, "uint8"), 0)
        event = stream.record()
        with anyio.move_on_after(0):
            await event
        with anyio.move_on_after(0):
            await stream
    await event
    await stream


@pytest.mark.asyncio_only
async def test_cancel_of_the_operation_itself(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    with sim.hold(stream):
        operation = stream.memset(npu.empty(4, "uint8"), 0)
        waiting = asyncio.ensure_future(asyncio.shield(operation))
        await asyncio.sleep(0)
        assert operation.cancel("enough")
        assert not operation.cancel()
        assert operation.cancelled()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(asyncio.CancelledError, match="enough"):
            operation.result()
    await stream


@pytest.mark.asyncio_only
async def test_a_thousand_random_cancellations(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator, pace: str
) -> None:
    chance = random.Random(7)
    buffer = npu.empty(4, "uint8")
    late = _native.ticket_counts()["late"]

    async def use(index: int) -> None:
        await (stream, other)[index % 2].memset(buffer, index % 256)

    with sim.hold(device=npu):
        tasks = [asyncio.create_task(use(index)) for index in range(1000)]
        await asyncio.sleep(0)
        cancelled = chance.sample(tasks, 500)
        for task in cancelled:
            task.cancel()
        results = await asyncio.gather(*cancelled, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
    await asyncio.gather(*set(tasks) - set(cancelled))
    await asyncio.gather(stream, other)
    assert _native.ticket_counts()["live"] == 0
    assert _native.ticket_counts()["late"] - late == 500


@pytest.mark.asyncio_only
async def test_cancel_races_with_the_report(npu: aa.Device, stream: aa.Stream, pace: str) -> None:
    buffer = npu.empty(4, "uint8")
    chance = random.Random(11)
    for _ in range(1000):
        task = asyncio.ensure_future(_set(stream, buffer))
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        assert result is None or isinstance(result, asyncio.CancelledError)
    await stream


async def _set(stream: aa.Stream, buffer: aa.DeviceBuffer) -> None:
    await stream.memset(buffer, 1)


async def test_references_are_dropped_with_the_report(npu: aa.Device, stream: aa.Stream) -> None:
    class Watched(np.ndarray):
        pass

    array = np.zeros(1 << 19, "uint8").view(Watched)
    gone = weakref.ref(array)
    operation = stream.memcpy(npu.empty(1 << 19, "uint8"), array)
    del array
    gc.collect()
    assert gone() is not None
    await operation
    assert gone() is None


@pytest.mark.asyncio_only
async def test_gather_takes_cancelled_operations(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(4, "uint8")
    with sim.hold(stream):
        operations = [stream.memset(buffer, value) for value in range(3)]
        gathered = asyncio.gather(*operations, return_exceptions=True)
        operations[0].cancel()
        operations[1].cancel("no longer needed")
    results = await gathered
    assert [type(result) for result in results] == [asyncio.CancelledError, asyncio.CancelledError, type(None)]
    assert str(results[1]) == "no longer needed"
    again = await asyncio.gather(*operations, return_exceptions=True)
    assert [type(result) for result in again] == [type(result) for result in results]
