# SPDX-License-Identifier: Apache-2.0
"""Faults and limits: what is armed is what the user of the runtime sees, and no more than that."""

from __future__ import annotations

import asyncio
import ctypes
import time

import numpy as np
import pytest

import aioascend
from aioascend import (
    AclError,
    ArgumentError,
    DeviceLostError,
    OutOfMemoryError,
    ReportLostError,
    ResourceError,
    TaskError,
)
from aioascend.testing import Simulator

pytestmark = pytest.mark.anyio


async def test_the_nth_task_of_a_kind_fails(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        buffer = npu.empty(64, "uint8")
        sim.fail_task(2, kind="memset")
        await stream.memset(buffer, 1)
        with pytest.raises(TaskError) as caught:
            await stream.memset(buffer, 2)
        assert caught.value.code == 507015
        await stream.memset(buffer, 3)
        read = np.zeros(64, np.uint8)
        await stream.memcpy(read, buffer)
        assert read.tolist() == [3] * 64
        assert [(record.kind, record.code) for record in sim.timeline(failed=True)] == [("memset", 507015)]


async def test_a_failed_task_does_not_do_its_work(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        buffer = npu.empty(64, "uint8")
        await stream.memset(buffer, 1)
        sim.fail_task(code=507011, kind="memset")
        with pytest.raises(AclError) as caught:
            await stream.memset(buffer, 2)
        assert caught.value.code == 507011
        read = np.zeros(64, np.uint8)
        await stream.memcpy(read, buffer)
        assert read.tolist() == [1] * 64


async def test_a_stream_brings_its_own_device(sim: Simulator) -> None:
    async with aioascend.open_device(1) as npu, npu.create_stream() as spared, npu.create_stream() as hit:
        sim.fail_task(stream=hit, kind="memset")
        await spared.memset(npu.empty(64, "uint8"), 1)
        with pytest.raises(TaskError):
            await hit.memset(npu.empty(64, "uint8"), 1)


async def test_lazy_delivery_still_raises(sim: Simulator) -> None:
    sim.set_exception_delivery("lazy")
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        sim.fail_task(kind="memset")
        with pytest.raises(TaskError):
            await stream.memset(npu.empty(64, "uint8"), 1)


async def test_a_dropped_report_is_found_out(sim: Simulator) -> None:
    async with aioascend.open_device(0, report_timeout=0.05) as npu, npu.create_stream() as stream:
        sim.drop_callback(stream=stream)
        with pytest.raises(ReportLostError):
            await stream.memset(npu.empty(64, "uint8"), 1)
        await stream.memset(npu.empty(64, "uint8"), 2)


async def test_a_delayed_report_comes_later_on_the_simulated_clock(sim: Simulator) -> None:
    with sim.virtual_time():
        async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
            buffer = npu.empty(64, "uint8")
            await stream.memset(buffer, 0)
            before = sim.now()
            sim.delay_report(0.25)
            await stream.memset(buffer, 1)
            assert sim.now() - before >= 250_000_000


async def test_shuffled_reports_keep_the_order_of_a_stream(sim: Simulator) -> None:
    sim.shuffle_reports()
    finished: list[tuple[int, int]] = []
    async with aioascend.open_device(0) as npu:
        streams = [await npu.create_stream() for _ in range(16)]
        buffer = npu.empty(64, "uint8")
        await streams[0].memset(buffer, 0)
        with sim.hold_reports():
            waiting = []
            for turn in range(2):
                for number, stream in enumerate(streams):
                    operation = stream.memset(buffer, turn)
                    operation.add_done_callback(lambda _, seen=(number, turn): finished.append(seen))
                    waiting.append(operation)
            for number, stream in enumerate(streams):
                # Two memsets and their two reports; stream 0 has run one more, to begin with.
                await asyncio.to_thread(sim.wait_tasks, stream, 6 if number == 0 else 4)
        await asyncio.gather(*waiting)
        await asyncio.sleep(0)
    for number in range(16):
        assert [turn for stream, turn in finished if stream == number] == [0, 1]
    first_reports = [number for number, turn in finished if turn == 0]
    assert sorted(first_reports) == list(range(16))
    assert first_reports != list(range(16))  # one in 16! shuffles would leave it in order


async def test_a_lost_device_fails_what_is_in_flight(sim: Simulator, acl: ctypes.CDLL) -> None:
    async with aioascend.open_device(1) as npu:
        stream = await npu.create_stream()
        with sim.hold(stream):
            waiting = stream.memset(npu.empty(64, "uint8"), 1)
            sim.lose_device(npu)
            with pytest.raises(DeviceLostError) as caught:
                await waiting
            assert caught.value.code == 507010
    sim.restore_device(1)
    assert acl.aclrtResetDeviceForce(1) in (0, 507007)
    async with aioascend.open_device(1) as again, again.create_stream() as stream:
        await stream.memset(again.empty(64, "uint8"), 1)


async def test_calls_fail_from_the_nth_on_and_as_often_as_asked(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        buffer = npu.empty(64, "uint8")
        await stream.memset(buffer, 0)
        sim.fail_call("aclrtMemsetAsync", nth=2, code=507899, times=2)

        async def code_of(value: int) -> int:
            try:
                await stream.memset(buffer, value)
            except AclError as error:
                return error.code
            return 0

        outcomes = [await code_of(value) for value in range(4)]
        assert outcomes == [0, 507899, 507899, 0]


def test_a_call_can_be_made_slower(sim: Simulator, acl: ctypes.CDLL) -> None:
    sim.set_call_latency("aclrtGetDeviceCount", 0.05)
    count = ctypes.c_uint32()
    began = time.monotonic()
    assert acl.aclrtGetDeviceCount(ctypes.byref(count)) == 0
    assert time.monotonic() - began >= 0.05  # a lower bound, which no slow machine can miss


async def test_memory_runs_out(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        sim.limit_memory(32 << 20, device=npu)
        with pytest.raises(OutOfMemoryError):
            await stream.memset(npu.empty(64 << 20, "uint8"), 0)
        sim.limit_memory(None)
        await stream.memset(npu.empty(64 << 20, "uint8"), 0)


async def test_streams_run_out(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu:
        sim.limit_streams(1)
        with pytest.raises(ResourceError):
            await npu.create_stream()
        sim.limit_streams(None)
        async with npu.create_stream():
            pass


async def test_events_run_out(sim: Simulator) -> None:
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        sim.limit_events(2)
        with sim.hold(stream):
            held = [stream.record(), stream.record()]
            with pytest.raises(ResourceError) as caught:
                stream.record()
        await held[-1]
        assert caught.value.code == 207007
        sim.limit_events(None)
        await stream.record()


async def test_queues_can_be_short(sim: Simulator, acl: ctypes.CDLL) -> None:
    sim.set_queue_depth(4)
    codes: list[int] = []
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        buffer = npu.empty(64, "uint8")
        await stream.memset(buffer, 0)
        context, handle = npu.context, ctypes.c_void_p(stream.handle)
        address = ctypes.c_void_p(buffer.address)

        def fill() -> None:
            acl.aclrtSetCurrentContext(ctypes.c_void_p(context))
            size = ctypes.c_size_t(64)
            for value in range(5):
                code = acl.aclrtMemsetAsync(address, size, value, size, handle)
                codes.append(code)

        with sim.hold(stream):
            filling = asyncio.create_task(asyncio.to_thread(fill))
            await asyncio.to_thread(sim.wait_blocked, stream)
            assert codes == [0] * 4
        await filling
    assert codes == [0] * 5


async def test_pageable_copies_can_be_asynchronous(sim: Simulator, acl: ctypes.CDLL) -> None:
    data = np.ones(64, np.uint8)
    async with aioascend.open_device(0) as npu, npu.create_stream() as stream:
        buffer = npu.empty_like(data)
        await stream.memset(buffer, 0)
        acl.aclrtSetCurrentContext(ctypes.c_void_p(npu.context))
        size = ctypes.c_size_t(64)
        arguments = (ctypes.c_void_p(buffer.address), size, ctypes.c_void_p(data.ctypes.data), size, 1)
        sim.set_pageable_mode("asynchronous")
        with sim.hold(stream):
            # In the other mode this call would wait for the held stream, for ever.
            assert acl.aclrtMemcpyAsync(*arguments, ctypes.c_void_p(stream.handle)) == 0
        read = np.zeros_like(data)
        await stream.memcpy(read, buffer)
        assert read.tolist() == data.tolist()


async def test_freed_memory_is_poisoned_or_left_alone(sim: Simulator) -> None:
    with pytest.raises(ArgumentError):
        sim.limit_memory(1, device=63)
    sim.poison_freed(False)
    sim.poison_freed()
