# SPDX-License-Identifier: Apache-2.0
"""What state the streams of a pool are in when somebody gets them: at rest, and good."""

from __future__ import annotations

import asyncio
import ctypes
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import aioascend as aa
from aioascend.testing import Simulator
from compose.pools import Told, check, gauges, offered, until, use
from runtime.outcomes import AICORE_EXCEPTION, error_of

pytestmark = pytest.mark.anyio


async def test_abandoned_work_is_over_before_the_stream_is_used_again(npu: aa.Device, sim: Simulator) -> None:
    buffer = npu.empty(16, "uint8")
    async with aa.StreamPool(npu, size=2) as pool:
        await offered(pool, 2)
        async with pool.acquire() as busy:
            hold = sim.hold(busy)
            with anyio.move_on_after(0):
                await busy.memset(buffer, 1)
            busy.memset(buffer, 2)  # and this nobody awaits
        assert gauges(pool) == (1, 0, 1, 0)
        for _ in range(3):  # others are preferred
            async with pool.acquire() as stream:
                assert stream is not busy
        async with pool.acquire():
            with pytest.raises(aa.DeadlineError):
                await pool.acquire(timeout=1e-6).__aenter__()
            with hold:
                pass
            async with pool.acquire() as stream:
                assert stream is busy
                assert not stream.in_flight
        assert gauges(pool) == (2, 0, 0, 0)
        assert check(pool).replaced == 0


def test_a_stream_comes_back_where_no_task_runs(sim: Simulator) -> None:
    """Its end is told in a callback, which under plain asyncio is in no task."""

    async def main() -> None:
        async with aa.open_device(0, backend="sim") as npu, aa.StreamPool(npu, size=1) as pool:
            async with pool.acquire() as stream:
                hold = sim.hold(stream)
                stream.memset(npu.empty(16, "uint8"), 1)
            assert gauges(pool) == (0, 0, 1, 0)
            with hold:
                pass
            async with pool.acquire(timeout=60) as again:
                assert again is stream

    asyncio.run(main())


@pytest.mark.parametrize("replaced", [False, True])
def test_the_end_of_the_block_waits_for_a_stream_that_comes_back_where_no_task_runs(
    sim: Simulator, replaced: bool
) -> None:
    async def main() -> None:
        async with aa.open_device(0, backend="sim") as npu:
            async with aa.StreamPool(npu, size=2) as pool, pool.acquire() as stream:
                stream.memset(npu.empty(100), 0)
                if replaced:
                    stream._close()
            assert check(pool).size == 0
            assert npu.statistics().streams == 0

    asyncio.run(main())


async def test_work_on_the_host_is_drained_too(npu: aa.Device, sim: Simulator) -> None:
    buffer = npu.empty(16, "uint8")
    async with aa.StreamPool(npu, size=1) as pool:
        async with pool.acquire() as stream:
            with sim.hold(stream):
                for value in range(600):
                    stream.memset(buffer, value % 256)
                assert stream.queued
        async with pool.acquire() as again:
            assert again is stream
            assert (again.in_flight, again.queued) == (0, 0)


@pytest.mark.parametrize("awaited", ["later", "cancelled", "never"])
async def test_a_failure_of_the_last_user_is_not_that_of_the_next(
    npu: aa.Device, sim: Simulator, monkeypatch: pytest.MonkeyPatch, anyio_backend: object, awaited: str
) -> None:
    told = Told(monkeypatch, anyio_backend)
    buffer = npu.empty(16, "uint8")
    async with aa.StreamPool(npu, size=1) as pool:
        async with pool.acquire() as stream:
            sim.fail_task(stream=stream, code=AICORE_EXCEPTION)
            with sim.hold(stream):
                failed = stream.memset(buffer, 1)
                if awaited == "cancelled":
                    with anyio.move_on_after(0):
                        await failed
                behind = stream.memset(buffer, 2)
        for _ in range(3):
            await use(pool, buffer)
        assert check(pool).created == 1
    if awaited == "later":
        assert isinstance(await error_of(failed), aa.TaskError)
        assert isinstance(await error_of(behind), aa.DependencyError)
    assert [getattr(error, "code", None) for error in told.errors] == [AICORE_EXCEPTION]


async def test_a_failure_that_came_over_an_event_is_not_that_of_the_next(
    npu: aa.Device, sim: Simulator, monkeypatch: pytest.MonkeyPatch, anyio_backend: object
) -> None:
    told = Told(monkeypatch, anyio_backend)
    buffer = npu.empty(16, "uint8")
    async with aa.StreamPool(npu, size=2) as pool:
        async with pool.acquire() as stream, pool.acquire() as other:
            sim.fail_task(stream=stream, code=AICORE_EXCEPTION)
            with sim.hold(stream):
                stream.memset(buffer, 1)
                other.wait(stream.record())
        for stream in await offered(pool, 2):
            await stream.memset(buffer, 3)
    assert len(told.errors) == 1


async def test_a_failure_that_becomes_known_on_an_idle_stream_is_not_that_of_the_next(
    npu: aa.Device, sim: Simulator, monkeypatch: pytest.MonkeyPatch, anyio_backend: object
) -> None:
    """Of what foreign code has submitted by the handle of the stream, so that none of our operations has it."""
    told = Told(monkeypatch, anyio_backend)
    acl = ctypes.CDLL(aa.backend_info("sim").path)
    buffer = npu.empty(16, "uint8")
    async with aa.StreamPool(npu, size=1) as pool:
        async with pool.acquire() as stream:
            await stream.memset(buffer, 1)
            sim.fail_task(kind="memset", stream=stream, code=AICORE_EXCEPTION)

            def submit() -> None:
                assert acl.aclrtSetCurrentContext(ctypes.c_void_p(npu.context)) == 0
                address, handle = ctypes.c_void_p(buffer.address), ctypes.c_void_p(stream.handle)
                assert acl.aclrtMemsetAsync(address, ctypes.c_size_t(16), 1, ctypes.c_size_t(16), handle) == 0
                assert acl.aclrtSynchronizeStream(handle) == AICORE_EXCEPTION

            await anyio.to_thread.run_sync(submit)
        with anyio.fail_after(60):
            while not told.errors:
                async with npu.create_stream() as other:  # whose reports make the runtime look at what was noted
                    await other.memset(buffer, 1)
                async with pool.acquire():
                    pass
        await use(pool, buffer)
    assert [getattr(error, "code", None) for error in told.errors] == [AICORE_EXCEPTION]


async def test_a_stream_that_somebody_closes_is_replaced(npu: aa.Device) -> None:
    async with aa.StreamPool(npu, size=2) as pool:
        async with pool.acquire() as stream:
            await stream.close()
        assert stream not in await offered(pool, 2)
        assert check(pool).replaced == 1
        assert check(pool).size == 2


async def test_no_more_streams_than_the_size_while_one_is_replaced(npu: aa.Device, sim: Simulator) -> None:
    """Or else a device with just as many would refuse the new one."""
    async with aa.StreamPool(npu, size=3) as pool:
        await offered(pool, 3)
        sim.limit_streams(4)  # one of them is the default stream
        with pytest.raises(aa.ResourceError):
            await npu.create_stream()
        for _ in range(5):
            async with pool.acquire() as stream:
                await stream.close()
            await offered(pool, 3)
        assert check(pool).replaced == 5


async def test_a_stream_that_is_closed_with_work_in_flight_counts_until_that_is_over(
    npu: aa.Device, sim: Simulator
) -> None:
    async with aa.StreamPool(npu, size=1) as pool:
        async with pool.acquire() as stream:
            hold = sim.hold(stream)
            stream.memset(npu.empty(16, "uint8"), 1)
            with anyio.move_on_after(0):
                await stream.close()
        assert gauges(pool) == (0, 0, 0, 0)
        with pytest.raises(aa.DeadlineError):
            await pool.acquire(timeout=1e-6).__aenter__()
        with hold:
            pass
        await offered(pool, 1)


async def test_after_a_reset_all_streams_are_new(npu: aa.Device, sim: Simulator) -> None:
    async with aa.StreamPool(npu, size=3) as pool:
        before = await offered(pool, 3)
        async with pool.acquire() as stream:
            sim.hold(stream)
            lost = stream.memset(npu.empty(16, "uint8"), 1)
            await npu.reset()
            assert isinstance(await error_of(lost), aa.DeviceLostError)
        after = await offered(pool, 3)
        assert set(before) & set(after) == set()
        for stream in after:
            await stream.memset(npu.empty(16, "uint8"), 1)
        assert check(pool).replaced == 3


async def test_a_lost_device_is_told_at_once_to_those_who_wait_as_well(npu: aa.Device, sim: Simulator) -> None:
    errors: list[aa.AioascendError | None] = []

    async def wait(pool: aa.StreamPool) -> None:
        errors.append(await error_of(pool.acquire().__aenter__()))

    async with aa.StreamPool(npu, size=1) as pool:
        async with anyio.create_task_group() as group, pool.acquire() as stream:
            sim.hold(stream)
            lost = stream.memset(npu.empty(16, "uint8"), 1)
            for _ in range(2):
                group.start_soon(wait, pool)
            await until(lambda: pool.statistics().waiting == 2)
            sim.lose_device(npu)
            assert isinstance(await error_of(lost), aa.DeviceLostError)
        await wait(pool)
        assert [type(error) for error in errors] == [aa.DeviceLostError] * 3
        assert "StreamPool.acquire" in str(errors[0])
        assert check(pool).failed == 3
        sim.restore_device(npu)
        await npu.reset()
        await offered(pool, 1)


async def test_an_error_while_streams_are_made_reaches_all_who_wait(npu: aa.Device, sim: Simulator) -> None:
    """Whatever it is: nobody waits for a stream that nobody makes."""
    errors: list[Any] = []

    async def wait(pool: aa.StreamPool) -> None:
        errors.append(await error_of(pool.acquire().__aenter__()))

    sim.fail_call("aclrtCreateStreamWithConfig", code=507899)
    async with aa.StreamPool(npu, size=4) as pool:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait, pool)
        assert [error.code for error in errors] == [507899] * 3
        assert len(set(map(id, errors))) == 3  # each has one for itself, and with it its own traceback
        await offered(pool, 4)


async def test_an_error_of_the_pool_itself_reaches_those_who_wait(
    npu: aa.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And neither the block nor those who come later."""

    def broken() -> Any:
        raise OSError("no more threads")

    async with aa.StreamPool(npu, size=2) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(npu, "create_stream", broken)
            for _ in range(2):
                with anyio.fail_after(60), pytest.raises(OSError, match="no more threads"):
                    await pool.acquire().__aenter__()
        await offered(pool, 2)
    assert check(pool).failed == 2
