# SPDX-License-Identifier: Apache-2.0
"""Loops that come and go, that share a stream, and that are not run for a while."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import select
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator

Factory = Callable[[], asyncio.AbstractEventLoop]


def factories() -> dict[str, Factory]:
    made: dict[str, Factory] = {"asyncio": asyncio.new_event_loop}
    if importlib.util.find_spec("uvloop"):
        import uvloop

        made["uvloop"] = uvloop.new_event_loop
    return made


@pytest.fixture(params=list(factories().values()), ids=list(factories()))
def new_loop(request: pytest.FixtureRequest) -> Factory:
    return request.param  # type: ignore[no-any-return]


def run(new_loop: Factory, main: Callable[[], object]) -> None:
    """asyncio.run, which takes no factory before Python 3.12."""
    loop = new_loop()
    try:
        loop.run_until_complete(main())  # type: ignore[arg-type]
    finally:
        loop.close()


def resources() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def test_fifty_runs_leave_nothing(new_loop: Factory) -> None:
    async def main() -> None:
        async with aa.open_device(0, backend="sim") as npu, npu.create_stream() as stream:
            await stream.memset(npu.empty(64, "uint8"), 0)

    run(new_loop, main)
    before = resources()
    for _ in range(50):
        run(new_loop, main)
    gc.collect()
    limit = time.monotonic() + 10
    # The descriptor of the last loop lives until another one comes; a thread of ours ends when it has nothing to do.
    while resources()[1] > before[1] + 1 and time.monotonic() < limit:
        select.select([], [], [], 0)
    after = resources()
    assert after[0] <= before[0]
    assert after[1] <= before[1] + 1


def test_fifty_loops_that_leave_work_in_flight(new_loop: Factory, sim: Simulator) -> None:
    kept: list[aa.Operation] = []

    async def open_device() -> tuple[aa.Device, aa.Stream]:
        npu = await aa.open_device(0, backend="sim")
        return npu, await npu.create_stream()

    async def leave() -> None:
        kept.append(stream.memset(buffer, len(kept)))
        task = asyncio.ensure_future(stream.join())
        await asyncio.sleep(0)
        task.cancel()

    async def finish() -> None:
        await asyncio.gather(*kept)
        target = np.zeros(64, "uint8")
        await stream.memcpy(target, buffer)
        assert (target == 49).all()
        await npu.close()

    first = new_loop()
    npu, stream = first.run_until_complete(open_device())
    buffer = npu.empty(64, "uint8")
    first.close()
    before = resources()
    sim.hold(stream)
    for _ in range(50):
        run(new_loop, leave)
    sim.release(stream)
    run(new_loop, finish)
    assert resources()[0] <= before[0] + 1  # the descriptor of the last loop lives until another one comes


def test_two_loops_share_a_stream(new_loop: Factory) -> None:
    rounds = 200
    barrier = threading.Barrier(2)
    events: dict[int, aa.Event] = {}
    failures: list[BaseException] = []
    shared: dict[str, aa.Stream | aa.Device] = {}

    async def work(name: int) -> None:
        stream, npu = shared["stream"], shared["npu"]
        assert isinstance(stream, aa.Stream)
        assert isinstance(npu, aa.Device)
        buffer, target = npu.empty(64, "uint8"), np.zeros(64, "uint8")
        loop = asyncio.get_running_loop()
        for number in range(rounds):
            operations = [stream.memset(buffer, value) for value in (1, 2, (name + number) % 250)]
            copy = stream.memcpy(target, buffer)
            events[name] = stream.record()
            await asyncio.gather(*operations, copy)
            assert (target == (name + number) % 250).all()
            assert copy.get_loop() is loop
            if 1 - name in events:
                await events[1 - name]

    def in_thread(name: int) -> None:
        try:
            barrier.wait()
            run(new_loop, lambda: work(name))
        except BaseException as error:
            failures.append(error)

    async def main() -> None:
        async with aa.open_device(0, backend="sim") as npu, npu.create_stream() as stream:
            shared.update(npu=npu, stream=stream)
            threads = [threading.Thread(target=in_thread, args=(name,)) for name in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            await stream
            shared.clear()
            events.clear()

    run(new_loop, main)
    assert failures == []


def test_a_loop_that_is_not_run_for_a_while(new_loop: Factory, sim: Simulator) -> None:
    """It holds up nobody, and misses nothing."""
    resting, busy = new_loop(), new_loop()

    async def open_device() -> tuple[aa.Device, aa.Stream]:
        npu = await aa.open_device(0, backend="sim")
        return npu, await npu.create_stream()

    async def start() -> list[asyncio.Task[None]]:
        async def wait(value: int) -> None:
            await stream.memset(buffer, value % 256)
            woken.append(value)

        tasks = [asyncio.ensure_future(wait(value)) for value in range(300)]
        await asyncio.sleep(0)
        return tasks

    async def use_the_same_stream() -> None:
        for value in range(100):
            await stream.memset(buffer, value % 256)

    woken: list[int] = []
    npu, stream = resting.run_until_complete(open_device())
    buffer = npu.empty(4, "uint8")
    for _ in range(3):
        woken.clear()
        with sim.hold(stream):
            tasks = resting.run_until_complete(start())
        busy.run_until_complete(use_the_same_stream())  # the reports for the other loop are in front of these
        assert woken == []
        resting.run_until_complete(asyncio.wait_for(asyncio.gather(*tasks), 60))
        assert woken == list(range(300))
    resting.run_until_complete(npu.close())
    for loop in (resting, busy):
        loop.close()


def test_a_loop_that_is_closed_while_a_thread_opens_something_for_it(
    new_loop: Factory, sim: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    """What the thread makes is given back, and it says nothing."""
    streams = sim.live("streams")
    loop = new_loop()
    npu = loop.run_until_complete(aa.open_device(0, backend="sim"))
    idle = sim.live("streams")
    sim.set_call_latency("aclrtCreateStreamWithConfig", 0.05)
    opening = npu.create_stream()
    pending = loop.create_task(opening)
    while not sim.calls("aclrtCreateStreamWithConfig"):
        loop.run_until_complete(asyncio.sleep(0))
    pending._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    del pending
    opening.close()
    del opening
    gc.collect()
    while sim.calls("aclrtDestroyStream") == 0:
        pass
    run(new_loop, npu.close)
    assert idle >= streams == sim.live("streams")
    assert caplog.records == []
