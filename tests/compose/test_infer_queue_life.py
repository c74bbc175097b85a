# SPDX-License-Identifier: Apache-2.0
"""The life of a queue: before it is entered, while consumers come and go, when its block is cancelled, and after."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

import aioascend as aa
from compose.units import Clock, HeldUnit, settle

pytestmark = pytest.mark.anyio


async def double(value: int) -> int:
    await anyio.lowlevel.checkpoint()
    return 2 * value


async def fail(value: int) -> int:
    raise ValueError(value)


def outcome_of(use: Callable[[], Any]) -> Any:
    """What it returns, or raises."""
    try:
        return use()
    except Exception as error:
        return error


# --- the block is cancelled ---


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
async def test_who_is_shielded_is_told_that_the_block_was_cancelled(late: bool) -> None:
    """Whether it has been put in before that, or is asked for later."""
    unit = HeldUnit()
    told: list[Exception] = []

    async def ask(queue: aa.InferQueue[Any, Any], key: int) -> None:
        with anyio.fail_after(60, shield=True):
            try:
                await queue.result(key)
            except aa.RuntimeClosedError as error:
                told.append(error)

    with anyio.fail_after(60), anyio.CancelScope() as scope:
        async with aa.InferQueue(unit, concurrency=1, queue_limit=1) as queue, anyio.create_task_group() as group:
            running, waiting = await queue.submit("running"), None
            await settle()
            waiting = await queue.submit("waiting")
            keys = [running, waiting]
            if not late:
                for key in keys:
                    group.start_soon(ask, queue, key)
                await settle()
            scope.cancel()
            with anyio.fail_after(60, shield=True):
                if late:
                    for key in keys:
                        await ask(queue, key)
                await settle()
                assert len(told) == 2
                assert queue.closed
                with pytest.raises(aa.RuntimeClosedError):
                    await queue.submit("later")
                await queue.close()
    assert scope.cancelled_caught
    assert sorted("under way" in str(error) for error in told) == [False, True]
    assert queue.statistics().cancelled == 2


async def test_a_submit_and_its_result_under_a_shield_end_when_the_block_is_cancelled() -> None:
    async def use(queue: aa.InferQueue[Any, Any]) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.fail_after(60, shield=True), pytest.raises(aa.RuntimeClosedError):
                await queue.result(await queue.submit(1))

    with anyio.fail_after(60), anyio.CancelScope() as scope:
        async with aa.InferQueue(double) as queue, anyio.create_task_group() as group:
            group.start_soon(use, queue)
            await settle()
            scope.cancel()
    assert scope.cancelled_caught


async def test_consumers_end_when_the_block_is_cancelled() -> None:
    ended = False

    async def consume(queue: aa.InferQueue[Any, Any]) -> None:
        nonlocal ended
        with anyio.fail_after(60, shield=True):
            async for _ in queue.results():
                raise AssertionError("there is none")
        ended = True

    with anyio.fail_after(60), anyio.CancelScope() as scope:
        async with aa.InferQueue(double) as queue, anyio.create_task_group() as group:
            group.start_soon(consume, queue)
            await settle()
            scope.cancel()
    assert ended


async def test_threads_are_told_that_the_block_was_cancelled() -> None:
    unit = HeldUnit()
    futures: list[concurrent.futures.Future[Any]] = []

    def work() -> None:
        futures.extend(queue.submit_from_thread(name) for name in ("running", "waiting", "at the door"))

    with anyio.fail_after(60), anyio.CancelScope() as scope:
        async with aa.InferQueue(unit, concurrency=1, queue_limit=1) as queue:
            await anyio.to_thread.run_sync(work)
            while queue.statistics().submitted < 3 or not unit.calls:
                await anyio.lowlevel.checkpoint()
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert [type(future.exception(timeout=0)) for future in futures] == [aa.RuntimeClosedError] * 3


# --- consumers ---


async def test_the_block_ends_although_the_consumer_has_gone() -> None:
    with anyio.fail_after(60):
        async with aa.InferQueue(double, keep=1) as queue:
            for value in range(5):
                await queue.submit(value)
            async for key, result in queue.results():
                assert result == 2 * key
                break
        statistics = queue.statistics()
    assert (statistics.ok, statistics.dropped) == (5, 0)


async def test_results_are_forgotten_until_somebody_asks_for_one() -> None:
    unit = HeldUnit()
    async with aa.InferQueue(unit, concurrency=1, keep=2) as queue:
        results = queue.results()
        for value in range(4):
            await queue.submit(value)
        for _ in range(4):
            await settle()
            unit.end()
        await settle()
        assert unit.calls == [0, 1, 2, 3]
        assert (queue.statistics().kept, queue.statistics().dropped) == (2, 2)
        assert await anext(results) == (2, 2)


async def test_a_consumer_gets_what_somebody_has_stopped_waiting_for() -> None:
    """The result has come while the one who waited for it was cancelled; which of the two goes on first is chance."""

    async def handler(value: tuple[anyio.Event, anyio.CancelScope]) -> str:
        go_on, scope = value
        await go_on.wait()
        scope.cancel()
        return "x"

    async def wait(key: int, scope: anyio.CancelScope) -> None:
        with scope:
            await queue.result(key)

    async def consume(key: int) -> None:
        assert await anext(queue.results()) == (key, "x")

    async with aa.InferQueue(handler) as queue:
        for _ in range(20):
            go_on, scope = anyio.Event(), anyio.CancelScope()
            key = await queue.submit((go_on, scope))
            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    group.start_soon(wait, key, scope)
                    group.start_soon(consume, key)
                    await settle()
                    go_on.set()
            assert scope.cancelled_caught


# --- errors and places ---


async def test_all_who_wait_get_an_error_of_their_own() -> None:
    unit = HeldUnit()
    errors: list[Exception] = []
    mine = ValueError("bad")
    async with aa.InferQueue(unit) as queue:
        key = await queue.submit("x")

        async def wait() -> None:
            try:
                await queue.result(key)
            except ValueError as error:
                errors.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait)
            await settle()
            unit.end(mine)
    assert [str(error) for error in errors] == ["bad"] * 3
    assert len({id(error) for error in errors}) == 3
    assert mine in errors  # with the traceback of the handler


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def test_a_submit_takes_the_place_of_a_request_that_is_late(clock: Clock) -> None:
    unit = HeldUnit()
    async with aa.InferQueue(unit, concurrency=1, queue_limit=1) as queue:
        running = await queue.submit("running")
        await settle()
        late = await queue.submit("late", timeout=5)
        clock.now += 6
        with anyio.fail_after(60):
            last = await queue.submit("last")
        assert (queue.statistics().timed_out, queue.statistics().waiting) == (1, 1)
        with pytest.raises(aa.DeadlineError):
            await queue.result(late)
        for key, name in ((running, "running"), (last, "last")):
            unit.end()
            assert await queue.result(key) == name
            await settle()


async def test_who_is_cancelled_or_late_has_submitted_nothing() -> None:
    async with aa.InferQueue(double) as queue:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await queue.submit(1)
        with anyio.move_on_after(-1):
            await queue.submit(1)
        assert queue.statistics().submitted == 0


# --- where and when it can be used ---


async def test_before_it_is_entered_it_says_so() -> None:
    queue = aa.InferQueue(double)
    assert repr(queue) == "<InferQueue of double, not entered>"
    assert not queue.closed
    assert queue.statistics() == aa.InferQueueStatistics(*[0] * 11)
    uses: list[Callable[[], Any]] = [lambda: queue.try_submit(1), lambda: queue.cancel(0), queue.results]
    for use in (*uses, lambda: queue.submit_from_thread(1)):
        error = outcome_of(use)
        assert type(error) is RuntimeError
        assert "has not been entered: use it inside" in str(error)
    for ask in (queue.submit, queue.result):
        with pytest.raises(RuntimeError, match="has not been entered"):
            await ask(1)
    async with queue:
        assert repr(queue) == "<InferQueue of double: 0 waiting, 0 running>"
    assert repr(queue) == "<InferQueue of double, closed>"
    with pytest.raises(RuntimeError, match="entered before"):
        await queue.__aenter__()


async def test_closed_before_it_is_entered() -> None:
    queue = aa.InferQueue(double)
    await queue.close()
    assert queue.closed
    assert queue.statistics().submitted == 0
    assert [one async for one in queue.results()] == []
    for ask in (queue.result, queue.cancel):
        with pytest.raises(LookupError):
            await ask(0)  # type: ignore[misc]
    with pytest.raises(aa.RuntimeClosedError):
        await queue.submit(1)
    with pytest.raises(aa.RuntimeClosedError):
        await queue.__aenter__()


async def test_in_another_loop_it_says_so() -> None:
    unit = HeldUnit()
    async with aa.InferQueue(unit) as queue:
        key = await queue.submit("x")

        async def elsewhere() -> None:
            asked = (lambda: queue.submit(1), lambda: queue.result(key), lambda: anext(queue.results()), queue.close)
            for ask in asked:
                with pytest.raises(RuntimeError, match="belongs to the event loop"):
                    await ask()  # type: ignore[operator]

        def in_thread() -> None:
            for use in (lambda: queue.try_submit(1), lambda: queue.cancel(key)):
                with pytest.raises(RuntimeError, match="belongs to the event loop"):
                    use()
            asyncio.run(elsewhere())
            assert queue.statistics().submitted == 1
            assert repr(queue).startswith("<InferQueue")

        await anyio.to_thread.run_sync(in_thread)
        assert not queue.closed
        await settle()
        unit.end()
        assert await queue.result(key) == "x"


@pytest.mark.asyncio_only
async def test_callbacks_of_the_loop_can_submit_and_cancel() -> None:
    unit = HeldUnit()
    async with aa.InferQueue(unit, concurrency=1) as queue:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def callback() -> None:
            try:
                first, second = queue.try_submit("first"), queue.try_submit("second", timeout=100)
                assert queue.cancel(second)
                assert queue.statistics().waiting == 1
                done.set_result(first)
            except BaseException as error:
                done.set_exception(error)

        loop.call_soon(callback)
        first = await done
        await settle()
        unit.end()
        assert await queue.result(first) == "first"


class End(BaseException):
    pass


@pytest.mark.parametrize("mine", [ValueError("mine"), End("mine")], ids=["exception", "end"])
async def test_what_leaves_the_block_comes_out_as_it_is(mine: BaseException) -> None:
    async def use() -> None:
        async with aa.InferQueue(fail) as queue:
            await queue.submit(1)
            raise mine

    with pytest.raises(type(mine)) as raised:
        await use()
    assert raised.value is mine


# --- what comes at the same time ---


async def test_the_error_of_a_handler_is_no_error_of_submit() -> None:
    """Also when it is there before whoever has submitted the request goes on."""
    go = anyio.Event()
    ids: list[int] = []

    async def handler(value: int) -> int:
        if value == 0:
            await go.wait()
            return 0
        raise ValueError(value)

    async with aa.InferQueue(handler, concurrency=1, queue_limit=1) as queue:

        async def submit(value: int) -> None:
            ids.append(await queue.submit(value))

        async with anyio.create_task_group() as group:
            for value in range(4):
                group.start_soon(submit, value)
                await settle()
            go.set()
        assert len(ids) == 4
        assert await queue.result(0) == 0
        for number in range(1, 4):
            with pytest.raises(ValueError, match=str(number)):
                await queue.result(number)


async def test_what_a_thread_has_asked_for_is_for_nobody_else() -> None:
    async def at_once(value: int) -> int:
        return value

    taken: list[Any] = []
    async with anyio.create_task_group() as group, aa.InferQueue(at_once) as queue:

        async def consume() -> None:
            taken.extend([pair async for pair in queue.results()])

        def ask() -> list[int]:
            return [queue.submit_from_thread(value).result(60) for value in range(100)]

        group.start_soon(consume)
        assert await anyio.to_thread.run_sync(ask) == list(range(100))
    assert taken == []
