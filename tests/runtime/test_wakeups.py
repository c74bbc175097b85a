# SPDX-License-Identifier: Apache-2.0
"""How a finished operation wakes the task that awaits it: at once, in the task's own context, as call_soon would."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import anyio
import pytest

import aioascend as aa
from aioascend import _native
from aioascend.testing import Simulator

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]

NAME = contextvars.ContextVar("NAME", default="nobody")


async def resolve_while(npu: aa.Device, stream: aa.Stream, sim: Simulator, *coroutines: Any) -> list[asyncio.Task[Any]]:
    """Tasks that have awaited something on the stream, which goes on only now, and all have ended."""
    sim.hold(stream)
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    for _ in range(3):
        await asyncio.sleep(0)
    sim.release(stream)
    await asyncio.wait(tasks)
    return tasks


async def test_the_task_is_stepped_without_a_handle(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(8, "uint8")

    async def work() -> bool:
        await stream.memset(buffer, 1)
        return _native.in_drain()

    (task,) = await resolve_while(npu, stream, sim, work())
    assert task.result()
    assert not _native.in_drain()


async def test_each_task_resumes_in_its_own_context(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(8, "uint8")

    async def work(name: str) -> str:
        NAME.set(name)
        await stream.memset(buffer, 1)
        assert NAME.get() == name
        NAME.set(name.upper())
        await stream.memset(buffer, 2)
        return NAME.get()

    tasks = await resolve_while(npu, stream, sim, work("a"), work("b"), work("c"))
    assert [task.result() for task in tasks] == ["A", "B", "C"]
    assert NAME.get() == "nobody"


async def test_no_task_is_current_when_another_is_stepped(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(8, "uint8")
    seen: list[object] = []

    async def work() -> None:
        await stream.memset(buffer, 1)
        seen.append(asyncio.current_task())

    tasks = await resolve_while(npu, stream, sim, work(), work())
    assert seen == tasks


async def test_cancelling_another_waiter_from_a_stepped_task(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(8, "uint8")
    victim_started = asyncio.Event()

    async def victim() -> str:
        victim_started.set()
        try:
            await stream.memset(buffer, 2)
        except asyncio.CancelledError:
            return "cancelled"
        return "done"

    async def work(other: asyncio.Task[str]) -> None:
        await stream.memset(buffer, 1)
        if not other.done():
            other.cancel()
        assert asyncio.current_task() is not other

    with sim.hold(stream):
        first = asyncio.ensure_future(work(later := asyncio.ensure_future(victim())))
        await victim_started.wait()
        await asyncio.sleep(0)
        sim.release(stream)
        await asyncio.wait([first, later])
    first.result()
    assert later.result() in ("cancelled", "done")


async def test_a_callback_that_is_a_method_of_a_task_goes_through_the_loop(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(8, "uint8")
    sleeper = asyncio.ensure_future(asyncio.sleep(3600))
    await asyncio.sleep(0)
    called_in_drain: list[bool] = []

    def callback(_: object) -> None:
        called_in_drain.append(_native.in_drain())

    operation = stream.memset(buffer, 1)
    operation.add_done_callback(callback)
    operation.add_done_callback(sleeper.cancel)
    await operation
    with pytest.raises(asyncio.CancelledError):
        await sleeper
    assert called_in_drain == [False]


async def test_several_tasks_may_await_one_operation(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(8, "uint8")
    sim.hold(stream)
    operation = stream.memset(buffer, 1)

    async def work() -> bool:
        await operation
        return operation.done()

    tasks = [asyncio.ensure_future(work()) for _ in range(3)]
    await asyncio.sleep(0)
    sim.release(stream)
    assert await asyncio.gather(*tasks) == [True, True, True]


async def test_a_failure_is_raised_in_the_stepped_task(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer = npu.empty(8, "uint8")
    sim.fail_task(code=507015, stream=stream)

    async def work() -> None:
        with pytest.raises(aa.AclError, match="507015"):
            await stream.memset(buffer, 1)
        await stream.memset(buffer, 2)

    (task,) = await resolve_while(npu, stream, sim, work())
    task.result()


async def test_a_report_asked_for_at_the_end_of_a_drain_arrives(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(8, "uint8")
    before = sim.callbacks_launched

    async def work() -> None:
        await stream.memset(buffer, 1)
        await other.memset(buffer, 2)  # in the drain, and nothing is submitted behind it

    (task,) = await resolve_while(npu, stream, sim, work())
    task.result()
    assert sim.callbacks_launched - before == 2


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit])
def test_a_task_that_ends_the_program_ends_the_loop_and_nothing_is_lost(leaving: type[BaseException]) -> None:
    outcomes: list[str] = []

    async def main() -> None:
        async with aa.open_device(0, backend="sim") as npu, npu.create_stream() as stream:
            buffer = npu.empty(8, "uint8")
            await stream.memset(buffer, 0)

            async def leave() -> None:
                await stream.memset(buffer, 1)
                raise leaving

            async def stay() -> None:
                try:
                    await stream.memset(buffer, 2)
                    outcomes.append("done")
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    outcomes.append("cancelled")
                    raise

            await asyncio.gather(leave(), stay())

    with pytest.raises(leaving):
        asyncio.run(main())
    assert outcomes[-1] == "cancelled"


async def test_operations_of_one_task_group_under_load(npu: aa.Device, pace: str) -> None:
    async with npu.create_stream() as one, npu.create_stream() as two:
        buffers = [npu.empty(8, "uint8") for _ in range(32)]

        async def work(index: int) -> int:
            for value in range(50):
                await (one, two)[value % 2].memset(buffers[index], value)
            return index

        async with anyio.create_task_group() as group:
            for index in range(32):
                group.start_soon(work, index)
    assert _native.ticket_counts()["live"] == 0
