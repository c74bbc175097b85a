# SPDX-License-Identifier: Apache-2.0
"""A failed task finds its own operation, and nobody receives what was made of its output."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator
from runtime.outcomes import AICORE_EXCEPTION, device_without, error_of

pytestmark = pytest.mark.anyio


@pytest.mark.usefixtures("delivery")
async def test_failure_in_the_middle_of_a_stream(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(16, "uint8")
    await stream.memset(buffer, 0)
    sim.fail_task(stream=stream, nth=3, code=AICORE_EXCEPTION)
    with sim.hold(stream):
        operations = [stream.memset(buffer, value) for value in range(6)]
        elsewhere = other.memset(npu.empty(4, "uint8"), 0)
        await elsewhere
    errors = [await error_of(operation) for operation in operations]
    assert errors[:2] == [None, None]
    failed = errors[2]
    assert isinstance(failed, aa.TaskError)
    assert failed.code == AICORE_EXCEPTION
    assert failed.name == "ACL_ERROR_RT_AICORE_EXCEPTION"
    assert "memset #4" in failed.where
    for error in errors[3:]:
        assert isinstance(error, aa.DependencyError)
        assert error.__cause__ is failed
        assert error.code == AICORE_EXCEPTION
    await stream.memset(buffer, 1)  # fresh: somebody has been told
    target = np.zeros(16, "uint8")
    await stream.memcpy(target, buffer)
    assert (target == 1).all()


@pytest.mark.usefixtures("delivery")
async def test_what_is_submitted_before_anybody_was_told_is_not_run(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(16, "uint8")
    await stream.memset(buffer, 0)
    sim.fail_task(stream=stream, code=AICORE_EXCEPTION)
    failed = stream.memset(buffer, 1)
    done = stream.record()  # its wait learns of the failure, and is the first to be told
    error = await error_of(done)
    assert isinstance(error, aa.DependencyError)
    assert isinstance(await error_of(failed), aa.TaskError)
    assert error.__cause__ is failed.exception()


async def test_an_unawaited_failure_surfaces_at_the_next_awaited_operation(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(16, "uint8")
    await stream.memset(buffer, 0)
    sim.fail_task(stream=stream, code=AICORE_EXCEPTION)
    stream.memset(buffer, 1)
    await anyio.to_thread.run_sync(sim.wait_tasks, stream, 3)  # two and the callback of the first
    error = await error_of(stream.memset(buffer, 2))
    assert isinstance(error, aa.DependencyError)
    assert isinstance(error.__cause__, aa.TaskError)
    assert await error_of(stream.memset(buffer, 3)) is None


@pytest.mark.asyncio_only
async def test_a_failure_nobody_awaits_goes_to_the_exception_handler(npu: aa.Device, sim: Simulator) -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reports.append(context))
    async with npu.create_stream() as stream:
        sim.fail_task(stream=stream, code=AICORE_EXCEPTION)
        stream.memset(npu.empty(4, "uint8"), 1)
        stream.memset(npu.empty(4, "uint8"), 2)
    assert len(reports) == 1
    assert reports[0]["exception"].code == AICORE_EXCEPTION
    assert "nobody awaited" in reports[0]["message"]


@pytest.mark.asyncio_only
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
async def test_a_failure_nobody_awaits_on_a_stream_that_is_dropped(npu: aa.Device, sim: Simulator) -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reports.append(context))
    stream = await npu.create_stream()
    sim.fail_task(stream=stream, code=AICORE_EXCEPTION)
    failed = stream.memset(npu.empty(4, "uint8"), 1)
    while not failed.done():
        await anyio.lowlevel.checkpoint()
    del stream, failed
    with pytest.warns(ResourceWarning, match="unclosed"):
        gc.collect()
    assert [report["exception"].code for report in reports] == [AICORE_EXCEPTION]


@pytest.mark.parametrize("anyio_backend", [("trio", {})], ids=["trio"])
async def test_a_failure_nobody_awaits_goes_to_the_unraisable_hook_under_trio(
    npu: aa.Device, sim: Simulator, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)  # takes only what the interpreter makes
    async with npu.create_stream() as stream:
        sim.fail_task(stream=stream)
        stream.memset(npu.empty(4, "uint8"), 1)
    written = capfd.readouterr().err
    assert "an operation that nobody awaited has failed" in written
    assert "TaskError: memset #1" in written


async def test_a_refused_launch_raises_from_the_call(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(16, "uint8")
    await stream.memset(buffer, 0)
    sim.fail_call("aclrtMemsetAsync", code=207001)
    with pytest.raises(aa.OutOfMemoryError) as caught:
        stream.memset(buffer, 1)
    assert caught.value.code == 207001
    await stream.memset(buffer, 2)


async def test_an_event_whose_next_record_is_refused_is_what_it_was(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(16, "uint8")
    await stream.memset(buffer, 0)
    with sim.hold(stream):
        stream.memset(buffer, 1)
        event = stream.record()
        sim.fail_call("aclrtRecordEvent", code=207001)
        with pytest.raises(aa.OutOfMemoryError):
            stream.record(event)
        other.wait(event)
        assert not other.query()
        assert not event.done()
    await event
    await other


async def test_a_refused_launch_from_the_host_queue_fails_its_operation(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(16, "uint8")
    await stream.memset(buffer, 0)
    with sim.hold(stream):
        operations = [stream.memset(buffer, value % 256) for value in range(600)]
        assert stream.queued
        sim.fail_call("aclrtMemsetAsync", nth=10, code=507899)
    errors = [await error_of(operation) for operation in operations]
    own = [error for error in errors if error is not None and not isinstance(error, aa.DependencyError)]
    assert len(own) == 1
    first = errors.index(own[0])
    assert errors[:first] == [None] * first
    assert all(isinstance(error, aa.DependencyError) and error.__cause__ is own[0] for error in errors[first + 1 :])
    assert await error_of(stream.memset(buffer, 1)) is None


async def test_no_memory_fails_the_operations_that_need_it(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    sim.limit_memory(1 << 20)
    large = npu.empty(64 << 20, "uint8")
    error = await error_of(stream.memset(large, 0))
    assert isinstance(error, aa.OutOfMemoryError)
    sim.limit_memory(None)
    assert await error_of(stream.memset(npu.empty(64 << 20, "uint8"), 0)) is None


async def test_a_report_that_never_comes(sim: Simulator, anyio_backend: object) -> None:
    async with aa.open_device(1, backend="sim", report_timeout=0.3) as npu, npu.create_stream() as stream:
        buffer = npu.empty(4, "uint8")
        await stream.memset(buffer, 0)
        sim.drop_callback(device=1, stream=stream)
        with sim.hold(stream):  # or the sweep may find it done before a report is asked for
            operation = stream.memset(buffer, 1)
            operation.add_waiter(lambda _: None)
        error = await error_of(operation)
        assert isinstance(error, aa.ReportLostError)
        assert await error_of(stream.memset(buffer, 2)) is None


async def test_a_lost_device_fails_everything_in_flight(sim: Simulator, anyio_backend: object) -> None:
    async with aa.open_device(1, backend="sim") as npu:
        async with npu.create_stream() as stream:
            buffer = npu.empty(4, "uint8")
            await stream.memset(buffer, 0)
            with sim.hold(stream):
                operations = [stream.memset(buffer, value % 256) for value in range(600)]
                sim.lose_device(1)
                errors = [await error_of(operation) for operation in operations]
            assert all(isinstance(error, aa.DeviceLostError) for error in errors)
        sim.restore_device(1)
    async with aa.open_device(1, backend="sim") as npu, npu.create_stream() as stream:
        await stream.memset(npu.empty(4, "uint8"), 0)  # closing has reset it by force


@pytest.mark.parametrize("missing", [("aclrtGetThreadLastTaskId",), ("aclrtGetThreadLastTaskId", "aclrtStreamGetId")])
async def test_older_libraries_narrow_a_failure_to_a_group(
    missing: tuple[str, ...], sim: Simulator, anyio_backend: object
) -> None:
    async with await device_without(*missing) as npu, npu.create_stream() as stream:
        buffer = npu.empty(4, "uint8")
        await stream.memset(buffer, 0)
        sim.fail_task(device=1, stream=stream, code=AICORE_EXCEPTION)
        with sim.hold(stream):
            first, second = stream.memset(buffer, 1), stream.memset(buffer, 2)
        errors = [await error_of(first), await error_of(second)]
        assert all(error is not None and getattr(error, "code", 0) == AICORE_EXCEPTION for error in errors)
        assert await error_of(stream.memset(buffer, 3)) is None


async def test_a_device_closes_although_what_belongs_to_it_fails(sim: Simulator, anyio_backend: object) -> None:
    npu = await aa.open_device(1, backend="sim")
    stream = await npu.create_stream()
    await stream.memset(npu.empty(4, "uint8"), 0)
    resets = sim.calls("aclrtResetDevice")
    sim.fail_call("aclrtDestroyStream", code=507899)
    with pytest.raises(aa.AclError, match="507899"):
        await npu.close()
    assert sim.calls("aclrtResetDevice") == resets + 1
    await npu.close()
    sim.reset()


async def test_two_closes_at_once(npu: aa.Device, sim: Simulator) -> None:
    stream = await npu.create_stream()
    buffer = npu.empty(4, "uint8")
    await stream.memset(buffer, 0)
    destroyed = sim.calls("aclrtDestroyStream")
    sim.hold(stream)
    stream.memset(buffer, 1)
    with anyio.move_on_after(0):
        await stream.close()
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(stream.close)
        await anyio.lowlevel.checkpoint()
        sim.release(stream)
    await npu.close()
    assert sim.calls("aclrtDestroyStream") == destroyed + 1


async def test_a_model_call_without_memory_says_so(npu: aa.Device, sim: Simulator) -> None:
    text = b'[[inputs]]\nname = "x"\nshape = [4000000]\n[[outputs]]\nname = "y"\nshape = [4000000]\n'
    async with await npu.load_model(text) as model:
        sim.limit_memory(1 << 20)
        with pytest.raises(aa.OutOfMemoryError):
            await model(np.zeros(4000000, "float32"))
        sim.limit_memory(None)
        await model(np.zeros(4000000, "float32"))


@pytest.mark.usefixtures("delivery")
@pytest.mark.parametrize("runs", [1, 2])
async def test_a_model_whose_exception_names_a_stream_of_the_library(
    runs: int, npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    text = b'[[inputs]]\nname = "x"\nshape = [4]\n[[outputs]]\nname = "y"\nshape = [4]\n'
    sim.set_exception_stream("inner")
    async with await npu.load_model(text) as model:
        x, y = npu.empty(4), npu.empty(4)
        await stream.memset(x, 0)
        await other.memset(npu.empty(4), 0)
        sim.fail_task(stream=stream, kind="execute", nth=runs, code=AICORE_EXCEPTION)
        with sim.hold(stream):
            before = stream.memset(x, 0)
            executions = [stream.execute(model, [x], [y]) for _ in range(runs)]
            behind = stream.memcpy(np.zeros(4, "float32"), y)
            elsewhere = other.memset(npu.empty(4), 0)
        assert await error_of(before) is None
        errors = [await error_of(execution) for execution in executions]
        if runs == 1:
            assert type(errors[0]) is aa.TaskError
        else:  # which of them, nobody can tell
            assert {type(error) for error in errors} == {aa.DependencyError}
        assert {error.code for error in errors if isinstance(error, aa.AclError)} == {AICORE_EXCEPTION}
        assert isinstance(await error_of(behind), aa.DependencyError)
        assert await error_of(elsewhere) is None
        assert await error_of(stream.execute(model, [x], [y])) is None


async def test_failures_of_another_library_are_not_ours(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    acl = ctypes.CDLL(aa.backend_info("sim").path)
    foreign = ctypes.c_void_p()

    def in_thread() -> None:
        assert acl.aclrtSetCurrentContext(ctypes.c_void_p(npu.context)) == 0
        assert acl.aclrtCreateStream(ctypes.byref(foreign)) == 0
        sim.fail_task(stream=foreign.value, code=AICORE_EXCEPTION)
        memory = ctypes.c_void_p()
        assert acl.aclrtMalloc(ctypes.byref(memory), ctypes.c_size_t(64), 0) == 0
        acl.aclrtMemsetAsync(memory, ctypes.c_size_t(64), 0, ctypes.c_size_t(64), foreign)
        assert acl.aclrtSynchronizeStream(foreign) == AICORE_EXCEPTION
        assert acl.aclrtFree(memory) == 0
        assert acl.aclrtDestroyStream(foreign) == 0

    buffer = npu.empty(4, "uint8")
    await stream.memset(buffer, 0)
    with sim.hold(stream):
        operation = stream.memset(buffer, 1)
        await anyio.to_thread.run_sync(in_thread)
    assert await error_of(operation) is None
