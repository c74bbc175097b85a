# SPDX-License-Identifier: Apache-2.0
"""How far a failure reaches over events, and that finding out takes no time to speak of."""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator
from runtime.outcomes import AICORE_EXCEPTION, error_of

pytestmark = pytest.mark.anyio


async def test_streams_that_hand_over_to_each_other_again_and_again(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(4, "uint8")
    sim.fail_task(stream=stream, kind="memset")
    assert isinstance(await error_of(stream.memset(buffer, 0)), aa.TaskError)  # from here on there is something to find
    with sim.hold(stream):
        here, there = stream, other
        for value in range(200):
            here.memset(buffer, value % 256)
            there.wait(here.record())
            here, there = there, here
        last = here.memset(buffer, 0)
    await last


async def test_what_is_submitted_elsewhere_after_somebody_was_told_is_fresh(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(4, "uint8")
    sim.fail_task(stream=stream, kind="memset")
    async with npu.create_stream() as third:
        with sim.hold(other):
            with sim.hold(stream):
                failed = stream.memset(buffer, 1)
                other.wait(stream.record())
                behind = other.memset(buffer, 2)
                record_behind = other.record()
            assert isinstance(await error_of(failed), aa.TaskError)
            # Its wait is not over yet, but what stands behind it was submitted by somebody who knows.
            fresh = other.memset(buffer, 3)
            third.wait(other.record())
            fresh_elsewhere = third.memset(buffer, 4)
            with pytest.raises(aa.DependencyError):
                third.wait(record_behind)
        errors = [await error_of(behind), await error_of(fresh), await error_of(fresh_elsewhere)]
    assert isinstance(errors[0], aa.DependencyError)
    assert errors[0].__cause__ is failed.exception()
    assert errors[1:] == [None, None]


async def test_two_failures_reach_one_record(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(4, "uint8")
    async with npu.create_stream() as third:
        for each in (stream, other):
            sim.fail_task(stream=each, kind="memset")
            sim.hold(each)
        first, second = stream.memset(buffer, 1), other.memset(buffer, 1)
        other.wait(stream.record())
        third.wait(other.record())
        before = third.memset(buffer, 2)
        for each in (stream, other):
            sim.release(each)
        causes = set()
        for value in (2, 3):
            error = await error_of(before if value == 2 else third.memset(buffer, value))
            assert isinstance(error, aa.DependencyError)
            causes.add(error.__cause__)  # and somebody has been told of this one, but not of the other
        assert await error_of(third.memset(buffer, 4)) is None
        assert causes == {await error_of(first), await error_of(second)}


@pytest.mark.usefixtures("delivery")
async def test_a_failure_crosses_streams_through_events(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(16, "uint8")
    await stream.memset(buffer, 0)
    await other.memset(buffer, 0)
    sim.fail_task(stream=stream, code=AICORE_EXCEPTION)
    with sim.hold(stream):
        failed = stream.memset(buffer, 1)
        event = stream.record()
        before = other.memset(npu.empty(4, "uint8"), 0)
        other.wait(event)
        behind = other.memcpy(np.zeros(16, "uint8"), buffer)
    assert await error_of(before) is None
    error = await error_of(behind)
    assert isinstance(error, aa.DependencyError)
    assert error.__cause__ is await error_of(failed)
    with pytest.raises(aa.DependencyError):
        other.wait(event)
    assert await error_of(other.memset(buffer, 1)) is None
    assert await error_of(stream.memset(buffer, 1)) is None


@pytest.mark.usefixtures("delivery")
async def test_what_is_submitted_behind_a_wait_after_somebody_was_told_is_fresh(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    async with npu.create_stream() as third:
        buffer = npu.empty(16, "uint8")
        for each in (stream, other, third):
            await each.memset(buffer, 0)
        sim.fail_task(stream=stream, code=AICORE_EXCEPTION)
        with sim.hold(other), sim.hold(third):
            failed = stream.memset(buffer, 1)
            third.wait(stream.record())
            behind = third.memset(buffer, 2)
            other.wait(third.record())
            further_behind = other.memset(buffer, 3)
            assert isinstance(await error_of(failed), aa.TaskError)
            fresh = [third.memset(buffer, 4), other.memset(buffer, 5)]
        assert isinstance(await error_of(behind), aa.DependencyError)
        assert isinstance(await error_of(further_behind), aa.DependencyError)
        assert [await error_of(operation) for operation in fresh] == [None, None]


async def test_streams_may_wait_for_each_other_any_number_of_times(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(16, "uint8")
    for each in (stream, other):
        await each.memset(buffer, 0)
    sim.fail_task(stream=stream, kind="memset", nth=2, code=AICORE_EXCEPTION)
    with sim.hold(stream), sim.hold(other):
        operations = []
        for _ in range(200):  # handing a buffer to and fro
            operations.append(stream.memset(buffer, 1))
            other.wait(stream.record())
            operations.append(other.memset(buffer, 2))
            stream.wait(other.record())
    errors = [await error_of(operation) for operation in operations]
    assert errors[:2] == [None, None]
    assert isinstance(errors[2], aa.TaskError)
    assert all(isinstance(error, aa.DependencyError) and error.__cause__ is errors[2] for error in errors[3:])


async def test_each_of_two_failures_reaches_what_waits_for_both(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    async with npu.create_stream() as third:
        buffer = npu.empty(16, "uint8")
        for each in (stream, other, third):
            await each.memset(buffer, 0)
        with sim.hold(stream), sim.hold(other), sim.hold(third):
            sim.fail_task(stream=stream, kind="memset", code=AICORE_EXCEPTION)
            sim.fail_task(stream=other, kind="memset", code=507017)
            one = stream.memset(buffer, 1)
            one.add_waiter(lambda _: None)  # its report comes before the wait
            two = other.memset(buffer, 2)
            stream.wait(other.record())
            third.wait(stream.record())
            behind_both = third.memset(buffer, 3)
            sim.release(stream)
            assert getattr(await error_of(one), "code", 0) == AICORE_EXCEPTION
            sim.release(other)
            await anyio.to_thread.run_sync(sim.wait_tasks, other, 4)  # the failure has happened, and nobody was told
            sim.release(third)
            assert isinstance(await error_of(behind_both), aa.DependencyError)
            behind_the_other = third.memset(buffer, 4)
        error = await error_of(behind_the_other)
        assert isinstance(error, aa.DependencyError)
        assert error.__cause__ is await error_of(two)


async def test_a_failure_behind_a_wait_for_one_that_has_been_told_is_told_itself(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(16, "uint8")
    for each in (stream, other):
        await each.memset(buffer, 0)
    sim.fail_task(stream=stream, code=AICORE_EXCEPTION)
    with sim.hold(other):
        failed = stream.memset(buffer, 1)
        other.wait(stream.record())
        assert isinstance(await error_of(failed), aa.TaskError)
        sim.fail_task(stream=other, kind="memset", code=507017)
        failed_too, behind = other.memset(buffer, 2), other.memset(buffer, 3)
    error = await error_of(failed_too)
    assert error is not None
    assert getattr(error, "code", 0) == 507017
    assert isinstance(await error_of(behind), aa.DependencyError)


async def test_an_event_that_was_never_recorded_because_of_a_failure_holds_nobody_up(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(16, "uint8")
    await stream.memset(buffer, 0)
    sim.fail_task(stream=stream, code=AICORE_EXCEPTION)
    stream.memset(buffer, 1)
    await anyio.to_thread.run_sync(sim.wait_tasks, stream, 3)
    await other.memset(npu.empty(4, "uint8"), 0)  # with its report the failure has become known
    event = stream.record()
    with pytest.raises(aa.DependencyError):
        other.wait(event)
    await other.memset(buffer, 3)


@pytest.mark.usefixtures("delivery")
async def test_a_failure_crosses_streams_that_nobody_asks(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    async with npu.create_stream() as third:
        first, second = npu.empty(16, "uint8"), npu.empty(16, "uint8")
        for each in (stream, other, third):
            await each.memset(first, 0)
        sim.fail_task(stream=stream, kind="memset", code=AICORE_EXCEPTION)
        with sim.hold(stream):
            stream.memset(first, 7)
            other.wait(stream.record())
            other.memcpy(second, first)
            third.wait(other.record())
            result = third.memcpy(np.zeros(16, "uint8"), second)
        assert isinstance(await error_of(result), aa.DependencyError)


async def test_a_failure_crosses_streams_that_nobody_asks_for_a_report(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    sim.set_exception_delivery("lazy")
    buffer = npu.empty(16, "uint8")
    await other.memset(buffer, 0)
    for _ in range(5):
        # The runtime looks around every 100 ms; a library that was asked by nobody tells by itself 50 ms after a
        # failure, which is then too late.
        looked_around = time.monotonic()
        while time.monotonic() < looked_around + 0.07:
            await anyio.lowlevel.checkpoint()
        sim.fail_task(stream=other, kind="memset", code=AICORE_EXCEPTION)
        with sim.hold(other):
            failed = other.memset(buffer, 1)
            stream.wait(other.record())
            behind = stream.memset(buffer, 2)
        while not behind.done():
            await anyio.lowlevel.checkpoint()
        assert isinstance(await error_of(behind), aa.DependencyError)
        assert isinstance(await error_of(failed), aa.TaskError)


async def test_a_stream_that_waits_for_discarded_work_is_given_up(sim: Simulator, anyio_backend: object) -> None:
    acl = ctypes.CDLL(aa.backend_info("sim").path)
    device = aa.open_device(1, backend="sim", report_timeout=0.3)
    async with device as npu, npu.create_stream() as stream, npu.create_stream() as other:
        buffer = npu.empty(4, "uint8")
        await stream.memset(buffer, 0)
        sim.hold(stream)
        lost = stream.memset(buffer, 1)
        other.wait(stream.record())
        stranded = other.memset(buffer, 2)
        for operation in (lost, stranded):  # their reports are asked for, and discarded with the rest
            operation.add_waiter(lambda _: None)

        def abort() -> None:
            assert acl.aclrtSetCurrentContext(ctypes.c_void_p(npu.context)) == 0
            assert acl.aclrtStreamAbort(ctypes.c_void_p(stream.handle)) == 0

        await anyio.to_thread.run_sync(abort)
        assert isinstance(await error_of(lost), aa.ReportLostError)
        assert isinstance(await error_of(stranded), aa.ReportLostError)
        sim.release(stream)


async def test_somebody_is_told_while_a_wait_is_being_submitted(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    """What comes behind the wait is fresh, although the wait was under way when the failure became known."""
    buffer = npu.empty(4, "uint8")
    for each in (stream, other):
        await each.memset(buffer, 0)
    submitted = threading.Event()
    errors: list[Exception | None] = []

    async def be_told() -> None:
        failed = stream.memset(buffer, 1)
        submitted.set()
        while sim.calls("aclrtStreamWaitEvent") == calls:
            await anyio.lowlevel.checkpoint()
        sim.release(stream)
        errors.append(await error_of(failed))

    sim.fail_task(stream=stream, kind="memset", code=AICORE_EXCEPTION)
    sim.hold(stream)
    sim.hold(other)
    other.memset(buffer, 0)  # or the wait would be over before the next is there
    calls = sim.calls("aclrtStreamWaitEvent")
    thread = threading.Thread(target=lambda: asyncio.run(be_told()))
    thread.start()
    await anyio.to_thread.run_sync(submitted.wait)
    event = stream.record()
    sim.set_call_latency("aclrtStreamWaitEvent", 0.3)
    other.wait(event)
    await anyio.to_thread.run_sync(thread.join)
    assert isinstance(errors[0], aa.TaskError)
    fresh = other.memset(buffer, 2)
    sim.release(other)
    assert await error_of(fresh) is None


async def test_a_report_covers_what_was_waited_for(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    async with npu.create_stream() as third:
        buffer = npu.empty(1000)
        for one in (stream, other, third):
            await one.memset(buffer, 0)
        before = sim.callbacks_launched
        for _ in range(50):  # handed over to and fro
            stream.memset(buffer, 1)
            other.wait(stream.record())
            other.memset(buffer, 2)
            stream.wait(other.record())
        third.wait(stream.record())
        behind = stream.memset(buffer, 3)
        await third
        assert sim.callbacks_launched == before + 1
        assert other.in_flight == 0
        assert stream.in_flight <= 1  # what is behind the record is not known to be done
        await behind


async def test_a_wait_that_failed_on_the_device_proves_nothing(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    """Whatever the failure is taken for, what the wait was for has not run."""
    x, y = npu.empty(1000), npu.empty(1000)
    await stream.memset(x, 0)
    await other.memset(y, 0)
    with sim.hold(stream):
        held = stream.memset(x, 1)
        recorded = stream.record()
        sim.fail_task(kind="event_wait")
        waiting = other.wait(recorded)
        behind = other.memset(y, 1)
        assert {type(await error_of(operation)) for operation in (waiting, behind)} > {aa.TaskError}
        assert stream.in_flight == 2
        assert not held.done()
    await held


@asynccontextmanager
async def streams_of_four() -> AsyncIterator[tuple[aa.Stream, aa.Stream, aa.DeviceBuffer]]:
    """Two streams that take no more than four operations each, others wait on the host; and a buffer that is there."""
    async with aa.open_device(1, backend="sim", flight_limit=4) as small:
        buffer = small.empty(1000)
        async with small.create_stream() as stream, small.create_stream() as other:
            await stream.memset(buffer, 0)
            await other.memset(buffer, 0)
            yield stream, other, buffer


async def test_a_wait_that_was_refused_proves_nothing(sim: Simulator, anyio_backend: object) -> None:
    """What is behind it went on without it, while its source may not be that far."""
    async with streams_of_four() as (stream, other, buffer):
        with sim.hold(stream), sim.hold(other):
            held = stream.memset(buffer, 1)
            for _ in range(4):  # no more fit
                other.memset(buffer, 2)
            sim.fail_call("aclrtStreamWaitEvent", code=507899)
            other.wait(stream.record())
            behind = other.memset(buffer, 3)
            sim.release(other)
            with pytest.raises(aa.DependencyError):
                await behind
            assert stream.in_flight == 2
            assert not held.done()
        await held


async def test_a_wait_for_a_record_that_failed_proves_nothing(sim: Simulator, anyio_backend: object) -> None:
    """Its stream may not be that far: the record was never made, and the library takes the event for done."""
    async with streams_of_four() as (stream, other, buffer):
        with sim.hold(stream):
            held = [stream.memset(buffer, 1) for _ in range(4)]  # no more fit
            sim.fail_call("aclrtRecordEvent", code=507899)
            other.wait(stream.record())
            behind = other.memset(buffer, 2)
            sim.step(stream, 3)  # two, and the report that lets the record be issued
            with pytest.raises(aa.DependencyError):
                await behind
            assert stream.in_flight >= 2
            assert not held[-1].done()
        await held[-1]
