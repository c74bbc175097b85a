# SPDX-License-Identifier: Apache-2.0
"""Submitting and awaiting: what design calls the contract of operations."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator

pytestmark = pytest.mark.anyio


async def test_round_trip(npu: aa.Device, stream: aa.Stream) -> None:
    source = np.arange(1000, dtype="float32").reshape(10, 100)
    target = np.zeros_like(source)
    buffer = npu.empty_like(source)
    await stream.memcpy(buffer, source)
    await stream.memcpy(target, buffer)
    np.testing.assert_array_equal(target, source)


async def test_submitted_without_an_await(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(16, "uint8")
    stream.memset(buffer, 7)
    await anyio.to_thread.run_sync(sim.wait_tasks, stream, 1)  # it ran although nobody awaited it
    target = np.zeros(16, "uint8")
    await stream.memcpy(target, buffer)
    assert (target == 7).all()


async def test_chain_of_ten_and_one_await_costs_one_callback(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(256, "uint8")
    await stream.memset(buffer, 0)
    before = sim.callbacks_launched
    for value in range(9):
        stream.memset(buffer, value)
    await stream.memset(buffer, 9)
    assert sim.callbacks_launched - before == 1


async def test_an_earlier_operation_is_covered_by_the_callback_of_a_later_one(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(256, "uint8")
    await stream.memset(buffer, 0)
    before = sim.callbacks_launched
    operations = [stream.memset(buffer, value) for value in range(5)]
    with sim.hold(stream):
        async with anyio.create_task_group() as group:
            for operation in reversed(operations):
                group.start_soon(_await, operation)
            await anyio.lowlevel.checkpoint()
            sim.release(stream)
    assert sim.callbacks_launched - before == 1


async def _await(awaitable: Any) -> None:
    await awaitable


async def test_unawaited_operations_cost_no_callback(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(256, "uint8")
    await stream.memset(buffer, 0)
    before = sim.callbacks_launched
    for value in range(20):
        stream.memset(buffer, value)
    await anyio.to_thread.run_sync(sim.wait_tasks, stream, 20)
    assert sim.callbacks_launched == before


async def test_awaitable_many_times(npu: aa.Device, stream: aa.Stream) -> None:
    operation = stream.memset(npu.empty(4, "uint8"), 1)
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(_await, operation)
    await operation
    await operation
    assert operation.done()
    assert operation.result() is None
    assert operation.exception() is None


async def test_order_of_resolution_is_the_order_of_submits(npu: aa.Device, stream: aa.Stream) -> None:
    buffer = npu.empty(4, "uint8")
    order: list[int] = []
    operations = [stream.memset(buffer, 0) for _ in range(50)]
    for index, operation in reversed(list(enumerate(operations))):
        operation.add_waiter(lambda _, index=index: order.append(index))
    await stream
    assert order == list(range(50))


@pytest.mark.asyncio_only
async def test_speaks_the_future_protocol(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(4, "uint8")
    with sim.hold(stream):
        operation = stream.memset(buffer, 0)
        assert asyncio.isfuture(operation)
        assert asyncio.ensure_future(operation) is operation
        assert operation.get_loop() is asyncio.get_running_loop()
        with pytest.raises(asyncio.InvalidStateError):
            operation.result()
        with pytest.raises(asyncio.InvalidStateError):
            operation.exception()
        called: list[aa.Operation] = []
        dropped: list[aa.Operation] = []
        operation.add_done_callback(called.append)
        operation.add_done_callback(dropped.append)
        assert operation.remove_done_callback(dropped.append) == 1
        assert not operation.done()
    await operation
    await asyncio.sleep(0)
    assert called == [operation]
    assert dropped == []
    operation.add_done_callback(called.append)
    assert called == [operation]  # through the loop, not at once
    await asyncio.sleep(0)
    assert called == [operation, operation]


@pytest.mark.asyncio_only
async def test_gather_wait_shield_as_completed_wait_for(npu: aa.Device, stream: aa.Stream) -> None:
    buffer = npu.empty(4, "uint8")
    submit = lambda: stream.memset(buffer, 0)  # noqa: E731
    await asyncio.gather(submit(), submit(), stream.record(), stream)
    done, pending = await asyncio.wait([submit(), submit()])
    assert len(done) == 2
    assert not pending
    await asyncio.wait_for(submit(), 30)
    await asyncio.shield(submit())
    for next_done in asyncio.as_completed([submit(), submit()]):
        await next_done


@pytest.mark.asyncio_only
async def test_gather_of_a_thousand(npu: aa.Device, stream: aa.Stream, other: aa.Stream, pace: str) -> None:
    buffer = npu.empty(4, "uint8")
    await asyncio.gather(*[(stream, other)[i % 2].memset(buffer, i % 256) for i in range(1000)])


async def test_a_full_queue_does_not_block_the_loop(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(4, "uint8")
    await stream.memset(buffer, 0)
    with sim.hold(stream):
        operations = [stream.memset(buffer, i % 256) for i in range(5000)]  # more than the device's queue holds
        assert stream.queued > 0
        assert stream.in_flight <= 512
        await anyio.lowlevel.checkpoint()
    async with anyio.create_task_group() as group:
        for operation in operations[::97]:
            group.start_soon(_await, operation)
    await stream
    assert stream.queued == 0


async def test_events_order_streams(npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(64, "uint8")
    target = np.zeros(64, "uint8")
    with sim.hold(stream):
        stream.memset(buffer, 5)
        event = stream.record()
        other.wait(event)
        copy = other.memcpy(target, buffer)
        assert not event.done()
        assert not copy.done()
    await copy
    await event
    assert event.done()
    assert (target == 5).all()


async def test_elapsed_time(npu: aa.Device, stream: aa.Stream) -> None:
    start = stream.record(timing=True)
    end = stream.record(timing=True)
    await end
    assert end.elapsed_since(start) >= 0
    with pytest.raises(ValueError, match="timing=True"):
        stream.record().elapsed_since(start)
    with pytest.raises(aa.ArgumentError):
        start.elapsed_since(end)  # the wrong way round


async def test_await_of_an_idle_stream_and_query(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    await stream
    assert stream.query()
    with sim.hold(stream):
        stream.memset(npu.empty(4, "uint8"), 0)
        assert not stream.query()
    await stream
    assert stream.query()


async def test_submit_from_a_thread_awaited_on_the_loop(npu: aa.Device, stream: aa.Stream) -> None:
    buffer = npu.empty(4, "uint8")
    operation = await anyio.to_thread.run_sync(lambda: stream.memset(buffer, 3))
    await operation
    target = np.zeros(4, "uint8")
    await stream.memcpy(target, buffer)
    assert (target == 3).all()


async def test_after_close_submits_raise(npu: aa.Device) -> None:
    buffer = npu.empty(4, "uint8")
    async with npu.create_stream() as stream:
        operation = stream.memset(buffer, 1)
    assert operation.done()
    with pytest.raises(aa.RuntimeClosedError):
        stream.memset(buffer, 1)
    await stream.close()


async def test_an_event_recorded_again_leaves_what_was_submitted_before(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer, target = npu.empty(16, "uint8"), np.zeros(16, "uint8")
    await stream.memset(buffer, 0)
    with sim.hold(stream):
        for _ in range(600):
            stream.memset(buffer, 1)  # more than the device takes: the record waits on the host
        event = stream.record()
        with sim.hold(other):
            other.memset(buffer, 7)
            other.record(event)
            async with npu.create_stream() as third:
                third.wait(event)  # of the second record
                copy = third.memcpy(target, buffer)
                assert not event.done()
                sim.release(other)
                await copy
        assert (target == 7).all()
    await stream


async def test_submitted_by_a_thread_and_done_before_it_is_awaited(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    operation = await anyio.to_thread.run_sync(lambda: stream.memset(npu.empty(4, "uint8"), 3))
    await stream.memset(npu.empty(4, "uint8"), 4)
    await operation
    await anyio.lowlevel.checkpoint()
    await operation
