# SPDX-License-Identifier: Apache-2.0
"""Several loops, threads and devices; foreign code on the same threads; streams of somebody else."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator

pytestmark = pytest.mark.anyio


@pytest.fixture
def acl() -> Any:
    """The library as foreign code on the same thread would call it."""
    return ctypes.CDLL(aa.backend_info("sim").path)


def in_thread(main: Any) -> threading.Thread:
    thread = threading.Thread(target=lambda: anyio.run(main))
    thread.start()
    return thread


def test_two_loops_in_two_threads_share_a_device(sim: Simulator, pace: str) -> None:
    barrier = threading.Barrier(2)
    failures: list[BaseException] = []

    async def work(value: int) -> None:
        async with aa.open_device(0, backend="sim") as npu, npu.create_stream() as stream:
            buffer = npu.empty(64, "uint8")
            target = np.zeros(64, "uint8")
            await anyio.to_thread.run_sync(barrier.wait)
            for _ in range(200):
                stream.memset(buffer, value)
                await stream.memcpy(target, buffer)
                assert (target == value).all()
            await anyio.to_thread.run_sync(barrier.wait)

    def run(value: int) -> None:
        try:
            anyio.run(work, value)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(value,)) for value in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


async def test_the_context_of_the_thread_is_put_back(
    npu: aa.Device, stream: aa.Stream, acl: Any, anyio_backend: object
) -> None:
    foreign = ctypes.c_void_p()
    assert acl.aclrtCreateContext(ctypes.byref(foreign), 1) == 0  # and makes it current
    current = ctypes.c_void_p()
    try:
        buffer = npu.empty(64, "uint8")
        target = np.zeros(64, "uint8")
        stream.memset(buffer, 4)
        await stream.memcpy(target, buffer)
        assert (target == 4).all()
        event = stream.record()
        await event
        assert acl.aclrtGetCurrentContext(ctypes.byref(current)) == 0
        assert current.value == foreign.value
    finally:
        acl.aclrtDestroyContext(foreign)
    await stream.memset(npu.empty(64, "uint8"), 1)  # this thread has no valid context now


async def test_two_devices_on_one_thread(npu: aa.Device, stream: aa.Stream) -> None:
    async with aa.open_device(1, backend="sim") as second, second.create_stream() as elsewhere:
        here, there = npu.empty(16, "uint8"), second.empty(16, "uint8")
        for value in range(20):
            stream.memset(here, value)
            elsewhere.memset(there, 100 + value)
        a, b = np.zeros(16, "uint8"), np.zeros(16, "uint8")
        await stream.memcpy(a, here)
        await elsewhere.memcpy(b, there)
        assert (a == 19).all()
        assert (b == 119).all()
        with pytest.raises(ValueError, match="device 1"):
            stream.memcpy(there, a)
        with pytest.raises(ValueError, match="device 1"):
            stream.wait(elsewhere.record())
        await elsewhere


async def test_the_device_is_opened_once_and_closed_with_its_last_user(sim: Simulator, anyio_backend: object) -> None:
    calls = sim.calls("aclrtSetDevice"), sim.calls("aclrtResetDevice")
    async with aa.open_device(0, backend="sim") as first:
        async with aa.open_device(0, backend="sim") as second:
            assert first.context == second.context
        async with first.create_stream() as stream:
            await stream.memset(first.empty(4, "uint8"), 0)
        with pytest.raises(aa.RuntimeClosedError):
            second.create_stream()
    assert (sim.calls("aclrtSetDevice"), sim.calls("aclrtResetDevice")) == (calls[0] + 1, calls[1] + 1)


async def test_no_such_device(anyio_backend: object) -> None:
    with pytest.raises(aa.ArgumentError, match="107001"):
        await aa.open_device(63, backend="sim")
    for index in (-1, True, "0", None):
        with pytest.raises((TypeError, ValueError), match="index"):
            aa.open_device(index)  # type: ignore[arg-type]


async def test_a_stream_of_somebody_else(npu: aa.Device, acl: Any, sim: Simulator) -> None:
    def create() -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        assert acl.aclrtSetCurrentContext(ctypes.c_void_p(npu.context)) == 0
        assert acl.aclrtCreateStream(ctypes.byref(handle)) == 0
        # its owner has callbacks of its own on it
        assert acl.aclrtSubscribeReport(ctypes.c_uint64(threading.get_ident()), handle) == 0
        return handle

    with pytest.raises(ValueError, match="default stream"):
        await npu.wrap_stream(0)
    handle = await anyio.to_thread.run_sync(create)
    assert handle.value is not None
    stream = await npu.wrap_stream(handle.value)
    buffer = npu.empty(64, "uint8")
    target = np.zeros(64, "uint8")
    stream.memset(buffer, 6)
    await stream.memcpy(target, buffer)
    assert (target == 6).all()
    with sim.hold(stream):
        pending = stream.memset(buffer, 7)
        event = stream.record()
        with anyio.move_on_after(0):
            await event
        assert not pending.done()
    await event
    sim.fail_task(stream=stream, kind="memset", code=507015)
    with pytest.raises(aa.TaskError):
        await stream.memset(buffer, 8)
    await stream.close()

    def destroy() -> None:
        assert acl.aclrtSetCurrentContext(ctypes.c_void_p(npu.context)) == 0
        assert acl.aclrtDestroyStream(handle) == 0  # still its owner's to give back

    await anyio.to_thread.run_sync(destroy)


@pytest.mark.asyncio_only
async def test_a_loop_that_is_not_run_for_a_while(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(4, "uint8")
    operations = [stream.memset(buffer, 1) for _ in range(100)]
    for operation in operations:
        operation.add_done_callback(lambda _: None)
    sim.wait_tasks(stream, 100)  # blocks this loop while all the reports arrive
    await asyncio.gather(*operations)


@pytest.mark.asyncio_only
async def test_an_operation_of_another_loop_is_refused(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    with sim.hold(stream):
        operation = stream.memset(npu.empty(4, "uint8"), 1)
        event = stream.record()

        async def elsewhere() -> str:
            with pytest.raises(RuntimeError, match="another event loop"):
                await operation
            with anyio.move_on_after(0):
                await event  # an event can be awaited anywhere
            return "refused"

        assert await anyio.to_thread.run_sync(lambda: anyio.run(elsewhere)) == "refused"
    await operation


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_an_event_is_awaited_by_another_loop(
    npu: aa.Device, stream: aa.Stream, sim: Simulator, backend: str
) -> None:
    waiting = threading.Event()

    async def elsewhere(event: aa.Event) -> None:
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                await event
                await event

            group.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            waiting.set()

    def release() -> None:
        waiting.wait()
        sim.release(stream)

    with sim.hold(stream):
        operation = stream.memset(npu.empty(4, "uint8"), 1)
        event = stream.record()
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, lambda: anyio.run(elsewhere, event, backend=backend))
            group.start_soon(anyio.to_thread.run_sync, release)
    await operation


def test_a_loop_that_stopped_without_being_closed(sim: Simulator) -> None:
    state: dict[str, Any] = {}

    async def first() -> None:
        state["npu"] = npu = await aa.open_device(0, backend="sim")
        state["stream"] = stream = await npu.create_stream()
        await stream.memset(npu.empty(4, "uint8"), 0)
        state["last"] = stream.memset(npu.empty(4, "uint8"), 1)

    async def second() -> None:
        await state["stream"]
        await state["npu"].close()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(first())
    asyncio.run(second())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    state.clear()


def test_a_dynamic_model_called_from_several_loops(sim: Simulator) -> None:
    text = b'[[inputs]]\nname = "x"\nshape = [-1]\n[[outputs]]\nname = "y"\nshape = [-1]\nfill = "copy"\n'
    failures: list[BaseException] = []

    async def main() -> None:
        async with aa.open_device(0, backend="sim") as npu, await npu.load_model(text) as model:

            async def call() -> None:
                for size in (3, 5, 8, 3, 5, 8):
                    x = np.arange(size, dtype="float32")
                    np.testing.assert_array_equal(await model(x), x)

            def in_thread() -> None:
                try:
                    anyio.run(call)
                except BaseException as error:
                    failures.append(error)

            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(anyio.to_thread.run_sync, in_thread)
                group.start_soon(call)

    anyio.run(main)
    assert failures == []
