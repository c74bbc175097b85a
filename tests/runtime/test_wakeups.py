# SPDX-License-Identifier: Apache-2.0
"""How a finished operation wakes the task that awaits it: at once, in the task's own context, as call_soon would."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
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


async def test_the_task_is_stepped_without_a_handle(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
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


async def test_cancelling_another_waiter_from_a_stepped_task(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
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
    programs: list[asyncio.Task[None]] = []

    async def main() -> None:
        programs.extend(asyncio.all_tasks())
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
    with contextlib.suppress(asyncio.CancelledError):
        programs[0].exception()  # or asyncio logs, when the task goes, that nobody has asked for it


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


async def test_a_delayed_report_arrives_without_further_work(
    npu: aa.Device, stream: aa.Stream, sim: Simulator, tmp_path: Path
) -> None:
    buffer = npu.empty(8, "uint8")
    sim.delay_report(0.01)
    await stream.memset(buffer, 1)
    sim.delay_report(0)
    (tmp_path / "late.toml").write_text('name = "late"\ncallback_latency_us = 100\n', encoding="utf-8")
    sim.set_profile(tmp_path / "late.toml")
    await stream.memset(buffer, 2)


def test_no_request_for_a_report_is_lost_between_two_loops(sim: Simulator) -> None:
    """The sweep would make up for a lost one, from the report thread and late."""
    together = threading.Barrier(3, timeout=60)
    launched: list[int] = []

    async def main() -> None:
        async with aa.open_device(0, backend="sim") as npu, npu.create_stream() as stream:
            buffers = [npu.empty(8, "uint8") for _ in range(16)]

            async def work(buffer: aa.DeviceBuffer, times: int) -> None:
                for value in range(times):
                    await stream.memset(buffer, value % 256)

            await asyncio.gather(*(work(buffer, 1) for buffer in buffers))  # the worker does what waits for memory
            before = sim.calls_on_thread("aclrtLaunchCallback")
            together.wait()
            together.wait()
            await asyncio.gather(*(work(buffer, 400) for buffer in buffers))
            launched.append(sim.calls_on_thread("aclrtLaunchCallback") - before)
            together.wait()
            together.wait()

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    together.wait()
    before = sim.calls("aclrtLaunchCallback")
    together.wait()
    together.wait()
    after = sim.calls("aclrtLaunchCallback")
    together.wait()
    for thread in threads:
        thread.join()
    assert after - before == sum(launched)


def test_followers_get_done_when_a_task_ends_the_program() -> None:
    outcomes: list[str] = []

    async def leave(event: aa.Event) -> None:
        await event
        raise SystemExit

    async def stay(event: aa.Event) -> None:
        await event
        outcomes.append("done")

    async def opened() -> tuple[aa.Device, aa.Stream]:
        npu = await aa.open_device(0, backend="sim")
        return npu, await npu.create_stream()

    loop = asyncio.new_event_loop()
    npu, stream = loop.run_until_complete(opened())

    async def main() -> None:
        event = stream.record()
        await asyncio.gather(leave(event), *(stay(event) for _ in range(3)), return_exceptions=True)

    with pytest.raises(SystemExit):
        loop.run_until_complete(main())
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(npu.close())
    loop.close()
    assert outcomes == ["done"] * 3


def test_an_operation_moves_to_the_loop_that_awaits_it_after_its_own_was_closed(sim: Simulator) -> None:
    kept: list[Any] = []

    async def first() -> None:
        npu = await aa.open_device(0, backend="sim")
        stream = await npu.create_stream()
        buffer = npu.empty(8, "uint8")
        await stream.memset(buffer, 0)
        sim.hold(stream)
        operation = stream.memset(buffer, 1)
        kept.extend((npu, stream, operation))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(operation), 0)  # it has been asked for

    async def second() -> None:
        npu, stream, operation = kept
        sim.release(stream)
        await asyncio.wait_for(operation, 60)
        assert operation.get_loop() is asyncio.get_running_loop()
        await npu.close()

    asyncio.run(first())
    asyncio.run(second())


def test_the_descriptors_of_closed_loops_are_closed() -> None:
    def event_descriptors() -> int:
        names = (os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))
        return sum("eventfd" in name for name in names)

    async def main() -> None:
        async with aa.open_device(0, backend="sim") as npu, npu.create_stream() as stream:
            await stream.memset(npu.empty(8, "uint8"), 0)

    _native.forget_closed_loops()
    before = event_descriptors()
    asyncio.run(main())
    _native.forget_closed_loops()
    assert event_descriptors() == before


def test_a_follower_moves_with_what_it_follows(sim: Simulator) -> None:
    kept: list[Any] = []

    async def first() -> None:
        npu = await aa.open_device(0, backend="sim")
        stream = await npu.create_stream()
        buffer = npu.empty(8, "uint8")
        await stream.memset(buffer, 0)
        sim.hold(stream)
        stream.memset(buffer, 1)
        everything = stream.join()
        kept.extend((npu, stream, everything))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(everything), 0)

    async def second() -> None:
        npu, stream, everything = kept
        waiting = asyncio.ensure_future(asyncio.wait_for(everything, 60))
        await asyncio.sleep(0)
        sim.release(stream)
        await waiting
        await npu.close()

    asyncio.run(first())
    asyncio.run(second())


async def test_another_library_may_run_inside_a_stepped_task(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    import trio

    buffer = npu.empty(8, "uint8")

    async def inner() -> None:
        await stream.memset(buffer, 2)

    async def work() -> bool:
        await stream.memset(buffer, 1)
        stepped = _native.in_drain()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of two libraries that want to know of signals
            trio.run(inner)
        return stepped

    (task,) = await resolve_while(npu, stream, sim, work())
    assert task.result()


@pytest.mark.parametrize("ending", ["raise SystemExit(3)", "raise KeyboardInterrupt"])
def test_a_task_that_ends_the_program_does_not_keep_it(ending: str) -> None:
    program = f"""
import asyncio, aioascend as aa

async def leave(stream, buffer):
    await stream.memset(buffer, 1)
    {ending}

async def main():
    npu = await aa.open_device(0, backend="sim")
    stream = await npu.create_stream()
    buffer = npu.empty(8, "uint8")
    await asyncio.gather(leave(stream, buffer), asyncio.sleep(3600))

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == (3 if "3" in ending else -2), done.stderr
