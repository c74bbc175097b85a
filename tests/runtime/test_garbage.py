# SPDX-License-Identifier: Apache-2.0
"""Operations are kept from the garbage collector as long as they cannot be garbage; what can be is found."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import weakref

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator

pytestmark = pytest.mark.anyio


class Array(np.ndarray):
    """An array that can refer to other things."""

    operation: aa.Operation


async def test_an_operation_in_flight_costs_the_collector_nothing(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(8, "uint8")
    with sim.hold(stream):
        operation = stream.memset(buffer, 1)
        assert not gc.is_tracked(operation)
    await operation
    assert not gc.is_tracked(operation)


async def test_a_source_that_refers_to_its_operation(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    array = np.zeros(1 << 20, "uint8").view(Array)
    gone = weakref.ref(array)
    with sim.hold(stream):
        array.operation = stream.memcpy(npu.empty(1 << 20, "uint8"), array)
        del array
        gc.collect()
        assert gone() is not None
    await stream
    gc.collect()
    assert gone() is None


async def test_a_stream_that_refers_to_its_operation(npu: aa.Device) -> None:
    stream = await npu.create_stream()
    buffer = npu.empty(8, "uint8")
    gone = weakref.ref(stream)
    stream.last = stream.memset(buffer, 1)  # type: ignore[attr-defined]
    await stream.last  # type: ignore[attr-defined]
    event = stream.record()
    await event
    await stream.close()
    del stream
    limit = time.monotonic() + 10
    gc.collect()
    while gone() is not None and time.monotonic() < limit:  # the thread that closed it lets go of it a moment later
        await anyio.lowlevel.checkpoint()
        gc.collect()
    assert gone() is None
    assert event.done()


@pytest.mark.asyncio_only
async def test_a_failed_operation_in_the_frame_that_awaited_it(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(8, "uint8")
    sim.fail_task(stream=stream)

    async def work() -> weakref.ref[aa.Operation]:
        operation = stream.memset(buffer, 1)
        try:
            await operation
        except aa.AclError as error:
            kept = error  # error -> traceback -> this frame -> operation -> error
            assert gc.is_tracked(operation)
            assert kept.code == 507015
        return weakref.ref(operation)

    gone = await asyncio.ensure_future(work())
    await stream.memset(buffer, 2)  # the stream refers to its latest operation
    gc.collect()
    assert gone() is None


async def test_a_cancelled_operation_with_a_message_that_refers_to_it(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(8, "uint8")
    with sim.hold(stream):
        operation = stream.memset(buffer, 1)
        gone = weakref.ref(operation)
        operation.cancel([operation])
        del operation
        gc.collect()
        assert gone() is not None  # until the device is past it
    await stream.memset(buffer, 2)  # the stream refers to its latest operation
    gc.collect()
    assert gone() is None


async def test_a_callback_that_refers_to_its_operation(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(8, "uint8")
    with sim.hold(stream):
        operation = stream.memset(buffer, 1)
        operation.add_waiter(lambda _, operation=operation: None)
        gone = weakref.ref(operation)
        del operation
        gc.collect()
        assert gone() is not None
    await stream.memset(buffer, 2)  # the stream refers to its latest operation
    gc.collect()
    assert gone() is None


@pytest.mark.asyncio_only
async def test_a_closed_stream_is_gone_at_once(npu: aa.Device) -> None:
    """The thread that has closed it does not hold on to it."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(200):
            stream = await npu.create_stream()
            gone = weakref.ref(stream)
            await stream.close()
            del stream
            assert gone() is None
    finally:
        sys.setswitchinterval(interval)
