# SPDX-License-Identifier: Apache-2.0
"""Aborting a stream: what was on it, what waited for it, and what both are good for afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator
from runtime.outcomes import device_without, error_of

pytestmark = pytest.mark.anyio

MODEL = b'[[inputs]]\nname = "x"\nshape = [4]\n[[outputs]]\nname = "y"\nshape = [4]\nfill = "copy"\n'


async def held_stream(stream: aa.Stream, sim: Simulator, buffer: aa.DeviceBuffer) -> None:
    await stream.memset(buffer, 0)
    sim.hold(stream)


async def test_everything_on_the_stream_is_discarded_and_it_goes_on(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(16, "uint8")
    await held_stream(stream, sim, buffer)
    operations = [stream.memset(buffer, value % 256) for value in range(700)]
    assert stream.queued
    assert await stream.abort()
    sim.release(stream)
    errors = [await error_of(operation) for operation in operations]
    assert {type(error) for error in errors} == {aa.TaskError}
    assert {error.code for error in errors if isinstance(error, aa.AclError)} == {107023}
    assert errors[0] is not None
    assert "memset #2" in str(errors[0])
    target = np.ones(16, "uint8")
    await stream.memcpy(target, buffer)
    assert (target == 0).all()


async def test_who_knows_nothing_of_an_abort_is_told(npu: aa.Device, sim: Simulator) -> None:
    """Two users of one stream: the copy of the one must not go on with what the abort of the other has discarded."""
    buffer = npu.empty(16, "uint8")
    async with npu.create_stream() as stream:
        await held_stream(stream, sim, buffer)
        stream.memset(buffer, 1)
        assert await stream.abort()
        sim.release(stream)
        error = await error_of(stream.memcpy(np.zeros(16, "uint8"), buffer))
        assert isinstance(error, aa.DependencyError)
        assert error.code == 107023
        await stream.memset(buffer, 2)


async def test_what_was_cancelled_is_nobodys_business(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    """When nobody goes by what an abort discards, what is submitted next is fresh."""
    async with await npu.load_model(MODEL) as model:
        x = np.ones(4, "float32")
        await model(x)
        sim.hold(model.stream)
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(model, x)
            while model.stream.in_flight < 15:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert await model.stream.abort()
        sim.release(model.stream)
        np.testing.assert_array_equal(await model(x), x)


async def test_a_wait_for_an_event_of_a_stream_that_is_being_aborted(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(16, "uint8")
    await other.memset(buffer, 0)
    sim.set_call_latency("aclrtStreamAbort", 0.005)
    for _ in range(50):
        await held_stream(stream, sim, buffer)
        first = stream.memset(buffer, 7)
        event = stream.record()
        target = np.zeros(16, "uint8")

        async def use(event: aa.Event = event, target: np.ndarray[Any, Any] = target) -> None:
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            other.wait(event)
            await other.memcpy(target, buffer)

        async with anyio.create_task_group() as group:
            group.start_soon(stream.abort)
            assert await error_of(use()) is not None  # never a copy of what is not there
        sim.release(stream)
        assert await error_of(first) is not None


async def test_streams_that_wait_for_it_are_aborted_too(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(16, "uint8")
    async with npu.create_stream() as third, npu.create_stream() as bystander:
        for each in (stream, other, third, bystander):
            await each.memset(buffer, 0)
        sim.hold(stream)
        first = stream.memset(buffer, 1)
        event = stream.record()
        other.wait(event)
        second = other.memset(buffer, 2)
        third.wait(other.record())
        last = third.memset(buffer, 3)
        assert await stream.abort()
        sim.release(stream)
        own = await error_of(first)
        assert isinstance(own, aa.TaskError)
        for operation in (second, last):
            error = await error_of(operation)
            assert isinstance(error, aa.DependencyError)
            assert error.code == 107023
            assert isinstance(error.__cause__, aa.TaskError)
        with pytest.raises(aa.DependencyError):
            bystander.wait(event)
        for each in (stream, other, third, bystander):
            await each.memset(buffer, 4)


async def test_a_stream_whose_wait_is_over_is_left_alone(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(16, "uint8")
    await other.memset(buffer, 0)
    other.wait(stream.record())
    behind = other.memset(buffer, 1)  # nobody has asked for a report, so the wait is not known to be over
    await anyio.to_thread.run_sync(sim.wait_tasks, other, 3)
    sim.hold(stream)
    discarded = stream.memset(buffer, 2)
    assert await stream.abort()
    sim.release(stream)
    assert await error_of(behind) is None
    assert isinstance(await error_of(discarded), aa.TaskError)


async def test_what_is_submitted_while_others_are_aborted_with_it_goes_on(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    """The stream goes on as soon as it has been aborted; those that wait for it are aborted after that."""
    buffer = npu.empty(16, "uint8")
    async with npu.create_stream() as third:
        for each in (other, third):
            await each.memset(buffer, 0)
        await held_stream(stream, sim, buffer)
        discarded = stream.memset(buffer, 1)
        other.wait(stream.record())
        reached = other.memset(buffer, 2)
        sim.set_call_latency("aclrtStreamAbort", 0.1)
        calls = sim.calls("aclrtStreamAbort")
        async with anyio.create_task_group() as group:
            group.start_soon(stream.abort)
            assert isinstance(await error_of(discarded), aa.TaskError)
            while sim.calls("aclrtStreamAbort") < calls + 2:  # of the other one
                await anyio.lowlevel.checkpoint()
            stream.memset(buffer, 3)
            third.wait(stream.record())
            fresh = third.memset(buffer, 4)
        assert sim.calls("aclrtStreamAbort") == calls + 2
        sim.release(stream)
        assert await error_of(fresh) is None
        assert isinstance(await error_of(reached), aa.DependencyError)


async def test_an_unawaited_dependent_is_not_lost(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(16, "uint8")
    await other.memset(buffer, 0)
    await held_stream(stream, sim, buffer)
    discarded = stream.memset(buffer, 1)
    other.wait(stream.record())
    other.memset(buffer, 2)
    assert await stream.abort()
    sim.release(stream)
    assert isinstance(await error_of(discarded), aa.TaskError)
    assert isinstance(await error_of(other.memset(buffer, 3)), aa.DependencyError)
    await other.memset(buffer, 4)


async def test_what_has_failed_before_keeps_its_error(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(16, "uint8")
    await held_stream(stream, sim, buffer)
    sim.fail_task(stream=stream, nth=2, code=507015)
    operations = [stream.memset(buffer, value) for value in range(4)]
    sim.step(stream, 3)
    await anyio.to_thread.run_sync(sim.wait_tasks, stream, 5)  # two before, and three
    with sim.hold_reports():
        assert await stream.abort()
    sim.release(stream)
    errors = [await error_of(operation) for operation in operations]
    assert errors[0] is None  # a task that failed had its turn, so this one is done
    assert isinstance(errors[1], aa.TaskError)
    assert errors[1].code == 507015
    assert [type(error) for error in errors[2:]] == [aa.DependencyError] * 2


@pytest.mark.parametrize("lacking", [("aclrtStreamAbort",), ("aclrtStreamAbort", "aclrtDestroyStreamForce")])
@pytest.mark.parametrize("lacks", ["library", "chip"])
async def test_a_device_that_cannot_abort(
    lacking: tuple[str, ...], lacks: str, sim: Simulator, anyio_backend: object
) -> None:
    if lacks == "chip":
        for function in lacking:
            sim.fail_call(function, code=207000)
    async with await device_without(*lacking if lacks == "library" else ()) as npu, npu.create_stream() as other:
        stream = await npu.create_stream()
        buffer = npu.empty(16, "uint8")
        await other.memset(buffer, 0)
        await held_stream(stream, sim, buffer)
        abandoned = stream.memset(buffer, 1)
        other.wait(stream.record())
        dependent = other.memset(buffer, 2)
        assert not await stream.abort()
        assert isinstance(await error_of(abandoned), aa.TaskError)
        assert isinstance(await error_of(dependent), aa.DependencyError)
        with pytest.raises(aa.RuntimeClosedError, match="given up"):
            stream.memset(buffer, 3)
        assert npu.health().orphaned_streams >= 1
        await stream.close()
        async with npu.create_stream() as another:
            await another.memset(buffer, 4)


async def test_abort_on_an_idle_a_closed_and_a_wrapped_stream(npu: aa.Device, sim: Simulator) -> None:
    buffer = npu.empty(16, "uint8")
    stream = await npu.create_stream()
    assert await stream.abort()
    await stream.memset(buffer, 0)
    wrapped = await npu.wrap_stream(stream.handle)
    sim.hold(stream)
    operation = wrapped.memset(buffer, 1)
    assert not await wrapped.abort()
    assert isinstance(await error_of(operation), aa.TaskError)
    sim.release(stream)
    await stream.memset(buffer, 2)  # it is its owner's, and goes on
    await wrapped.close()
    await stream.close()
    with pytest.raises(aa.RuntimeClosedError):
        await stream.abort()


async def test_submits_and_aborts_at_once(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(16, "uint8")
    sim.set_call_latency("aclrtStreamAbort", 0.02)
    outcomes: list[BaseException | None] = []

    async def attempt(value: int) -> None:
        await stream.memset(buffer, value)  # while the abort runs, the call itself raises

    async def submit() -> None:
        outcomes.extend([await error_of(attempt(value % 256)) for value in range(300)])

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(submit)
        for _ in range(5):
            assert await stream.abort()
    assert len(outcomes) == 1200
    assert {type(outcome) for outcome in outcomes} <= {type(None), aa.TaskError, aa.DependencyError}
    await stream.memset(buffer, 1)


async def test_what_an_abort_discards_is_not_taken_for_done(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    """While the call goes on the stream may be idle already, as the sweep sees, which comes every 100 ms."""
    buffer = npu.empty(16, "uint8")
    await held_stream(stream, sim, buffer)
    for _ in range(100):
        operation = stream.memset(buffer, 1)  # nobody asks for its report
        assert await stream.abort()
        assert isinstance(await error_of(operation), aa.TaskError)
    sim.release(stream)


class InterruptedLoop(asyncio.SelectorEventLoop):
    """Does something when the runtime registers with it, which is in the midst of the first submit."""

    meanwhile: Callable[[], object]

    def add_reader(self, *args: Any) -> None:
        self.meanwhile()
        super().add_reader(*args)


@pytest.mark.asyncio_only
async def test_a_wait_is_submitted_while_its_record_is_discarded(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    """Between a look at the event and the wait for it, which would be for ever."""
    buffer, target = npu.empty(16, "uint8"), np.zeros(16, "uint8")
    await other.memset(buffer, 0)
    await held_stream(stream, sim, buffer)
    discarded = stream.memset(buffer, 1)
    event = stream.record()
    here = asyncio.get_running_loop()

    async def use() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, InterruptedLoop)
        loop.meanwhile = lambda: asyncio.run_coroutine_threadsafe(stream.abort(), here).result(60)
        error = await error_of(wait_and_copy())
        assert isinstance(error, aa.DependencyError)
        assert error.code == 107023

    async def wait_and_copy() -> None:
        other.wait(event)
        await other.memcpy(target, buffer)

    def in_a_thread() -> None:
        loop = InterruptedLoop()
        try:
            loop.meanwhile = lambda: None  # asyncio reads from a pipe of its own
            loop.run_until_complete(use())
        finally:
            loop.close()

    await anyio.to_thread.run_sync(in_a_thread)
    sim.release(stream)
    assert isinstance(await error_of(discarded), aa.TaskError)
    await other.memset(buffer, 2)


async def test_a_record_that_is_being_launched_says_nothing_of_what_is_discarded(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    """The worker is in the midst of it, and is refused; the event was never recorded, which looks like a done one."""
    buffer, target = npu.empty(16, "uint8"), np.zeros(16, "uint8")
    async with npu.create_stream() as third:
        for each in (stream, other, third):
            await each.memset(buffer, 0)
        sim.set_queue_depth(4)
        sim.set_call_latency("aclrtMalloc", 0.3)  # or what needs memory would be launched from here, and block
        with sim.hold(third):
            stream.wait(third.record())
            discarded = [stream.memset(buffer, 1) for _ in range(2)]
            stream.memset(npu.empty(3 << 20, "uint8"), 1)  # waits for its memory, so the worker launches what follows
            event = stream.record()
            other.wait(event)
            behind = other.memcpy(target, buffer)
            await anyio.to_thread.run_sync(sim.wait_blocked, stream)
            assert await stream.abort()
        sim.set_queue_depth(None)
        assert [type(await error_of(operation)) for operation in discarded] == [aa.TaskError] * 2
        assert isinstance(await error_of(event), aa.TaskError)
        assert isinstance(await error_of(behind), aa.DependencyError)


async def test_a_stream_that_was_given_up_with_another_one_is_closed(sim: Simulator, anyio_backend: object) -> None:
    """Where the device cannot abort, and it waits for the one that was aborted."""
    async with await device_without("aclrtStreamAbort") as npu:
        buffer = npu.empty(16, "uint8")
        async with npu.create_stream() as stream, npu.create_stream() as behind:
            await stream.memset(buffer, 0)  # or it might not be there yet, and nothing would reach the device
            with sim.hold(stream):
                aborted = stream.memset(buffer, 1)
                waiting = behind.wait(stream.record())
                assert not await stream.abort()
                assert (stream.closed, behind.closed) == (True, True)
                assert "closed" in repr(behind)
                with pytest.raises(aa.RuntimeClosedError, match="given up"):
                    behind.memset(buffer, 1)
            assert isinstance(await error_of(aborted), aa.TaskError)
            assert isinstance(await error_of(waiting), aa.DependencyError)
