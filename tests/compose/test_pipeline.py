# SPDX-License-Identifier: Apache-2.0
"""Items through stages: order, sources, what happens when a stage raises, how many there are at the same time."""

from __future__ import annotations

import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest
import stamina

import aioascend as aa
from aioascend.errors import error_from_code
from compose.stages import Gate, check_books, collected, double, notes_of, pass_on, settled
from runtime.conftest import LOOPS

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[LOOPS["asyncio"], LOOPS["trio"]], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Without uvloop: nothing here depends on the loop, but on who schedules the tasks."""
    return request.param


async def countdown(count: int) -> AsyncIterator[int]:
    for number in range(count):
        await anyio.lowlevel.checkpoint()
        yield number


# --- results ---


async def test_results_come_in_the_order_of_the_source() -> None:
    gate = Gate()
    async with aa.Pipeline(pass_on, aa.Stage(gate, concurrency=3), double) as pipeline:
        async with anyio.create_task_group() as group:
            results: list[int] = []

            async def consume() -> None:
                results.extend(await collected(pipeline.map(range(6))))

            group.start_soon(consume)
            await gate.holds(0, 1, 2)
            gate.open(2, 1)
            await gate.holds(0, 3, 4)
            await settled()
            assert results == []
            gate.open()
        assert results == [0, 2, 4, 6, 8, 10]
        assert check_books(pipeline).ok == 6


async def test_results_come_as_they_are_ready() -> None:
    gate = Gate()
    async with aa.Pipeline(aa.Stage(gate, concurrency=3), double) as pipeline:
        results = pipeline.map(range(3), ordered=False)
        for number in (2, 0, 1):
            gate.open(number)
            assert await anext(results) == 2 * number
        with pytest.raises(StopAsyncIteration):
            await anext(results)


@pytest.mark.parametrize("kind", ["list", "iterator", "async generator", "receive stream", "another map"])
async def test_a_source_is_whatever_can_be_iterated(kind: str) -> None:
    send, receive = anyio.create_memory_object_stream[int](5)
    async with aa.Pipeline(pass_on) as first, aa.Pipeline(double) as pipeline:
        with send, receive:
            for number in range(5):
                send.send_nowait(number)
            send.close()
            source: dict[str, Callable[[], Any]] = {
                "list": lambda: [0, 1, 2, 3, 4],
                "iterator": lambda: iter(range(5)),
                "async generator": lambda: countdown(5),
                "receive stream": lambda: receive,
                "another map": lambda: first.map(range(5)),
            }
            assert await collected(pipeline.map(source[kind]())) == [0, 2, 4, 6, 8]


async def test_an_empty_source_has_no_results() -> None:
    async with aa.Pipeline(double) as pipeline:
        assert await collected(pipeline.map([])) == []
        assert await collected(pipeline.map(countdown(0))) == []


async def test_one_item_goes_through_all_stages() -> None:
    async with aa.Pipeline(double, double) as pipeline:
        assert await pipeline(3) == 12


async def test_several_sources_pass_at_the_same_time() -> None:
    gate = Gate()
    async with aa.Pipeline(aa.Stage(gate, queue_limit=0)) as pipeline:
        found: dict[str, list[Any]] = {}

        async def consume(name: str) -> None:
            found[name] = await collected(pipeline.map([f"{name}{number}" for number in range(20)]))

        async with anyio.create_task_group() as group:
            for name in "abc":
                group.start_soon(consume, name)
            await settled()
            gate.open()
        assert found == {name: [f"{name}{number}" for number in range(20)] for name in "abc"}
        turns = [item[0] for item in gate.seen]
        # They take turns: none of them is two items ahead of another that has something to do.
        assert all(abs(turns[:end].count("a") - turns[:end].count("b")) <= 2 for end in range(60))


async def test_a_map_that_is_not_taken_from_holds_up_no_other() -> None:
    async with aa.Pipeline(double, double) as pipeline:
        lazy = pipeline.map(range(1000), limit=3)
        assert await anext(lazy) == 0
        assert await collected(pipeline.map(range(50))) == [4 * number for number in range(50)]
        assert await pipeline(1) == 4
        await settled()
        assert pipeline.statistics().submitted == 50 + 1 + 4
        assert await anext(lazy) == 4
        await lazy.aclose()


# --- how many at the same time ---


async def test_a_stage_has_as_many_items_as_workers() -> None:
    gate = Gate()
    async with aa.Pipeline(aa.Stage(gate, concurrency=4)) as pipeline:
        async with anyio.create_task_group() as group:
            group.start_soon(collected, pipeline.map(range(40)))
            await gate.holds(0, 1, 2, 3)
            await settled()
            assert len(gate.inside) == 4
            gate.open()
        assert gate.most == 4


async def test_what_waits_is_bounded_by_the_queues() -> None:
    gate = Gate()
    taken: list[int] = []

    def source() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    stages = aa.Stage(pass_on, queue_limit=1), aa.Stage(gate, queue_limit=3)
    async with aa.Pipeline(*stages) as pipeline, anyio.create_task_group() as group:
        group.start_soon(collected, pipeline.map(source()))
        await gate.holds(0)
        await settled()
        # One in the gate, three in front of it, one with the first stage, one in its queue, one on its way there.
        assert len(taken) == 1 + 3 + 1 + 1 + 1
        statistics = check_books(pipeline, at_rest=False)
        assert [stage.waiting for stage in statistics.stages] == [2, 4]
        assert (statistics.running, statistics.waiting) == (1, 6)
        gate.open()


@pytest.mark.parametrize("kind", ["ordinary", "asynchronous"])
async def test_a_source_does_not_keep_the_loop_to_itself(kind: str) -> None:
    """Although there is room for all of it."""
    taken: list[int] = []

    def source() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    async def asynchronous() -> AsyncIterator[int]:
        for number in source():
            yield number

    async with aa.Pipeline(aa.Stage(double, queue_limit=1000)) as pipeline, anyio.create_task_group() as group:
        items: Any = source() if kind == "ordinary" else asynchronous()
        group.start_soon(collected, pipeline.map(items, limit=1000))
        while not taken:
            await anyio.lowlevel.checkpoint()
        assert len(taken) < 100


async def test_results_that_nobody_takes_are_bounded_by_the_limit() -> None:
    gate = Gate()
    async with aa.Pipeline(aa.Stage(gate, concurrency=2)) as pipeline:
        results = pipeline.map(range(100), limit=6)
        async with anyio.create_task_group() as group:
            group.start_soon(anext, results)
            await gate.holds(0, 1)
            gate.open(*range(1, 100))
            await gate.holds(0)
            await settled()
            # The first is still in its stage, so what is behind it waits to be put in order.
            assert sorted(gate.seen) == [0, 1, 2, 3, 4, 5]
            assert pipeline.statistics().ok == 5
            gate.open()
        await settled()
        assert sorted(gate.seen) == [0, 1, 2, 3, 4, 5, 6]
        assert await collected(results) == list(range(1, 100))


@pytest.mark.parametrize("anyio_backend", [LOOPS["asyncio"]])
async def test_a_hundred_thousand_items_are_never_there_at_the_same_time() -> None:
    class Thing:
        alive = most = 0

        def __init__(self) -> None:
            Thing.alive += 1
            Thing.most = max(Thing.most, Thing.alive)

        def __del__(self) -> None:
            Thing.alive -= 1

    async def change(thing: Thing) -> Thing:
        return Thing()

    async with aa.Pipeline(change, aa.Stage(change, concurrency=2, queue_limit=4)) as pipeline:
        count = 0
        async for _ in pipeline.map((Thing() for _ in range(100_000)), limit=18):
            count += 1
        # A stage has the item and its result; the one that the loop has in hand has been taken.
        assert count == 100_000
        assert Thing.most <= 18 + 3 + 1 + 1
        del _
    gc.collect()
    assert Thing.alive == 0


# --- failures ---


class OddError(Exception):
    pass


async def refuse_odd(number: int) -> int:
    await anyio.lowlevel.checkpoint()
    if number % 2:
        raise OddError(number)
    return number


async def test_a_failure_is_raised_in_its_place_and_says_where() -> None:
    async with aa.Pipeline(double, pass_on, aa.Stage(lambda n: refuse_odd(n // 2), name="halve")) as pipeline:
        results = pipeline.map([0, 2, 4, 5, 6, 7, *range(1000)])
        assert [await anext(results) for _ in range(3)] == [0, 2, 4]
        with pytest.raises(OddError) as caught:
            await anext(results)
        assert caught.value.args == (5,)
        assert "in stage 'halve' of item 3" in notes_of(caught.value)
        with pytest.raises(StopAsyncIteration):
            await anext(results)
        await results.aclose()
        statistics = check_books(pipeline)
        assert statistics.failed >= 1
        assert statistics.submitted < 50  # the source was left where it was
        assert await pipeline(8) == 8


async def test_what_is_in_front_of_a_failure_still_comes() -> None:
    gate = Gate()

    async def stage(number: int) -> int:
        if number == 1:
            raise OddError(number)
        return int(await gate(number))

    async with aa.Pipeline(aa.Stage(stage, concurrency=3)) as pipeline:
        results = pipeline.map(range(10))
        async with anyio.create_task_group() as group:
            group.start_soon(gate.holds, 0)
            first: list[int] = []

            async def take() -> None:
                first.append(await anext(results))

            group.start_soon(take)
            await settled()
            assert gate.inside == [0]
            gate.open()
        assert first == [0]
        with pytest.raises(OddError):
            await anext(results)


async def test_without_an_order_a_failure_ends_all() -> None:
    gate = Gate()

    async def stage(number: int) -> int:
        if number == 1:
            raise OddError(number)
        return int(await gate(number))

    async with aa.Pipeline(aa.Stage(stage, concurrency=3)) as pipeline:
        with pytest.raises(OddError):
            await collected(pipeline.map(range(10), ordered=False))
        await settled()
        assert gate.inside == []
        check_books(pipeline)


@pytest.mark.parametrize("ordered", [True, False])
async def test_failures_are_left_out(ordered: bool) -> None:
    async with aa.Pipeline(pass_on, aa.Stage(refuse_odd, concurrency=2)) as pipeline:
        results = await collected(pipeline.map(range(20), on_error="skip", ordered=ordered))
        assert sorted(results) == list(range(0, 20, 2))
        statistics = check_books(pipeline)
        assert (statistics.ok, statistics.failed) == (10, 10)
        assert [stage.skipped for stage in statistics.stages] == [0, 10]


async def test_failures_stand_in_the_place_of_results() -> None:
    async with aa.Pipeline(double, lambda number: refuse_odd(number // 2)) as pipeline:
        results = await collected(pipeline.map(range(4), on_error="collect"))
        assert results[::2] == [0, 2]
        for failed, number in zip(results[1::2], (1, 3), strict=True):
            assert isinstance(failed, aa.Failed)
            assert (failed.item, failed.index, failed.stage) == (number, number, "<lambda>")
            assert isinstance(failed.error, OddError)


@pytest.mark.parametrize("on_error", ["raise", "skip", "collect"])
async def test_a_source_that_fails_is_reported_as_such(on_error: Any) -> None:
    def broken() -> Iterator[int]:
        yield from (1, 2, 3)
        raise OSError("disk on fire")

    async def broken_too() -> AsyncIterator[int]:
        for number in broken():
            yield number

    async with aa.Pipeline(double) as pipeline:
        for source in (broken(), broken_too()):
            results = pipeline.map(source, on_error=on_error)
            assert [await anext(results) for _ in range(3)] == [2, 4, 6]
            with pytest.raises(OSError, match="disk on fire") as caught:
                await anext(results)
            assert "from the source, after 3 items" in notes_of(caught.value)


async def test_a_call_raises_what_its_stage_raises() -> None:
    async with aa.Pipeline(double, lambda number: refuse_odd(number // 2)) as pipeline:
        with pytest.raises(OddError) as caught:
            await pipeline(3)
        assert "in stage '<lambda>'" in notes_of(caught.value)
        assert "of item" not in notes_of(caught.value)
        assert await pipeline(4) == 4


@pytest.mark.asyncio_only
async def test_a_stage_that_awaits_what_was_cancelled_fails_by_itself() -> None:
    import asyncio

    async def stage(number: int) -> int:
        if number == 1:
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            future.cancel()
            return await future
        return number

    async with aa.Pipeline(stage) as pipeline:
        first, failed, last = await collected(pipeline.map(range(3), on_error="collect"))
        assert (first, last) == (0, 2)
        assert isinstance(failed.error, aa.AioascendError)
        assert "nobody has cancelled it" in str(failed.error)
        assert isinstance(failed.error.__cause__, asyncio.CancelledError)
        assert "in stage 'stage' of item 1" in notes_of(failed.error)


@pytest.mark.asyncio_only
async def test_a_source_that_awaits_what_was_cancelled_fails_by_itself() -> None:
    import asyncio

    async def source() -> AsyncIterator[int]:
        yield 1
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.cancel()
        yield await future

    async with aa.Pipeline(double) as pipeline:
        results = pipeline.map(source())
        assert await anext(results) == 2
        with pytest.raises(aa.AioascendError, match=r"the source has ended by .*nobody has cancelled it") as caught:
            await anext(results)
        assert "from the source, after 1 items" in notes_of(caught.value)
        assert await pipeline(2) == 4


async def test_a_stage_is_tried_again_by_a_decorator() -> None:
    tried: list[int] = []

    @stamina.retry(on=aa.is_transient, attempts=3)
    async def flaky(number: int) -> int:
        tried.append(number)
        if tried.count(number) <= number:
            raise error_from_code(507015 if number == 1 else 207001, "execute")
        return number

    stamina.set_testing(True, attempts=3)  # without pauses
    try:
        async with aa.Pipeline(flaky) as pipeline:
            good, at_fault, late, given_up = await collected(pipeline.map(range(4), on_error="collect"))
    finally:
        stamina.set_testing(False)
    assert (good, late) == (0, 2)
    assert isinstance(at_fault.error, aa.TaskError)
    assert isinstance(given_up.error, aa.OutOfMemoryError)
    assert tried == [0, 1, 2, 2, 2, 3, 3, 3]


# --- one item, many results ---


async def test_results_of_one_item_are_gathered_by_a_pipeline_in_a_stage() -> None:
    gate = Gate(opened=True)

    async with aa.Pipeline(aa.Stage(gate, concurrency=2), double) as crops:

        async def label(count: int) -> list[int]:
            return [label async for label in crops.map(range(count))]

        async with aa.Pipeline(pass_on, aa.Stage(label, concurrency=3)) as frames:
            assert await collected(frames.map([3, 0, 2, 5])) == [[0, 2, 4], [], [0, 2], [0, 2, 4, 6, 8]]
        assert gate.most == 2  # for all frames together
        check_books(crops)


async def test_one_item_becomes_many_by_a_generator_between_two_pipelines() -> None:
    async def parts(frames: Any) -> AsyncIterator[str]:
        async for frame in frames:
            for part in range(frame):
                yield f"{frame}.{part}"

    async with aa.Pipeline(pass_on) as frames, aa.Pipeline(pass_on) as crops:
        assert await collected(crops.map(parts(frames.map([2, 0, 1])))) == ["2.0", "2.1", "1.0"]
        async for crop in crops.map(parts(frames.map(range(2, 1000)))):
            if crop == "3.1":
                break
        await settled()
        assert check_books(frames).submitted < 50


# --- threads ---


async def test_ordinary_functions_run_in_threads() -> None:
    threads: set[int] = set()
    both = threading.Barrier(2)

    def blocking(number: int) -> int:
        threads.add(threading.get_ident())
        both.wait(timeout=60)  # as many at the same time as there are workers
        return number + 1

    async with aa.Pipeline(aa.Stage(blocking, thread=True, concurrency=2), double) as pipeline:
        assert await collected(pipeline.map(range(4))) == [2, 4, 6, 8]
    assert threading.get_ident() not in threads


class Asynchronous:
    async def __call__(self, number: int) -> int:
        return number


async def test_what_has_to_be_awaited_is_told_from_a_thread() -> None:
    async with aa.Pipeline(aa.Stage(Asynchronous(), thread=True)) as pipeline:
        with pytest.raises(TypeError, match=r"'Asynchronous' has returned coroutine.*leave out thread=True"):
            await pipeline(1)


async def test_a_thread_that_nobody_waits_for_keeps_its_worker() -> None:
    go_on = threading.Event()
    running: list[int] = []

    def blocking(number: int) -> int:
        running.append(number)
        go_on.wait(timeout=60)
        return number

    async with aa.Pipeline(aa.Stage(blocking, thread=True)) as pipeline:
        async with anyio.create_task_group() as group:
            for number in range(2):
                group.start_soon(pipeline, number)
            while not running:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        await settled()
        assert len(running) == 1
        statistics = check_books(pipeline, at_rest=False)
        assert (statistics.running, statistics.cancelled, statistics.stages[0].running) == (0, 2, 1)
        go_on.set()
        assert await pipeline(5) == 5
        assert running[1:] == [5]
        check_books(pipeline)


# --- what cannot be ---


async def generate(item: int) -> AsyncIterator[int]:
    yield item


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: aa.Pipeline(), TypeError, "at least one stage"),  # type: ignore[call-overload]
        (lambda: aa.Pipeline(7), TypeError, "a stage is a function, not 7"),  # type: ignore[call-overload]
        (lambda: aa.Stage(double, concurrency=0), ValueError, "a number of workers, 1 to 10000, not 0"),
        (lambda: aa.Stage(double, queue_limit=-1), ValueError, "queue_limit must be .*, 0 to 1000000, not -1"),
        (lambda: aa.Stage(double, queue_limit=1.5), TypeError, "not 1.5"),  # type: ignore[call-overload]
        (lambda: aa.Stage(double, name=3), TypeError, "name must be text, not 3"),  # type: ignore[call-overload]
        (lambda: aa.Stage(double, thread=True), TypeError, "'double' is an async def"),
        (lambda: aa.Stage(generate), TypeError, "'generate' is a generator"),  # type: ignore[type-var]
        (lambda: aa.Stage(len, thread=True, streams=object()), ValueError, "leave out streams"),  # type: ignore[call-overload]
        (lambda: aa.Stage(double, streams=5), TypeError, "a Device or a pool of streams, not 5"),  # type: ignore[call-overload]
    ],
)  # fmt: skip
async def test_stages_that_cannot_be(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


async def test_maps_that_cannot_be() -> None:
    async with aa.Pipeline(double) as pipeline:
        with pytest.raises(TypeError, match="an iterable or an async iterable, not 5"):
            pipeline.map(5)  # type: ignore[call-overload]
        with pytest.raises(ValueError, match=r"on_error must be .* not 'ignore'"):
            pipeline.map([1], on_error="ignore")  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="limit must be a number of items"):
            pipeline.map([1], limit=0)
        with pytest.raises(ValueError, match="timeout must be a number of seconds above 0"):
            await pipeline(1, timeout=0)
        assert pipeline.statistics().submitted == 0


async def test_an_ordinary_function_says_what_to_do() -> None:
    async with aa.Pipeline(aa.Stage(abs, name="absolute")) as pipeline:  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"'absolute' has returned int.*thread=True"):
            await pipeline(-1)


async def test_one_task_at_a_time_asks_for_results() -> None:
    gate = Gate()
    async with aa.Pipeline(gate) as pipeline:
        results = pipeline.map([1])
        async with anyio.create_task_group() as group:
            group.start_soon(anext, results)
            await gate.holds(1)
            with pytest.raises(RuntimeError, match="another task"):
                await anext(results)
            gate.open()
