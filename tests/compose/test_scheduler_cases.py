# SPDX-License-Identifier: Apache-2.0
"""The scheduler at its edges: blocks and calls that are cancelled, units that come back, whose turn it is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

import aioascend as aa
from aioascend.errors import error_from_code
from compose.scene import until
from compose.units import Clock, HeldUnit, check_identity, settle

pytestmark = pytest.mark.anyio


async def test_what_is_not_async_is_refused_by_name() -> None:
    async with aa.Scheduler([1]) as scheduler:
        with pytest.raises(TypeError, match=r"a call of a scheduler must be async, and .* has returned int"):
            await scheduler.run(lambda unit: unit)  # type: ignore[arg-type, return-value]


GONE, ELSEWHERE, RETRY = 507010, 507014, 207018
POLICIES = ["least_loaded", "round_robin", "weighted_random", "two_choices", lambda free: free[-1]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def gone(_: Any) -> None:
    raise error_from_code(GONE)


# --- whose turn it is ---


@pytest.mark.parametrize("policy", POLICIES)
async def test_without_a_queue_what_can_be_begun_is_begun(policy: Any) -> None:
    units = [HeldUnit(), HeldUnit(), HeldUnit()]
    async with (
        aa.Scheduler(units, policy=policy, concurrency=2, queue_limit=0, overflow="reject") as scheduler,
        anyio.create_task_group() as group,
    ):
        for name in range(6):
            group.start_soon(scheduler, name)
        await settle()
        assert [len(unit.calls) for unit in units] == [2, 2, 2]
        for index in (1, 0, 2):
            with pytest.raises(aa.QueueFullError, match="0 are waiting, at most 0 may"):
                await scheduler("too many")
            units[index].end()
            await settle()
            group.start_soon(scheduler, "next")
            await settle()
            assert units[index].calls[2:] == ["next"]
        statistics = scheduler.statistics()
        check_identity(statistics)
        assert (statistics.submitted, statistics.waiting, statistics.rejected) == (9, 0, 3)
        for unit in units:
            unit.end()
            unit.end()
    assert scheduler.statistics().ok == 9


async def test_without_a_queue_a_call_that_runs_again_is_not_rejected() -> None:
    units = [HeldUnit(), HeldUnit()]
    async with (
        aa.Scheduler(units, concurrency=1, queue_limit=0, overflow="reject") as scheduler,
        anyio.create_task_group() as group,
    ):
        group.start_soon(scheduler, "a")
        await settle()
        group.start_soon(scheduler, "b")
        await settle()
        units[0].end(error_from_code(ELSEWHERE))  # and the other one has no room
        await settle()
        assert scheduler.statistics().waiting == 1
        units[1].end()
        await settle()
        units[1].end()
    assert (units[0].calls, units[1].calls) == (["a"], ["b", "a"])


async def test_a_request_beyond_the_limit_does_not_wait_beside_an_idle_unit() -> None:
    first, second = HeldUnit(), HeldUnit()
    async with aa.Scheduler([first, second], concurrency=1, queue_limit=1) as scheduler:

        async def request(name: str, unit: int | None = None) -> None:
            await scheduler(name, unit=unit)

        async with anyio.create_task_group() as group:
            for name, unit in (("a", 0), ("b", 1), ("c", 0), ("d", None)):
                group.start_soon(request, name, unit)
                await settle()
            second.end()
            group.start_soon(request, "e")
            await settle()
            assert second.calls == ["b", "d"]
            second.end()
            await settle()
            assert second.calls == ["b", "d", "e"]
            second.end()
            first.end()
            await settle()
            first.end()
    assert first.calls == ["a", "c"]


async def test_the_urgent_ones_among_those_beyond_the_limit_come_first() -> None:
    unit = HeldUnit()
    async with aa.Scheduler([unit], concurrency=1, queue_limit=1, ageing=1000) as scheduler:

        async def request(name: str, priority: int) -> None:
            await scheduler(name, priority=priority)

        async with anyio.create_task_group() as group:
            for name, priority in (("a", 0), ("b", 0), ("c", 1), ("d", -1)):
                group.start_soon(request, name, priority)
                await settle()
            for _ in range(4):
                unit.end()
                await settle()
    assert unit.calls == ["a", "d", "b", "c"]


class Lamp(aa.Device):
    """A device that is made by the test, and whose health it sets."""

    error: aa.DeviceLostError | None = None

    def __init__(self) -> None:
        pass

    def health(self) -> aa.DeviceHealth:
        return aa.DeviceHealth(0, "failed" if self.error else "ok", self.error, 0.0, 0.0, 0, 0, 0)

    def __del__(self) -> None:
        pass


class DeviceUnit(HeldUnit):
    """One that has a device."""

    def __init__(self) -> None:
        super().__init__()
        self.device = Lamp()

    def lose(self) -> None:
        self.device.error = aa.DeviceLostError(GONE)


async def test_a_unit_that_has_come_back_goes_to_who_waits_rather_than_to_the_newcomer() -> None:
    first, second = DeviceUnit(), HeldUnit()
    async with aa.Scheduler([first, second], concurrency=1) as scheduler, anyio.create_task_group() as group:
        first.lose()
        group.start_soon(scheduler, "a")
        await settle()
        group.start_soon(scheduler, "b")
        await settle()
        assert (second.calls, scheduler.statistics().waiting) == (["a"], 1)
        assert scheduler.statistics().units[0].state == "failed"
        first.device.error = None
        group.start_soon(scheduler, "c")
        await settle()
        assert first.calls == ["b"]
        first.end()
        await settle()
        assert first.calls == ["b", "c"]
        first.end()
        second.end()


async def test_a_request_whose_unit_turns_out_to_be_lost_goes_to_another_at_once() -> None:
    units = [DeviceUnit(), DeviceUnit()]
    async with aa.Scheduler(units) as scheduler, anyio.create_task_group() as group:

        async def request() -> None:
            await scheduler("x", affinity="key")

        group.start_soon(request)
        await settle()
        home = units[bool(units[1].calls)]
        other = units[home is units[0]]
        home.lose()
        group.start_soon(request)
        await settle()
        assert (home.calls, other.calls) == (["x"], ["x"])
        home.end()
        other.end()


async def test_a_slot_of_a_unit_that_goes_out_of_service_in_the_same_moment_is_not_used() -> None:
    first, second = HeldUnit(), HeldUnit()
    async with aa.Scheduler([first, second], concurrency=2) as scheduler:

        async def request(name: str, unit: int) -> None:
            await scheduler(name, unit=unit)

        async def lost() -> None:
            with pytest.raises(aa.DeviceLostError):
                await scheduler("lost", unit=0, retries=0)

        async with anyio.create_task_group() as group:
            group.start_soon(request, "ends", 0)
            await settle()
            group.start_soon(lost)
            for name in ("a", "b"):
                group.start_soon(request, name, 1)
            await settle()
            group.start_soon(scheduler, "waits")
            await settle()
            first.end()  # its slot goes to the one that waits
            first.end(error_from_code(GONE))
            await settle()
            assert (first.calls, scheduler.statistics().waiting) == (["ends", "lost"], 1)
            check_identity(scheduler.statistics())
            for _ in range(3):
                second.end()
                await settle()
    assert sorted(second.calls) == ["a", "b", "waits"]
    assert (scheduler.statistics().retried, scheduler.statistics().units[0].running) == (0, 0)


async def test_what_runs_again_does_not_when_its_callers_deadline_has_passed(clock: Clock) -> None:
    unit = HeldUnit()
    async with aa.Scheduler([unit]) as scheduler, anyio.create_task_group() as group:
        scope = anyio.CancelScope(deadline=clock.real() + 5000)

        async def request() -> None:
            with scope:
                await scheduler("late")

        group.start_soon(request)
        await settle()
        clock.now = clock.real() + 6000  # and the loop has not seen to its timers yet
        unit.end(error_from_code(RETRY))
        await settle()
        assert unit.calls == ["late"]
        scope.cancel()
    assert (scheduler.statistics().cancelled, scheduler.statistics().units[0].running) == (1, 0)


# --- cancels ---


async def told_when_closed(request: Callable[[], Awaitable[Any]], outcomes: list[str]) -> None:
    with anyio.CancelScope(shield=True):
        try:
            await request()
        except aa.RuntimeClosedError as error:
            outcomes.append(str(error))
        else:
            outcomes.append("answered")


async def test_a_cancelled_block_leaves_nobody_waiting_for_a_recovery() -> None:
    recovering = anyio.Event()

    async def recover(_: Any) -> None:
        recovering.set()
        await anyio.sleep_forever()

    outcomes: list[str] = []
    with anyio.fail_after(60, shield=True), anyio.CancelScope() as block:
        async with aa.Scheduler([gone], recover=recover) as scheduler:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as group:
                    for _ in range(2):
                        group.start_soon(told_when_closed, lambda: scheduler(1), outcomes)
                    await recovering.wait()
                    block.cancel()
                await until(lambda: scheduler.closed)
                with pytest.raises(aa.RuntimeClosedError):
                    await scheduler(1)
                await scheduler.close()
    assert ["closed" in outcome for outcome in outcomes] == [True, True]
    assert [unit.state for unit in scheduler.statistics().units] == ["failed"]
    check_identity(scheduler.statistics())


async def test_a_cancelled_block_refuses_those_who_wait_and_leaves_those_who_run_alone() -> None:
    unit = HeldUnit()
    outcomes: list[str] = []
    with anyio.fail_after(60, shield=True):
        async with anyio.create_task_group() as others:
            with anyio.CancelScope() as block:
                async with aa.Scheduler([unit], concurrency=1) as scheduler:
                    others.start_soon(told_when_closed, lambda: scheduler("runs"), outcomes)
                    await settle()
                    others.start_soon(told_when_closed, lambda: scheduler("waits"), outcomes)
                    await settle()
                    with anyio.CancelScope(shield=True):
                        block.cancel()
                        await until(lambda: len(outcomes) == 1)
                        await scheduler.close()  # does not wait for the one that runs
                        assert scheduler.statistics().running == 1
                        with pytest.raises(aa.RuntimeClosedError):
                            await scheduler("comes later")
            unit.end()
    assert (len(outcomes), outcomes[1], unit.calls) == (2, "answered", ["runs"])
    assert "its block has been cancelled" in outcomes[0]


async def test_a_close_under_a_shield_ends_with_the_block() -> None:
    unit = HeldUnit()
    with anyio.fail_after(60, shield=True):
        async with anyio.create_task_group() as others:
            with anyio.CancelScope() as block:
                async with aa.Scheduler([unit]) as scheduler:
                    others.start_soon(scheduler, "runs")
                    await settle()
                    others.start_soon(until_called(block.cancel, lambda: scheduler.closed))
                    with anyio.CancelScope(shield=True):
                        await scheduler.close()
            unit.end()
    assert scheduler.statistics().ok == 1


def until_called(action: Callable[[], object], condition: Callable[[], bool]) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        await until(condition)
        action()

    return run


async def cancelled_future(*_: object) -> Any:
    """What is awaited has been cancelled by somebody else."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    return await future


@pytest.mark.asyncio_only
async def test_a_stray_cancel_in_a_call_is_its_failure() -> None:
    async with aa.Scheduler([cancelled_future]) as scheduler:
        told = aa.AioascendError if sys.version_info >= (3, 11) else asyncio.CancelledError
        with pytest.raises(told) as raised:
            await scheduler(1)
        statistics = scheduler.statistics()
        check_identity(statistics)
        if sys.version_info >= (3, 11):  # asyncio did not tell tasks before whether it is them who were cancelled
            assert "nobody has cancelled it" in str(raised.value)
            assert (statistics.failed, statistics.cancelled, statistics.units[0].failed) == (1, 0, 1)


@pytest.mark.asyncio_only
async def test_a_caller_whose_task_is_cancelled_is_cancelled() -> None:
    unit = HeldUnit()
    async with aa.Scheduler([unit], concurrency=1) as scheduler:
        tasks = [asyncio.ensure_future(scheduler(name)) for name in ("runs", "waits")]
        await settle()
        for task in tasks:
            task.cancel()
        for task in tasks:
            with pytest.raises(asyncio.CancelledError):
                await task
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(scheduler("runs out of time"), 1e-9)
        statistics = scheduler.statistics()
        check_identity(statistics)
        assert (statistics.failed, statistics.timed_out, statistics.waiting + statistics.running) == (0, 0, 0)
        assert (statistics.cancelled, statistics.units[0].failed) == (statistics.submitted, 0)


@pytest.mark.asyncio_only
async def test_a_stray_cancel_in_a_recovery_is_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, attempts = anyio.Event(), 0

    async def pause(_: float) -> None:
        await go_on.wait()

    async def recover(_: Any) -> Any:
        nonlocal attempts
        attempts += 1
        return await cancelled_future() if attempts == 1 else double

    async def double(value: int) -> int:
        return 2 * value

    monkeypatch.setattr(anyio, "sleep", pause)
    with anyio.fail_after(60):
        async with aa.Scheduler([gone], recover=recover) as scheduler:
            with pytest.raises(aa.AioascendError, match="nobody has cancelled it"):
                await scheduler(1)
            go_on.set()
            await until(lambda: scheduler.statistics().units[0].state == "ok")
            assert await scheduler(2) == 4


# --- out of service, and back ---


async def test_a_recovery_after_which_the_unit_is_closed_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    units = [DeviceUnit()]
    go_on, pauses = anyio.Event(), 0

    async def pause(_: float) -> None:
        nonlocal pauses
        pauses += 1
        await go_on.wait()
        units[0].device.error = None

    async def recover(_: Any) -> None:
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(anyio, "sleep", pause)
    with anyio.fail_after(60):
        async with aa.Scheduler(units, recover=recover) as scheduler, anyio.create_task_group() as group:
            units[0].lose()
            for _ in range(2):  # the first waits for the recovery
                with pytest.raises(aa.DeviceLostError):
                    await scheduler("x")
            assert pauses == 1
            go_on.set()
            await until(lambda: scheduler.statistics().units[0].state == "ok")
            group.start_soon(scheduler, "y")
            await settle()
            units[0].end()
    assert (units[0].calls, pauses) == (["y"], 1)


async def test_restoring_is_for_units_that_have_failed() -> None:
    go_on, recovered = anyio.Event(), 0

    async def recover(_: Any) -> None:
        nonlocal recovered
        recovered += 1
        await go_on.wait()

    unit = HeldUnit()
    async with aa.Scheduler([unit], recover=recover) as scheduler, anyio.create_task_group() as group:
        group.start_soon(scheduler, "a")
        await settle()
        unit.end()
        await settle()
        known = scheduler.statistics().units[0].service_seconds
        assert known is not None
        scheduler.restore(0)
        assert scheduler.statistics().units[0].service_seconds == known
        group.start_soon(scheduler, "b")
        await settle()
        unit.end(error_from_code(GONE))
        await settle()
        scheduler.restore(0)
        await settle()
        assert (scheduler.statistics().units[0].state, scheduler.statistics().waiting) == ("recovering", 1)
        go_on.set()
        await settle()
        unit.end()
    assert (unit.calls, recovered) == (["a", "b", "b"], 1)


async def test_a_unit_is_restored_while_its_recovery_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    paused, go_on, recovered = anyio.Event(), anyio.Event(), 0

    async def pause(_: float) -> None:
        paused.set()
        await go_on.wait()

    async def recover(_: Any) -> None:
        nonlocal recovered
        recovered += 1
        raise ZeroDivisionError("a mistake in recover")

    monkeypatch.setattr(anyio, "sleep", pause)
    calls = [gone, gone]

    async def unit(value: int) -> int:
        return await calls.pop()(value) if calls else value

    async with aa.Scheduler([unit], recover=recover) as scheduler:
        with pytest.raises(ZeroDivisionError):
            await scheduler(1)
        await paused.wait()
        calls.clear()
        scheduler.restore(0)
        assert await scheduler(2) == 2
        go_on.set()
        await settle()
        assert (scheduler.statistics().units[0].state, recovered) == ("ok", 1)


@pytest.mark.asyncio_only
async def test_units_are_restored_by_callbacks() -> None:
    async with aa.Scheduler([gone]) as scheduler:
        with pytest.raises(aa.DeviceLostError):
            await scheduler(1)
        seen: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.call_soon(
            lambda: (scheduler.restore(0), seen.append(scheduler.statistics()), seen.append(repr(scheduler)))
        )
        await settle()
        assert (seen[0].units[0].state, seen[0].failed) == ("ok", 1)
        assert seen[1] == "<Scheduler of 1 unit, open: 0 waiting, 0 running>"


async def test_what_a_unit_could_not_do_its_successor_is_asked_for() -> None:
    first, successor, second = HeldUnit(), HeldUnit(), HeldUnit()

    async def recover(_: Any) -> HeldUnit:
        return successor

    async def lost() -> None:
        with pytest.raises(aa.DeviceLostError):
            await scheduler("lost", unit=0, retries=0)

    async with (
        aa.Scheduler([first, second], concurrency=1, recover=recover) as scheduler,
        anyio.create_task_group() as group,
    ):
        for name in ("a", "b"):
            group.start_soon(scheduler, name)
            await settle()
        first.end(error_from_code(ELSEWHERE))
        await settle()
        assert (first.calls, scheduler.statistics().waiting) == (["a"], 1)
        group.start_soon(lost)
        await settle()
        first.end(error_from_code(GONE))
        await settle()
        assert (first.calls, successor.calls, second.calls) == (["a", "lost"], ["a"], ["b"])
        successor.end()
        second.end()


async def test_who_waits_for_the_successor_of_what_it_has_tried_is_told_when_there_is_none() -> None:
    first, second = HeldUnit(), HeldUnit()
    go_on = anyio.Event()

    async def recover(_: Any) -> None:
        await go_on.wait()
        raise ZeroDivisionError("a mistake in recover")

    async def lost() -> None:
        with pytest.raises(aa.DeviceLostError):
            await scheduler("lost", unit=0, retries=0)

    async def tried() -> None:
        with pytest.raises(ZeroDivisionError):
            await scheduler("a", retries=5)

    with anyio.fail_after(60):
        async with (
            aa.Scheduler([first, second], concurrency=2, recover=recover) as scheduler,
            anyio.create_task_group() as group,
        ):
            group.start_soon(tried)
            await settle()
            group.start_soon(lost)
            await settle()
            (first if first.calls[0] == "a" else second).end(error_from_code(ELSEWHERE))
            await settle()
            first.end(error_from_code(GONE))
            await settle()
            second.end(error_from_code(ELSEWHERE))
            await settle()
            assert scheduler.statistics().waiting == 1
            go_on.set()
    check_identity(scheduler.statistics())


# --- loops and threads ---


async def test_it_belongs_to_the_loop_that_has_entered_it(clock: Clock) -> None:
    async def double(value: int) -> int:
        return 2 * value

    async with aa.Scheduler([double, gone]) as scheduler:
        with pytest.raises(aa.DeviceLostError):
            await scheduler(1, unit=1)
        for backend in ("asyncio", "trio"):
            for use in (lambda: scheduler(1), scheduler.close):
                with pytest.raises(RuntimeError, match="belongs to the event loop that has entered it"):
                    await anyio.to_thread.run_sync(lambda use=use, backend=backend: anyio.run(use, backend=backend))
        with pytest.raises(RuntimeError, match="belongs to the event loop that has entered it"):
            await anyio.to_thread.run_sync(scheduler.restore, 1)
        assert await scheduler(2) == 4
        seen = await anyio.to_thread.run_sync(scheduler.statistics)
        assert (seen.submitted, seen.ok, seen.failed) == (2, 1, 1)
        assert "2 units, open" in await anyio.to_thread.run_sync(repr, scheduler)
    assert (await anyio.to_thread.run_sync(scheduler.statistics)).ok == 1
