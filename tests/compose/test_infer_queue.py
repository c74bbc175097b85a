# SPDX-License-Identifier: Apache-2.0
"""The queue between those who put requests in and those who take results out."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import random
import threading
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
    if value < 0:
        raise ValueError(f"{value} is negative")
    return 2 * value


def check_identity(queue: aa.InferQueue[Any, Any]) -> None:
    one = queue.statistics()
    assert one.submitted == one.ok + one.failed + one.cancelled + one.timed_out + one.waiting + one.running
    assert min(one.waiting, one.running, one.kept) >= 0


async def test_results_are_asked_for_by_id() -> None:
    async with aa.InferQueue(double) as queue:
        ids = [await queue.submit(value) for value in range(100)]
        assert len(set(ids)) == 100
        assert [await queue.result(key) for key in reversed(ids)] == [2 * value for value in reversed(range(100))]
        with pytest.raises(LookupError, match="its result was taken"):
            await queue.result(ids[0])
        failing = await queue.submit(-1)
        with pytest.raises(ValueError, match="-1 is negative"):
            await queue.result(failing)
        statistics = queue.statistics()
    assert (statistics.ok, statistics.failed, statistics.kept) == (100, 1, 0)


async def test_the_deadline_of_a_wait_leaves_the_result_there() -> None:
    unit = HeldUnit()
    async with aa.InferQueue(unit, concurrency=1) as queue:
        first, second = await queue.submit("a"), await queue.submit("b")
        await settle()
        for key, started in ((first, True), (second, False)):
            with pytest.raises(aa.DeadlineError, match=f"result of request {key}") as raised:
                await queue.result(key, timeout=1e-9)
            assert raised.value.started is started
        for name, key in (("a", first), ("b", second)):
            unit.end()
            assert await queue.result(key) == name


async def test_a_wait_that_is_cancelled_when_the_result_comes_does_not_swallow_it() -> None:
    scope = anyio.CancelScope()
    go_on = anyio.Event()

    async def handler(value: str) -> str:
        await go_on.wait()
        scope.cancel()
        return value

    async with aa.InferQueue(handler) as queue:
        key = await queue.submit("x")

        async def wait() -> None:
            with scope:
                await queue.result(key)

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await settle()
            go_on.set()
        assert scope.cancelled_caught
        assert await queue.result(key) == "x"


@pytest.mark.asyncio_only
async def test_a_wait_that_is_cancelled_after_the_result_has_come_does_not_swallow_it() -> None:
    async with aa.InferQueue(double) as queue:
        key = await queue.submit(1)
        waiting = asyncio.ensure_future(queue.result(key))
        await queue._requests.changed.until(lambda: queue.statistics().ok)
        if waiting.cancel():
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await queue.result(key) == 2
        else:
            assert await waiting == 2


async def test_all_who_wait_get_the_result() -> None:
    unit = HeldUnit()
    results: list[str] = []
    async with aa.InferQueue(unit) as queue:
        key = await queue.submit("x")

        async def wait() -> None:
            results.append(await queue.result(key))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait)
            await settle()
            unit.end()
        assert results == ["x"] * 3
        assert queue.statistics().kept == 0


async def test_a_full_queue_makes_submits_wait_and_tries_fail() -> None:
    unit = HeldUnit()
    async with aa.InferQueue(unit, concurrency=4, queue_limit=16) as queue:
        for number in range(4):
            await queue.submit(number)
        await settle()
        accepted, refused = [], []
        for number in range(996):
            try:
                accepted.append(queue.try_submit(4 + number))
            except aa.QueueFullError as error:  # noqa: PERF203 - one by one
                refused.append(error)
        assert (len(accepted), len(refused)) == (16, 980)
        assert {(error.depth, error.limit, error.retry_after) for error in refused} == {(16, 16, None)}
        assert queue.statistics().rejected == 980

        async with anyio.create_task_group() as group:
            for number in (20, 21):
                group.start_soon(queue.submit, number)
                await settle()
            assert queue.statistics().waiting == 18
            with pytest.raises(aa.DeadlineError, match="never submitted"):
                await queue.submit("late", timeout=1e-9)
            for _ in range(2):
                unit.end()
            await settle()
        with pytest.raises(aa.QueueFullError) as raised:
            queue.try_submit("x")
        assert raised.value.retry_after is not None
        while queue.statistics().running:
            unit.end()
            await settle()
        check_identity(queue)
    assert unit.calls == list(range(22))


async def test_a_withdrawn_submit_is_never_begun() -> None:
    unit = HeldUnit()
    async with aa.InferQueue(unit, concurrency=1, queue_limit=1) as queue:
        for name in ("running", "queued"):
            await queue.submit(name)
            await settle()

        async def give_up(scope: anyio.CancelScope) -> None:
            with scope:
                await queue.submit("given up")

        async with anyio.create_task_group() as group:
            scope = anyio.CancelScope()
            group.start_soon(give_up, scope)
            await settle()
            scope.cancel()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await queue.submit("cancelled before")
        assert queue.statistics().cancelled == 1
        for _ in range(2):
            unit.end()
            await settle()
    assert unit.calls == ["running", "queued"]


async def test_requests_that_are_late_are_not_begun(clock: Clock) -> None:
    unit = HeldUnit()
    async with aa.InferQueue(unit, concurrency=1, queue_limit=2) as queue:
        running = await queue.submit("running")
        await settle()
        late = await queue.submit("late", timeout=5)
        second = await queue.submit("late as well", timeout=5)
        clock.now += 6
        third = queue.try_submit("in their place")
        unit.end()
        assert await queue.result(running) == "running"
        for key in (late, second):
            with pytest.raises(aa.DeadlineError, match=r"after 6 s .*never submitted"):
                await queue.result(key)
        await settle()
        unit.end()
        assert await queue.result(third) == "in their place"
        assert queue.statistics().timed_out == 2
    assert unit.calls == ["running", "in their place"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def test_a_request_that_is_late_while_it_runs_is_cancelled(clock: Clock) -> None:
    unit = HeldUnit()
    async with aa.InferQueue(unit) as queue:
        key = await queue.submit("x", timeout=5)
        with pytest.raises(aa.DeadlineError, match="under way"):
            await queue.result(key)
        assert unit.next_end == float("inf")
        assert queue.statistics().timed_out == 1


async def test_requests_are_cancelled_by_id() -> None:
    unit = HeldUnit()
    async with aa.InferQueue(unit, concurrency=1) as queue:
        running, queued, last = [await queue.submit(name) for name in ("running", "queued", "last")]
        await settle()
        assert queue.cancel(queued)
        assert queue.cancel(running)
        for key in (running, queued):
            with pytest.raises(concurrent.futures.CancelledError, match=f"request {key}"):
                await queue.result(key)
        await settle()
        unit.end()
        assert await queue.result(last) == "last"
        ended = await queue.submit("ended")
        await settle()
        unit.end()
        await settle()
        assert not queue.cancel(ended)
        with pytest.raises(LookupError):
            queue.cancel(12345)
        assert queue.statistics().cancelled == 2
    assert unit.calls == ["running", "last", "ended"]


async def test_results_nobody_asks_for_are_bounded() -> None:
    async with aa.InferQueue(double, keep=10) as queue:
        ids = [await queue.submit(value) for value in range(50)]
        await queue.close()
        statistics = queue.statistics()
        assert (statistics.kept, statistics.dropped) == (10, 40)
        assert [await queue.result(key) for key in ids[40:]] == [2 * value for value in range(40, 50)]
        with pytest.raises(LookupError, match="more than 10 were kept"):
            await queue.result(ids[0])


async def test_several_consumers_share_the_results_and_slow_ones_hold_up_the_workers() -> None:
    begun = 0

    async def handler(value: int) -> int:
        nonlocal begun
        begun += 1
        return await double(value)

    taken: list[tuple[int, Any]] = []

    async def consume() -> None:
        async for key, result in queue.results():
            taken.append((key, result))

    async with aa.InferQueue(handler, concurrency=4, queue_limit=8, keep=5) as queue:
        iterator = queue.results()
        async with anyio.create_task_group() as group:

            async def produce() -> None:
                for value in range(-10, 40):
                    await queue.submit(value)
                await queue.close()

            group.start_soon(produce)
            taken.append(await anext(iterator))  # from here on nothing is dropped
            await settle()
            assert (begun, queue.statistics().kept) == (6, 5)
            for _ in range(3):
                group.start_soon(consume)
        assert queue.statistics().dropped == 0
    assert sorted(key for key, _ in taken) == list(range(50))
    for key, result in taken:
        assert isinstance(result, ValueError) if key < 10 else result == 2 * (key - 10)


async def test_a_handler_that_ends_its_worker_is_known_to_all() -> None:
    class End(BaseException):
        pass

    unit = HeldUnit()
    errors: list[BaseException] = []

    async def use() -> None:
        async with aa.InferQueue(unit, concurrency=1) as queue:
            queues.append(queue)
            ids = [await queue.submit(number) for number in range(5)]

            async def wait(key: int) -> None:
                with anyio.CancelScope(shield=True):
                    try:
                        await queue.result(key)
                    except BaseException as error:
                        errors.append(error)

            async with anyio.create_task_group() as group:
                for key in ids:
                    group.start_soon(wait, key)
                await settle()
                unit.end(End("enough"))

    queues: list[aa.InferQueue[Any, Any]] = []
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - a group of exceptions
        await use()
    assert "enough" in repr(raised.value.exceptions)  # type: ignore[attr-defined]
    assert [type(error) for error in errors] == [aa.RuntimeClosedError] * 5
    assert {type(error.__cause__) for error in errors} == {End}
    assert len({id(error) for error in errors}) == 5
    with pytest.raises(aa.RuntimeClosedError) as closed:
        await queues[0].submit(6)
    assert isinstance(closed.value.__cause__, End)
    check_identity(queues[0])


@pytest.mark.asyncio_only
async def test_a_cancelled_operation_does_not_end_the_worker() -> None:
    calls = 0

    async def handler(value: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            future.cancel()
            await future
        return value

    async with aa.InferQueue(handler, concurrency=1) as queue:
        first, second = await queue.submit(1), await queue.submit(2)
        with pytest.raises(aa.AioascendError, match="nobody has cancelled it") as raised:
            await queue.result(first)
        assert isinstance(raised.value.__cause__, asyncio.CancelledError)
        assert await queue.result(second) == 2
        assert queue.statistics().failed == 1


@pytest.mark.parametrize("drain", [True, False])
async def test_closing_with_and_without_draining(drain: bool) -> None:
    unit = HeldUnit()
    outcomes: dict[str, Any] = {}
    async with aa.InferQueue(unit, concurrency=1, queue_limit=1) as queue:

        async def request(name: str) -> None:
            try:
                outcomes[name] = await queue.result(await queue.submit(name))
            except aa.RuntimeClosedError as error:
                outcomes[name] = error

        async with anyio.create_task_group() as group:
            for name in ("running", "queued", "at the door"):
                group.start_soon(request, name)
                await settle()
            closed = anyio.Event()

            async def close() -> None:
                await queue.close(drain=drain)
                closed.set()

            group.start_soon(close)
            await settle()
            with pytest.raises(aa.RuntimeClosedError, match="closing"):
                await queue.submit("late")
            if drain:
                for _ in range(3):
                    assert not closed.is_set()
                    unit.end()
                    await settle()
            assert closed.is_set()
        check_identity(queue)
    with pytest.raises(aa.RuntimeClosedError, match="closed"):
        queue.try_submit("later")
    if drain:
        assert outcomes == {name: name for name in ("running", "queued", "at the door")}
    else:
        assert unit.calls == ["running"]
        assert {name: "under way" in str(error) for name, error in outcomes.items()} == {
            "running": True,
            "queued": False,
            "at the door": False,
        }
        assert queue.statistics().cancelled == 3


async def test_leaving_by_an_exception_raises_it_as_it_is_and_ends_everything() -> None:
    unit = HeldUnit()

    async def use() -> None:
        async with aa.InferQueue(unit, concurrency=1) as queue:
            queues.append(queue)
            for name in ("a", "b"):
                await queue.submit(name)
            await settle()
            raise KeyError("mine")

    queues: list[aa.InferQueue[Any, Any]] = []
    with pytest.raises(KeyError, match="mine"):
        await use()
    statistics = queues[0].statistics()
    assert (statistics.waiting, statistics.running, statistics.cancelled) == (0, 0, 2)
    assert unit.next_end == float("inf")


async def test_the_counts_add_up_at_any_moment() -> None:
    choice = random.Random(23)
    unit = HeldUnit()
    ids: list[int] = []
    async with aa.InferQueue(unit, concurrency=3, queue_limit=6, keep=5) as queue:

        async def submit() -> None:
            try:
                ids.append(await queue.submit("x", timeout=choice.choice([None, None, 1e-9])))
                if choice.random() < 0.5:
                    await queue.result(ids[-1])
            except (
                aa.DeadlineError,
                aa.RuntimeClosedError,
                ValueError,
                LookupError,
                concurrent.futures.CancelledError,
            ):
                pass

        async with anyio.create_task_group() as group:
            for _ in range(1000):
                match choice.randrange(6):
                    case 0 | 1:
                        group.start_soon(submit)
                    case 2:
                        with contextlib.suppress(aa.QueueFullError):
                            queue.try_submit("y")
                    case 3 if ids:
                        with contextlib.suppress(LookupError):
                            queue.cancel(choice.choice(ids))
                    case _:
                        if unit.next_end < float("inf"):
                            unit.end(choice.choice([None, ValueError("bad")]))
                for _ in range(choice.randrange(4)):
                    await anyio.lowlevel.checkpoint()
                    check_identity(queue)
            await queue.close(drain=False)
        check_identity(queue)
        one = queue.statistics()
    assert (one.waiting, one.running) == (0, 0)
    assert min(one.ok, one.failed, one.cancelled, one.timed_out, one.rejected, one.dropped) > 0


# --- threads ---


async def in_thread(work: Callable[[], None]) -> None:
    await anyio.to_thread.run_sync(work)


async def test_threads_get_futures() -> None:
    sums: list[int] = []

    def work() -> None:
        futures = [queue.submit_from_thread(value) for value in range(20)]
        sums.append(sum(future.result(timeout=60) for future in futures))
        with pytest.raises(ValueError, match="negative"):
            queue.submit_from_thread(-1).result(timeout=60)

    async with aa.InferQueue(double, queue_limit=2) as queue:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(in_thread, work)
        assert queue.statistics().kept == 0
        check_identity(queue)
        with pytest.raises(RuntimeError, match="use submit"):
            queue.submit_from_thread(1)
    assert sums == [380] * 3
    with pytest.raises(aa.RuntimeClosedError):
        queue.submit_from_thread(1)


async def test_cancelling_the_future_of_a_thread_cancels_the_request() -> None:
    unit = HeldUnit()
    submitted, cancel = threading.Event(), threading.Event()

    def work() -> None:
        futures = [queue.submit_from_thread(name) for name in ("running", "queued", "last")]
        submitted.set()
        assert cancel.wait(60)
        assert futures[1].cancel()
        assert futures[0].cancel()
        assert futures[2].result(timeout=60) == "last"

    async with aa.InferQueue(unit, concurrency=1) as queue:
        async with anyio.create_task_group() as group:
            group.start_soon(in_thread, work)
            while not submitted.is_set() or queue.statistics().waiting < 2 or not unit.calls:
                await anyio.lowlevel.checkpoint()
            cancel.set()
            while queue.statistics().cancelled < 2 or len(unit.calls) < 2:
                await anyio.lowlevel.checkpoint()
            unit.end()
        assert unit.calls == ["running", "last"]


async def test_closing_waits_for_requests_of_threads() -> None:
    unit = HeldUnit()
    futures: list[concurrent.futures.Future[str]] = []
    async with aa.InferQueue(unit) as queue:
        await in_thread(lambda: futures.append(queue.submit_from_thread("x")))
        while not unit.calls:
            await anyio.lowlevel.checkpoint()

        async def end() -> None:
            await settle()
            unit.end()

        async with anyio.create_task_group() as group:
            group.start_soon(end)
            await queue.close()
    assert futures[0].result(timeout=0) == "x"


# --- arguments ---


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"handler": 1}, TypeError, "handler must be an async function, not 1"),
        ({"concurrency": 0}, ValueError, "concurrency .* not 0"),
        ({"queue_limit": 0}, ValueError, "queue_limit .* not 0"),
        ({"keep": "all"}, TypeError, "keep .* not 'all'"),
    ],
)
async def test_arguments_are_checked(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        aa.InferQueue(**{"handler": double, **arguments})


async def test_arguments_of_requests_are_checked() -> None:
    async with aa.InferQueue(double) as queue:
        with pytest.raises(ValueError, match=r"timeout .* not -1"):
            await queue.submit(1, timeout=-1)
        with pytest.raises(TypeError, match=r"timeout .* not 'soon'"):
            queue.try_submit(1, timeout="soon")  # type: ignore[arg-type]
        with pytest.raises(LookupError, match=r"no request \[\] in the queue"):
            await queue.result([])  # type: ignore[arg-type]
        assert queue.statistics().submitted == 0
