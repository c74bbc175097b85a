# SPDX-License-Identifier: Apache-2.0
"""In debug mode an error says where its operation was submitted."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend import _debug
from aioascend.testing import Simulator

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("debugging")]

KERNEL_FAULT = 507015


def submit_first(stream: aa.Stream, buffer: aa.DeviceBuffer) -> aa.Operation:
    return stream.memset(buffer, 1)


def submit_second(stream: aa.Stream, buffer: aa.DeviceBuffer) -> aa.Operation:
    return stream.memset(buffer, 2)


def printed(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


async def test_an_error_and_what_ran_behind_it(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(8, "uint8")
    await stream.memset(buffer, 0)
    sim.fail_task(stream=stream, code=KERNEL_FAULT)
    with sim.hold(stream):
        first, second = submit_first(stream, buffer), submit_second(stream, buffer)
    with pytest.raises(aa.DependencyError) as behind:
        await second
    (note,) = notes(behind.value)
    assert note.startswith("submitted at\n")
    assert "return stream.memset(buffer, 2)" in note
    assert "in test_an_error_and_what_ran_behind_it" in note
    cause = behind.value.__cause__
    assert cause is not None
    assert "return stream.memset(buffer, 1)" in notes(cause)[0]
    with pytest.raises(aa.TaskError) as failed:
        await first
    assert failed.value is cause
    assert len(notes(cause)) == 1
    if sys.version_info >= (3, 11):
        assert printed(behind.value).count("submitted at") == 2
    assert notes(pickle.loads(pickle.dumps(cause))) == notes(cause)  # noqa: S301


@pytest.mark.asyncio_only
async def test_a_failure_nobody_awaits(npu: aa.Device, sim: Simulator) -> None:
    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: contexts.append(context))
    async with npu.create_stream() as stream:
        sim.fail_task(stream=stream, code=KERNEL_FAULT)
        submit_first(stream, npu.empty(8, "uint8"))
    (context,) = contexts
    assert context["source_traceback"][-1].name == "submit_first"
    assert "in submit_first" in notes(context["exception"])[0]


@pytest.mark.asyncio_only
async def test_the_loop_prints_where_it_was_submitted(
    npu: aa.Device, sim: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.get_running_loop().set_exception_handler(None)
    async with npu.create_stream() as stream:
        sim.fail_task(stream=stream, code=KERNEL_FAULT)
        submit_first(stream, npu.empty(8, "uint8"))
    assert "Object created at (most recent call last):" in caplog.text
    assert "in submit_first" in caplog.text


async def test_a_failure_nobody_awaits_under_any_loop(
    npu: aa.Device, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[BaseException] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_value))
    stream = await npu.create_stream()
    sim.fail_task(stream=stream, code=KERNEL_FAULT)
    submit_first(stream, npu.empty(8, "uint8"))
    with contextlib.suppress(RuntimeError):  # trio has no exception handler
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
    await stream.close()
    (error,) = told
    assert "in submit_first" in notes(error)[0]


async def test_a_failure_that_crosses_streams(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    """The other stream is told first, by an operation of its own."""
    buffer = npu.empty(8, "uint8")
    await stream.memset(buffer, 0)
    sim.fail_task(stream=stream, code=KERNEL_FAULT)
    with sim.hold(stream):
        submit_first(stream, buffer)
        other.wait(stream.record())
        last = submit_second(other, npu.empty(8, "uint8"))
    with pytest.raises(aa.DependencyError) as behind:
        await last
    assert "in submit_second" in notes(behind.value)[0]
    cause = behind.value.__cause__
    assert cause is not None
    assert "in submit_first" in notes(cause)[0]


async def test_the_place_outlives_the_error(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(8, "uint8")
    await stream.memset(buffer, 0)
    sim.fail_task(stream=stream, code=KERNEL_FAULT)
    with sim.hold(stream):
        first = submit_first(stream, buffer)
        event = stream.record()
    with pytest.raises(aa.TaskError):
        await first
    await stream.memset(buffer, 3)
    del first
    with pytest.raises(aa.DependencyError) as behind:
        other.wait(event)  # the same failure, told once more
    cause = behind.value.__cause__
    assert cause is not None
    assert "in submit_first" in notes(cause)[0]


async def test_what_was_refused_when_it_was_issued(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    sim.fail_call("aclrtMemsetAsync", code=KERNEL_FAULT)
    sim.set_call_latency("aclrtMalloc", 0.01)
    operation = submit_first(stream, npu.empty(3 << 20, "uint8"))  # waits on the host for its memory
    with pytest.raises(aa.AclError, match="It was not started") as refused:
        await operation
    assert "in submit_first" in notes(refused.value)[0]
    await stream.memset(npu.empty(8, "uint8"), 0)


@pytest.mark.parametrize("shape", ["[2]", "[-1]"], ids=["static", "dynamic"])
async def test_a_call_of_a_model_that_is_a_task_of_its_own(npu: aa.Device, sim: Simulator, shape: str) -> None:
    """The place is where it was called, which is no longer on the stack when it runs."""
    text = f'[[inputs]]\nname = "x"\nshape = {shape}\n[[outputs]]\nname = "y"\nshape = [2]\nfill = "index"\n'
    array, told = np.zeros(2, "float32"), []
    async with npu.load_model(text.encode()) as model:
        await model(array)
        for kind in ("memcpy_h2d", "execute", "memcpy_d2h"):
            sim.fail_task(stream=model.stream, kind=kind)
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(model, array)
            except BaseException as error:
                told += notes(error.exceptions[0])  # type: ignore[attr-defined]
    assert len(told) == 3
    for note in told:
        assert "group.start_soon(model, array)" in note
        assert str(Path(aa.__file__).parent) not in note


@pytest.mark.asyncio_only
async def test_a_first_call_of_a_dynamic_model_that_is_a_task_of_its_own(npu: aa.Device, sim: Simulator) -> None:
    text = b'[[inputs]]\nname = "x"\nshape = [-1]\n[[outputs]]\nname = "y"\nshape = [2]\nfill = "index"\n'
    async with npu.load_model(text) as model:
        await model.stream
        sim.fail_task(stream=model.stream, kind="memcpy_h2d")
        (error,) = await asyncio.gather(model(np.zeros(2, "float32")), return_exceptions=True)
        assert "await asyncio.gather(model(np.zeros" in notes(error)[0]


@pytest.mark.asyncio_only
async def test_a_stack_ends_before_what_looks_at_it() -> None:
    stacks: list[Any] = []
    looked = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(stacks.extend, itertools.starmap(_debug.here, [()]))
    asyncio.get_running_loop().call_soon(looked.set_result, None)
    await looked
    assert [frame.filename for frame in stacks[0] if "aioascend/_debug/" in frame.filename] == []
    assert len(stacks[0]) > 0


async def test_a_report_that_is_lost(sim: Simulator) -> None:
    async with aa.open_device(1, backend="sim", report_timeout=0.1) as npu, npu.create_stream() as stream:
        buffer = npu.empty(8, "uint8")
        await stream.memset(buffer, 0)
        sim.drop_callback(stream=stream)
        with sim.hold(stream):
            operation = submit_first(stream, buffer)
            with anyio.move_on_after(0):
                await stream  # asks for the report
        with pytest.raises(aa.ReportLostError) as lost:
            await operation
        assert "in submit_first" in notes(lost.value)[0]


async def test_an_event_says_where_it_was_recorded(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(8, "uint8")
    await stream.memset(buffer, 0)
    sim.fail_task(stream=stream, code=KERNEL_FAULT)
    with sim.hold(stream):
        submit_first(stream, buffer)
        event = stream.record()
    with pytest.raises(aa.DependencyError) as behind:
        await event
    assert "event = stream.record()" in notes(behind.value)[0]


async def test_submitting_behind_a_failure_that_nobody_was_told_of(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(8, "uint8")
    await stream.memset(buffer, 0)
    sim.fail_task(stream=stream, code=KERNEL_FAULT)
    submit_first(stream, buffer)
    await anyio.to_thread.run_sync(sim.wait_tasks, stream, 3)
    with pytest.raises(aa.DependencyError) as behind:
        await submit_second(stream, buffer)
    assert "in submit_second" in notes(behind.value)[0]
    assert "in submit_first" in notes(behind.value.__cause__)[0]  # type: ignore[arg-type]
