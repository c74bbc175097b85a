# SPDX-License-Identifier: Apache-2.0
"""Every contender does the work that it is measured by."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aioascend.bench import _rivals
from aioascend.bench.concurrent import run_all
from aioascend.bench.contenders import CONTENDERS, Contender, Place
from aioascend.bench.device import device_time
from aioascend.bench.harness import run_on
from aioascend.bench.placement import Placement
from aioascend.bench.settings import LOOPS, Settings
from aioascend.testing import Simulator

SIZE, COPIED, KERNELS = _rivals.LANE_BYTES, _rivals.COPY_BYTES, _rivals.CHAIN_KERNELS


def with_contender(name: str, loop: str, settings: Settings, work: Callable[[Contender], Awaitable[None]]) -> None:
    placement = Placement(settings.placements[0])

    async def main() -> None:
        contender = CONTENDERS[name](Place(settings, placement, streams=2, lanes=3))
        await contender.open()
        try:
            with placement.pinned(contender.device_threads()):
                await work(contender)
        finally:
            await contender.close()

    run_on(loop, main)


def contenders_and_loops() -> list[tuple[str, str]]:
    return [(name, loop) for name in CONTENDERS for loop in LOOPS if loop != "trio" or CONTENDERS[name].trio]


def on_device(lane: Any) -> bytes:
    """Memory of the simulated device is memory of this process."""
    address = lane.device if isinstance(lane.device, int) else lane.device.address
    return ctypes.string_at(address, SIZE)


@pytest.mark.parametrize(("name", "loop"), contenders_and_loops())
def test_a_copy_is_there_when_its_await_ends(name: str, loop: str, tiny: Settings) -> None:
    async def work(contender: Contender) -> None:
        for number, lane in enumerate(contender.lanes):
            source, _ = contender.read(lane)
            source[:] = bytes(range(number, number + SIZE))
            await contender.copy(lane)
            assert on_device(lane)[:COPIED] == bytes(source[:COPIED])

    with device_time(tiny, 50):
        with_contender(name, loop, tiny, work)


@pytest.mark.parametrize(("name", "loop"), contenders_and_loops())
def test_a_chain_is_complete_when_its_await_ends(name: str, loop: str, tiny: Settings) -> None:
    async def work(contender: Contender) -> None:
        for lane in contender.lanes:
            contender.read(lane)[0][:] = b"\xaa" * SIZE
        await run_all(contender, 2, chains=True)
        for lane in contender.lanes:
            expected = bytes(range(1, KERNELS + 1)) + b"\xaa" * (SIZE - KERNELS)
            assert bytes(contender.read(lane)[1]) == expected

    with_contender(name, loop, tiny, work)


@pytest.mark.parametrize("name", sorted(CONTENDERS))
def test_it_submits_at_once(name: str, tiny: Settings, sim: Simulator) -> None:
    async def work(contender: Contender) -> None:
        first, second, _ = contender.lanes
        before = sim.calls("aclrtMemcpyAsync")
        copied = contender.copy(first)
        assert sim.calls("aclrtMemcpyAsync") == before + 1
        chained = contender.chain(second)
        assert sim.calls("aclrtMemcpyAsync") == before + 3
        await copied
        await chained

    with_contender(name, "asyncio", tiny, work)


def test_threads_of_trio_are_set_up_once(tiny: Settings) -> None:
    entered: list[int] = []

    async def work(contender: Contender) -> None:
        enter = contender._enter_thread  # type: ignore[attr-defined]

        def enter_and_tell() -> None:
            entered.append(threading.get_native_id())
            enter()

        contender._enter_thread = enter_and_tell  # type: ignore[attr-defined]
        await run_all(contender, 5)

    with_contender("executor-4", "trio", tiny, work)
    assert 1 <= len(entered) == len(set(entered))
    assert threading.main_thread().native_id not in entered


@pytest.mark.parametrize("name", ["pyacl", "thread"])
def test_ctrl_c_leaves_no_word(name: str, tiny: Settings, sim: Simulator, capfd: pytest.CaptureFixture[str]) -> None:
    async def work(contender: Contender) -> None:
        task = asyncio.ensure_future(run_all(contender, 1))
        with sim.hold(device=0):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()  # as run() does with what it finds
        await asyncio.gather(task, return_exceptions=True)

    with_contender(name, "asyncio", tiny, work)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", sorted(CONTENDERS))
def test_nothing_of_a_contender_is_left(name: str, tiny: Settings) -> None:
    before = set(threading.enumerate())
    with_contender(name, "asyncio", tiny, lambda contender: run_all(contender, 3))
    # Those that anyio and the loop keep are theirs; those of our own pool end when they have nothing to do.
    left = {thread for thread in set(threading.enumerate()) - before if "AnyIO" not in thread.name}
    for thread in left:
        thread.join(10)
    assert not {thread.name for thread in left if thread.is_alive()}


def test_our_wakeups_are_counted(tiny: Settings) -> None:
    async def work(contender: Contender) -> None:
        before = contender.counters()["wakeups"]
        await contender.copy(contender.lanes[0])
        assert contender.counters()["wakeups"] == before + 1

    for loop in LOOPS:
        with_contender("aioascend", loop, tiny, work)


@pytest.mark.parametrize("name", ["aioascend", "pyacl"])
def test_callbacks_are_counted(name: str, tiny: Settings) -> None:
    async def work(contender: Contender) -> None:
        before = contender.counters()["callbacks"]
        await contender.chain(contender.lanes[0])
        await contender.copy(contender.lanes[0])
        assert contender.counters()["callbacks"] == before + 2

    with_contender(name, "asyncio", tiny, work)


def test_a_copy_that_nobody_awaits_costs_no_callback(tiny: Settings) -> None:
    async def work(contender: Contender) -> None:
        lane = contender.lanes[0]
        before = contender.counters()["callbacks"]
        for _ in range(5):
            contender.submit(lane)
        await contender.copy(lane)
        assert contender.counters()["callbacks"] == before + 1

    for name in ("aioascend", "pyacl"):
        with_contender(name, "asyncio", tiny, work)
