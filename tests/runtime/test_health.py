# SPDX-License-Identifier: Apache-2.0
"""Health, quarantine and the forced reset of a device."""

from __future__ import annotations

import ctypes
import pickle
import traceback

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator
from runtime.outcomes import device_without, error_of

pytestmark = pytest.mark.anyio

MODEL = b'[[inputs]]\nname = "x"\nshape = [4]\n[[outputs]]\nname = "y"\nshape = [4]\n'


async def test_a_device_that_works(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(4, "uint8")
    await stream.memset(buffer, 0)
    health = npu.health()
    assert health in aa.health() or [one.device for one in aa.health()] == [npu.index]
    assert (health.device, health.state, health.error, health.failed_for) == (0, "ok", None, 0)
    assert (health.in_flight, health.queued, health.orphaned_streams) == (0, 0, 0)
    with sim.hold(stream):
        operations = [stream.memset(buffer, 1) for _ in range(600)]
        busy = npu.health()
        assert busy.in_flight + busy.queued == 600
        assert busy.since_progress >= 0
        later = npu.health()
        assert later.since_progress > busy.since_progress
    await operations[-1]


async def test_health_of_a_closed_device(sim: Simulator, anyio_backend: object) -> None:
    npu = await aa.open_device(1, backend="sim")
    await npu.close()
    assert npu.health().state == "closed"
    assert 1 not in [one.device for one in aa.health()]
    with pytest.raises(aa.RuntimeClosedError):
        await npu.reset()


async def test_a_code_that_says_gone_quarantines(sim: Simulator, anyio_backend: object) -> None:
    async with aa.open_device(1, backend="sim") as npu, npu.create_stream() as stream:
        buffer = npu.empty(4, "uint8")
        await stream.memset(buffer, 0)
        sim.fail_task(device=1, stream=stream, code=507001)
        error = await error_of(stream.memset(buffer, 1))
        assert isinstance(error, aa.AclError)
        assert (error.code, error.retry) == (507001, "gone")
        launches = sim.calls("aclrtMemsetAsync")
        for _ in range(20):
            with pytest.raises(aa.DeviceLostError) as caught:
                stream.memset(buffer, 2)
        assert sim.calls("aclrtMemsetAsync") == launches  # nothing more is sent there
        assert caught.value.code == 507001
        copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
        assert (copy.retry, copy.hint, str(copy)) == ("gone", caught.value.hint, str(caught.value))
        failed = npu.health()
        assert failed.state == "failed"
        assert failed.error is not None
        assert failed.error.code == 507001
        await npu.reset()
        async with npu.create_stream() as again:
            await again.memset(npu.empty(4, "uint8"), 0)


async def test_a_reset_of_a_device_that_hangs(sim: Simulator, anyio_backend: object) -> None:
    """Two users, models, buffers, host queues and all: everybody is told, and both go on."""
    async with aa.open_device(1, backend="sim") as npu, aa.open_device(1, backend="sim") as second:
        streams = [await npu.create_stream(), await second.create_stream()]
        model = await npu.load_model(MODEL)
        pinned = await npu.pinned(4, "uint8")
        buffer = npu.empty(4, "uint8")
        for stream in streams:
            await stream.memset(buffer, 0)
        event = streams[0].record()
        await event
        sim.hold(device=1)
        operations = [stream.memset(buffer, 1) for stream in streams for _ in range(600)]
        copy = streams[0].memcpy(pinned, buffer)
        call = streams[0].execute(model, [npu.empty(4)], [npu.empty(4)])
        await npu.reset()
        sim.release(device=1)
        errors = [await error_of(operation) for operation in [*operations, copy, call]]
        assert {type(error) for error in errors} == {aa.DeviceLostError}
        assert {error.code for error in errors if isinstance(error, aa.AclError)} == {107022}
        pinned.array[:] = 7  # memory of the host is not the device's to lose
        assert event.done()
        with pytest.raises(aa.RuntimeClosedError):
            await model(np.zeros(4, "float32"))
        await model.close()
        for device in (npu, second):
            assert device.health().state == "ok"
            async with device.create_stream() as stream, await device.load_model(MODEL) as again:
                target = device.empty(4, "uint8")
                await stream.memcpy(target, pinned)
                result = np.zeros(4, "uint8")
                await stream.memcpy(result, target)
                assert (result == 7).all()
                await again(np.zeros(4, "float32"))
        for stream in streams:
            await stream.close()


async def test_a_device_that_does_not_come_back_can_be_reset_later(sim: Simulator, anyio_backend: object) -> None:
    async with aa.open_device(1, backend="sim") as npu:
        stream = await npu.create_stream()
        buffer = npu.empty(4, "uint8")
        await stream.memset(buffer, 0)
        sim.lose_device(1)
        assert await error_of(stream.join()) is None
        for _ in range(2):
            with pytest.raises(aa.DeviceLostError):
                await npu.reset()
            assert npu.health().state == "failed"
            with pytest.raises(aa.DeviceLostError):
                await npu.create_stream()
        sim.restore_device(1)
        await npu.reset()
        async with npu.create_stream() as again:
            await again.memset(npu.empty(4, "uint8"), 0)


async def test_a_device_that_comes_back_after_it_was_closed(sim: Simulator, anyio_backend: object) -> None:
    async with aa.open_device(1, backend="sim") as npu, npu.create_stream() as stream:
        buffer = npu.empty(4, "uint8")
        await stream.memset(buffer, 0)
        sim.lose_device(1)
        with pytest.raises(aa.DeviceLostError):
            stream.memset(buffer, 0)
    with pytest.raises(aa.DeviceLostError):
        await aa.open_device(1, backend="sim")
    sim.restore_device(1)
    async with aa.open_device(1, backend="sim") as npu, npu.create_stream() as stream:
        await stream.memset(npu.empty(4, "uint8"), 0)


async def test_a_stream_that_could_not_be_created_can_be_looked_at(npu: aa.Device, sim: Simulator) -> None:
    sim.fail_call("aclrtCreateStreamWithConfig", code=207008)
    with pytest.raises(aa.ResourceError) as caught:
        await npu.create_stream()
    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert "Stream" in "".join(frames.format())


async def test_a_device_that_does_not_come_back_at_the_first_reset(sim: Simulator, anyio_backend: object) -> None:
    async with aa.open_device(1, backend="sim") as npu:
        stream, model = await npu.create_stream(), await npu.load_model(MODEL)
        x = np.ones(4, "float32")
        await model(x)
        sim.lose_device(1)
        for _ in range(2):
            error = await error_of(npu.reset())
            assert isinstance(error, aa.DeviceLostError)
            assert error.code == 507010  # and not that of a reset that was
            assert npu.health().state == "failed"
            assert isinstance(await error_of(model(x)), aa.DeviceLostError)
            with pytest.raises(aa.DeviceLostError):
                stream.memset(npu.empty(4, "uint8"), 0)
        sim.restore_device(1)
        await npu.reset()
        with pytest.raises(aa.RuntimeClosedError, match="its device was closed or reset"):
            await model(x)
        with pytest.raises(aa.RuntimeClosedError, match="its device was closed or reset"):
            stream.memset(npu.empty(4, "uint8"), 0)
        async with await npu.load_model(MODEL) as model:
            await model(x)


async def test_what_was_in_flight_when_somebody_reset_the_device(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(4, "uint8")
    await stream.memset(buffer, 0)
    sim.hold(stream)
    operation = stream.memset(buffer, 1)
    await npu.reset()
    error = await error_of(operation)
    assert isinstance(error, aa.DeviceLostError)
    assert npu.health().state == "ok"
    assert "It was reset; make streams, buffers and models again." in str(error)  # and not: reset it


async def test_resets_at_once_are_one(sim: Simulator, anyio_backend: object) -> None:
    async with aa.open_device(1, backend="sim") as npu:
        before = sim.calls("aclrtResetDeviceForce")
        sim.set_call_latency("aclrtResetDeviceForce", 0.2)
        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(npu.reset)
        assert sim.calls("aclrtResetDeviceForce") == before + 1
        async with npu.create_stream() as stream:
            await stream.memset(npu.empty(4, "uint8"), 0)


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "used"])
async def test_what_lingers_does_not_reset_a_device_that_was_opened_again(
    sim: Simulator, anyio_backend: object, reset: bool
) -> None:
    """A device that was left with work in flight closes in the background; what it cannot stop is not worth a reset."""
    npu = await aa.open_device(1, backend="sim")
    streams = [await npu.create_stream() for _ in range(2)]
    buffer = npu.empty(4, "uint8")
    for stream in streams:
        await stream.memset(buffer, 0)
        sim.hold(stream)
    operations = [stream.memset(buffer, 1) for stream in streams]
    for function in ("aclrtStreamAbort", "aclrtDestroyStreamForce"):
        sim.fail_call(function, code=207000)
    assert not await streams[0].abort()
    assert await error_of(operations[0]) is not None
    with anyio.move_on_after(0):
        await streams[1].close()
    threads = aa.debug.counters().threads
    await npu.close()
    async with aa.open_device(1, backend="sim") as npu:
        before = sim.calls("aclrtResetDeviceForce")
        if reset:
            await npu.reset()
            assert isinstance(await error_of(operations[1]), aa.DeviceLostError)
        else:
            sim.release(streams[1])
            await operations[1]
        while aa.debug.counters().threads > threads:
            await anyio.lowlevel.checkpoint()
        assert sim.calls("aclrtResetDeviceForce") == before + reset
        async with npu.create_stream() as stream:
            await stream.memset(npu.empty(4, "uint8"), 0)
        if not reset:
            sim.release(streams[0])
    before = sim.calls("aclrtResetDeviceForce")
    async with aa.open_device(1, backend="sim"):
        pass
    assert sim.calls("aclrtResetDeviceForce") == before  # what was left has gone with the last who had it open


async def test_a_call_under_way_when_the_device_is_reset(sim: Simulator, anyio_backend: object) -> None:
    async with aa.open_device(1, backend="sim") as npu:
        sim.set_call_latency("aclrtCreateStreamWithConfig", 0.2)
        calls = sim.calls("aclrtCreateStreamWithConfig")
        errors: list[BaseException | None] = []

        async def create() -> None:
            errors.append(await error_of(npu.create_stream()))

        async with anyio.create_task_group() as group:
            group.start_soon(create)
            while sim.calls("aclrtCreateStreamWithConfig") == calls:
                await anyio.lowlevel.checkpoint()
            await npu.reset()
        assert isinstance(errors[0], (aa.DeviceLostError, aa.RuntimeClosedError))


async def test_closing_after_another_library_has_reset_the_device(sim: Simulator, anyio_backend: object) -> None:
    acl = ctypes.CDLL(aa.backend_info("sim").path)
    async with aa.open_device(1, backend="sim") as npu, npu.create_stream() as stream:
        await stream.memset(npu.empty(4, "uint8"), 0)
        assert await anyio.to_thread.run_sync(acl.aclrtResetDeviceForce, 1) == 0
    async with aa.open_device(1, backend="sim") as npu, npu.create_stream() as stream:
        await stream.memset(npu.empty(4, "uint8"), 0)


async def test_a_single_refusal_is_no_loss(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(4, "uint8")
    await stream.memset(buffer, 0)
    sim.fail_call("aclrtMemsetAsync", code=507899)
    with pytest.raises(aa.DeviceError):
        stream.memset(buffer, 1)
    with sim.hold(stream):
        operation = stream.memset(buffer, 2)
        sim.fail_call("aclrtStreamQuery", code=507899)  # of the sweep
        queries = sim.calls("aclrtStreamQuery")
        while sim.calls("aclrtStreamQuery") < queries + 3:
            await anyio.lowlevel.checkpoint()
    await operation
    assert npu.health().state == "ok"


async def test_a_library_that_cannot_reset_by_force(sim: Simulator, anyio_backend: object) -> None:
    async with await device_without("aclrtResetDeviceForce") as npu, npu.create_stream() as stream:
        with pytest.raises(aa.UnsupportedError):
            await npu.reset()
        await stream.memset(npu.empty(4, "uint8"), 0)
