# SPDX-License-Identifier: Apache-2.0
"""How a pipeline ends: drained, closed, broken out of, cancelled, in time or not, and what is counted then."""

from __future__ import annotations

import contextlib
import gc
import itertools
import random
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
from trio.testing import MockClock

import aioascend as aa
from aioascend.testing import Simulator
from compose.stages import Gate, check_books, collected, double, notes_of, pass_on, settled

pytestmark = pytest.mark.anyio

COPY = b'[[inputs]]\nname = "x"\nshape = [4]\n[[outputs]]\nname = "y"\nshape = [4]\nfill = "copy"\n'


class Outcomes:
    """What came of calls, by item."""

    def __init__(self, pipeline: aa.Pipeline[Any, Any]) -> None:
        self.pipeline = pipeline
        self.of: dict[Any, Any] = {}

    async def call(self, item: Any, **options: Any) -> None:
        try:
            self.of[item] = await self.pipeline(item, **options)
        except Exception as error:
            self.of[item] = error
        except anyio.get_cancelled_exc_class():
            self.of[item] = "cancelled"
            raise

    def errors(self) -> dict[Any, Exception]:
        return {item: outcome for item, outcome in self.of.items() if isinstance(outcome, Exception)}


async def until_it_ends(results: Any, found: list[Any]) -> None:
    async for result in results:
        found.append(result)  # noqa: PERF401 - what was found counts, however it ends


# --- closing ---


async def test_closing_lets_all_that_was_taken_through() -> None:
    gate = Gate()
    stages = (aa.Stage(stage, queue_limit=2) for stage in (pass_on, gate, double))
    closed: list[str] = []
    async with aa.Pipeline(*stages) as pipeline, anyio.create_task_group() as group:
        outcomes = Outcomes(pipeline)
        for number in range(10):
            group.start_soon(outcomes.call, number)
        await settled()

        async def close(name: str) -> None:
            await pipeline.close(grace=1000)
            closed.append(name)

        group.start_soon(close, "a")
        group.start_soon(close, "b")
        await settled()
        assert pipeline.closed
        with pytest.raises(aa.RuntimeClosedError, match="pipeline pass_on > gate > double is closed"):
            await pipeline(10)
        assert closed == []
        gate.open()
        await settled()
        assert sorted(closed) == ["a", "b"]  # as soon as it is empty, not when the grace is over
        assert outcomes.of == {number: 2 * number for number in range(10)}
    statistics = check_books(pipeline)
    assert (statistics.ok, statistics.rejected) == (10, 1)


async def test_a_failing_stage_is_named_and_fails_one_item() -> None:
    async def second(number: int) -> int:
        await anyio.lowlevel.checkpoint()
        if number == 4:
            raise ValueError("not this one")
        return number

    async with aa.Pipeline(pass_on, second, double) as pipeline, anyio.create_task_group() as group:
        outcomes = Outcomes(pipeline)
        for number in range(10):
            group.start_soon(outcomes.call, number)
        while pipeline.statistics().submitted < 10:
            await anyio.lowlevel.checkpoint()
        await pipeline.close(grace=1000)
    [(item, error)] = outcomes.errors().items()
    assert item == 4
    assert isinstance(error, ValueError)
    assert "in stage 'second'" in notes_of(error)
    assert {number for number, outcome in outcomes.of.items() if outcome == 2 * number} == set(range(10)) - {4}


@pytest.mark.parametrize("grace", [0, 0.01])
async def test_what_is_stuck_fails_when_the_grace_is_over(grace: float, npu: aa.Device, sim: Simulator) -> None:
    source = np.ones(4, "float32")

    async def stuck(number: int, stream: aa.Stream) -> int:
        await stream.memcpy(npu.empty(4), source)
        return number

    stages = pass_on, aa.Stage(stuck, streams=npu, queue_limit=1)
    async with aa.Pipeline(*stages) as pipeline:
        outcomes = Outcomes(pipeline)
        async with anyio.create_task_group() as group:
            with sim.hold(device=npu):
                for number in range(8):
                    group.start_soon(outcomes.call, number)
                await settled()
                await pipeline.close(grace=grace)
                await settled()
                assert len(outcomes.errors()) == 8
                assert {type(error) for error in outcomes.errors().values()} == {aa.RuntimeClosedError}
    assert check_books(pipeline).failed == 8


async def test_a_map_that_is_closed_gives_what_was_taken_and_says_that_it_is_not_all() -> None:
    gate = Gate()
    results: list[int] = []
    async with aa.Pipeline(pass_on, gate) as pipeline, anyio.create_task_group() as group:

        async def consume() -> None:
            with pytest.raises(aa.RuntimeClosedError, match="before all of the source was taken"):
                await until_it_ends(pipeline.map(itertools.count()), results)

        group.start_soon(consume)
        await gate.holds(0)
        await settled()
        taken = pipeline.statistics().submitted
        group.start_soon(pipeline.close)
        await settled()
        gate.open()
    assert results == list(range(taken))


@pytest.mark.parametrize("on_error", ["raise", "skip", "collect"])
async def test_what_closing_leaves_is_never_passed_over(on_error: Any) -> None:
    gate = Gate()
    async with aa.Pipeline(aa.Stage(gate, concurrency=2)) as pipeline, anyio.create_task_group() as group:

        async def consume() -> None:
            results = pipeline.map([0, 1], on_error=on_error)
            assert await anext(results) == 0
            with pytest.raises(aa.RuntimeClosedError, match="before the item was through"):
                await anext(results)

        group.start_soon(consume)
        await gate.holds(0, 1)
        gate.open(0)
        await gate.holds(1)
        await pipeline.close(grace=0)
    assert gate.cancelled == [1]
    check_books(pipeline)


async def test_a_close_that_is_cancelled_leaves_it_closed() -> None:
    gate = Gate()
    async with aa.Pipeline(gate) as pipeline, anyio.create_task_group() as group:
        outcomes = Outcomes(pipeline)
        group.start_soon(outcomes.call, 1)
        await gate.holds(1)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await pipeline.close()
        assert pipeline.closed
        assert gate.inside == [1]
        gate.open()
    assert outcomes.of == {1: 1}


@pytest.mark.parametrize("grace", [-1, True, "5", float("nan")])
async def test_a_grace_that_is_none(grace: Any) -> None:
    async with aa.Pipeline(double) as pipeline:
        with pytest.raises((TypeError, ValueError), match="grace must be a number of seconds"):
            await pipeline.close(grace=grace)
        assert not pipeline.closed


# --- ending early ---


async def test_breaking_out_leaves_nothing_running() -> None:
    gate = Gate()
    ended: list[str] = []

    async def source() -> AsyncIterator[int]:
        try:
            for number in itertools.count():
                await anyio.lowlevel.checkpoint()
                yield number
        finally:
            ended.append("source")

    async with aa.Pipeline(pass_on, aa.Stage(gate, concurrency=2)) as pipeline:
        gate.open(0)
        async for result in pipeline.map(source()):
            assert result == 0
            break
        await gate.holds()
        await settled()
        assert ended == ["source"]
        assert check_books(pipeline).ok <= 1 + 1
        gate.open()
        assert await collected(pipeline.map([7])) == [7]


async def test_a_source_that_nothing_comes_from_is_left() -> None:
    send, receive = anyio.create_memory_object_stream[int](1)
    with send, receive:
        async with aa.Pipeline(pass_on) as pipeline:
            send.send_nowait(1)
            async for _ in pipeline.map(receive):
                break
            await settled()
            send.send_nowait(2)
            assert receive.receive_nowait() == 2  # it is nobody's but ours


async def test_the_block_can_end_in_the_middle_of_a_map() -> None:
    gate = Gate(opened=True)
    async with aa.Pipeline(pass_on, gate) as pipeline:
        results = pipeline.map(itertools.count())
        assert await anext(results) == 0
    assert gate.inside == []
    rest: list[int] = []
    with pytest.raises(aa.RuntimeClosedError):
        await until_it_ends(results, rest)
    assert rest == list(range(1, check_books(pipeline).submitted))


async def test_an_error_in_the_block_comes_out_as_it_is() -> None:
    gate = Gate()
    pipeline = aa.Pipeline(aa.Stage(gate, concurrency=2))
    outcomes = Outcomes(pipeline)
    mine = KeyError("mine")
    async with anyio.create_task_group() as group:
        with pytest.raises(KeyError) as caught:  # noqa: PT012
            async with pipeline:
                group.start_soon(outcomes.call, 1)
                await gate.holds(1)
                raise mine
    assert caught.value is mine
    assert mine.__context__ is None
    assert gate.cancelled == [1]
    assert isinstance(outcomes.of[1], aa.RuntimeClosedError)
    check_books(pipeline)


async def test_a_cancelled_block_takes_all_with_it() -> None:
    gate = Gate()
    with anyio.CancelScope() as scope:
        async with aa.Pipeline(aa.Stage(gate, concurrency=2)) as pipeline, anyio.create_task_group() as group:
            group.start_soon(collected, pipeline.map(range(10)))
            await gate.holds(0, 1)
            scope.cancel()
    assert scope.cancelled_caught
    assert sorted(gate.cancelled) == [0, 1]
    check_books(pipeline)


async def test_cancelling_who_waits_for_the_next_result_ends_the_map() -> None:
    gate = Gate()
    async with aa.Pipeline(gate) as pipeline:
        results = pipeline.map(range(10))
        async with anyio.create_task_group() as group:
            group.start_soon(anext, results)
            await gate.holds(0)
            group.cancel_scope.cancel()
        with pytest.raises(StopAsyncIteration):
            await anext(results)
        await results.aclose()
        assert gate.cancelled == [0]
        check_books(pipeline)


async def test_aclose_waits_until_no_stage_has_any_of_it() -> None:
    running, go_on = threading.Event(), threading.Event()

    def blocking(number: int) -> int:
        running.set()
        go_on.wait(timeout=60)
        return number

    async with aa.Pipeline(aa.Stage(blocking, thread=True)) as pipeline:
        results = pipeline.map(range(10))
        async with anyio.create_task_group() as group:
            group.start_soon(anext, results)
            await anyio.to_thread.run_sync(running.wait)
            group.cancel_scope.cancel()
        closed = anyio.Event()

        async def close() -> None:
            await results.aclose()
            closed.set()

        async with anyio.create_task_group() as group:
            group.start_soon(close)
            await settled()
            assert not closed.is_set()
            go_on.set()
            with anyio.fail_after(60):
                await closed.wait()
        check_books(pipeline)


async def test_a_map_dropped_in_another_thread_ends() -> None:
    gate = Gate()
    async with aa.Pipeline(gate) as pipeline:
        kept = [pipeline.map(itertools.count())]
        gate.open(0)
        assert await anext(kept[0]) == 0
        await gate.holds(1)
        await anyio.to_thread.run_sync(kept.clear)
        with anyio.fail_after(60):
            await gate.holds()
        assert gate.cancelled == [1]
        await settled()
        check_books(pipeline)


async def test_a_map_in_a_cycle_ends_when_that_is_collected() -> None:
    gate = Gate(opened=True)
    async with aa.Pipeline(gate) as pipeline:
        results = pipeline.map(itertools.count())
        assert await anext(results) == 0
        results.myself = results  # type: ignore[attr-defined]
        del results
        gc.collect()
        await settled()
        check_books(pipeline)


# --- deadlines and cancelled calls ---


async def test_a_call_that_is_cancelled_is_given_to_no_further_stage() -> None:
    gate = Gate()
    async with aa.Pipeline(pass_on, gate) as pipeline:
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(pipeline, number)
            while not gate.inside:
                await anyio.lowlevel.checkpoint()
            await settled()
            first = gate.inside[0]
            group.cancel_scope.cancel()
        await settled()
        assert gate.seen == gate.cancelled == [first]
        assert check_books(pipeline).cancelled == 6


async def test_a_deadline_that_passes_in_the_queue_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    async with aa.Pipeline(aa.Stage(gate, queue_limit=4)) as pipeline:
        outcomes = Outcomes(pipeline)
        async with anyio.create_task_group() as group:
            group.start_soon(outcomes.call, 0)
            await gate.holds(0)

            async def call() -> None:
                await outcomes.call(1, timeout=1000)

            group.start_soon(call)
            await settled()
            now = anyio.current_time()
            monkeypatch.setattr(anyio, "current_time", lambda: now + 1000)
            gate.open()
        error = outcomes.of[1]
        assert isinstance(error, aa.DeadlineError)
        assert not error.started
        assert error.waited >= 999
        assert gate.seen == [0]
        assert check_books(pipeline).timed_out == 1


async def test_a_deadline_that_a_worker_sees_first_is_that_of_the_caller() -> None:
    gate = Gate()

    async def busy(number: int) -> int:
        await gate(number)
        while anyio.current_time() <= scope.deadline:  # the loop cannot come to it before the worker
            pass
        return number

    async def open_gate() -> None:
        gate.open()

    async with aa.Pipeline(aa.Stage(busy, queue_limit=4)) as pipeline, anyio.create_task_group() as group:
        group.start_soon(pipeline, 0)
        await gate.holds(0)
        with anyio.move_on_after(0.1) as scope:
            group.start_soon(open_gate)
            await pipeline(1)
        assert scope.cancelled_caught
        await settled()
        assert gate.seen == [0]
        statistics = check_books(pipeline)
        assert (statistics.timed_out, statistics.cancelled) == (0, 1)


async def test_a_timeout_frees_the_caller() -> None:
    gate = Gate()
    async with aa.Pipeline(aa.Stage(gate, queue_limit=4)) as pipeline:
        with pytest.raises(aa.DeadlineError, match="an item of pipeline gate was not done in time"):
            await pipeline(1, timeout=1e-3)
        with pytest.raises(TimeoutError), anyio.fail_after(1e-3):
            await pipeline(2)
        await settled()
        statistics = check_books(pipeline)
        assert (statistics.timed_out, statistics.cancelled) == (1, 1)


@pytest.mark.parametrize("anyio_backend", [("trio", {"clock": MockClock(autojump_threshold=0)})])
async def test_a_timeout_tells_whether_a_stage_has_had_the_item(anyio_backend: object) -> None:
    gate = Gate()
    async with aa.Pipeline(aa.Stage(gate, queue_limit=4)) as pipeline:
        with pytest.raises(aa.DeadlineError) as started:
            await pipeline(0, timeout=5)
        assert started.value.started
        assert started.value.waited == pytest.approx(5)
        await gate.holds()
        assert gate.cancelled == [0]
        async with anyio.create_task_group() as group:
            group.start_soon(pipeline, 1)
            await gate.holds(1)
            with pytest.raises(aa.DeadlineError) as queued:
                await pipeline(2, timeout=5)
            assert not queued.value.started
            with pytest.raises(TimeoutError) as caught, anyio.fail_after(5):
                await pipeline(3)
            assert not isinstance(caught.value, aa.DeadlineError)
            gate.open()
        assert gate.seen == [0, 1]
        statistics = check_books(pipeline)
        assert (statistics.timed_out, statistics.cancelled) == (2, 1)


# --- what goes wrong inside ---


async def test_a_failing_device_fails_its_items_and_no_others(npu: aa.Device, sim: Simulator) -> None:
    async with await npu.load_model(COPY) as model:

        async def load(number: int) -> np.ndarray[Any, Any]:
            return np.full(4, number, "float32")

        async with aa.Pipeline(load, aa.Stage(model, concurrency=2)) as pipeline:
            await pipeline(0)
            sim.fail_task(kind="execute", nth=5, code=507048)
            outcomes = Outcomes(pipeline)
            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(outcomes.call, number)
            failed = outcomes.errors()
            assert len([error for error in failed.values() if not isinstance(error, aa.DependencyError)]) == 1
            assert {getattr(error, "code", None) for error in failed.values()} == {507048}
            assert all("in stage" in notes_of(error) for error in failed.values())
            for number in range(20, 25):
                await outcomes.call(number)
            for number in set(range(25)) - set(failed):
                assert (outcomes.of[number] == number).all()
            assert set(failed) <= set(range(20))
            check_books(pipeline)


class EndOfTheWorld(BaseException):
    pass


@pytest.mark.parametrize("anyio_backend", ["trio"])  # asyncio ends the loop for less
async def test_what_is_no_exception_ends_all(anyio_backend: str) -> None:
    gate = Gate()

    async def last(item: int) -> int:
        if item == 2:
            raise EndOfTheWorld(item)
        return item

    pipeline = aa.Pipeline(aa.Stage(gate, concurrency=6), last)
    told: list[int] = []

    async def call(number: int) -> None:
        with pytest.raises(aa.RuntimeClosedError) as closed:
            await pipeline(number)
        assert isinstance(closed.value.__cause__, EndOfTheWorld)
        told.append(number)

    async with anyio.create_task_group() as group:
        with pytest.raises(BaseException, match="nursery") as caught:  # noqa: PT012
            async with pipeline:
                for number in range(6):
                    group.start_soon(call, number)
                await gate.holds(*range(6))
                gate.open(2)
                await anyio.sleep_forever()
    assert [type(error) for error in getattr(caught.value, "exceptions", ())] == [EndOfTheWorld]
    assert sorted(told) == list(range(6))
    assert pipeline.closed
    check_books(pipeline)


async def test_a_stream_that_cannot_be_had_is_told_when_the_block_is_entered(npu: aa.Device, sim: Simulator) -> None:
    async def stage(item: int, stream: aa.Stream) -> int:
        return item

    sim.fail_call("aclrtCreateStreamWithConfig", nth=3, code=207008)
    with pytest.raises(aa.ResourceError):
        async with aa.Pipeline(pass_on, aa.Stage(stage, streams=npu, concurrency=4)):
            raise AssertionError("it was entered")
    assert npu.statistics().streams == 0


# --- counting ---


@pytest.mark.parametrize("seed", range(4))
async def test_the_books_are_right_whatever_happens(seed: int) -> None:
    dice = random.Random(seed)

    async def stage(number: int) -> int:
        for _ in range(dice.randrange(4)):
            await anyio.lowlevel.checkpoint()
        if dice.random() < 0.1:
            raise ValueError(number)
        return number

    stages = [aa.Stage(stage, concurrency=dice.randrange(1, 4), queue_limit=dice.randrange(3)) for _ in range(3)]
    async with aa.Pipeline(*stages) as pipeline:  # type: ignore[call-overload]
        looking = anyio.Event()

        async def look() -> None:
            while not looking.is_set():
                check_books(pipeline, at_rest=False)
                await anyio.lowlevel.checkpoint()

        async def cancel(scope: anyio.CancelScope) -> None:
            for _ in range(dice.randrange(3)):
                await anyio.lowlevel.checkpoint()
            scope.cancel()

        async def call(number: int) -> None:
            chance = dice.random()
            with anyio.CancelScope() as scope, contextlib.suppress(ValueError, aa.DeadlineError):
                if chance < 0.2:
                    watch.start_soon(cancel, scope)
                elif chance < 0.4:
                    scope.deadline = anyio.current_time() + dice.random() * 1e-3
                await pipeline(number, timeout=1e-4 if chance > 0.9 else None)

        async def take(on_error: Any) -> None:
            with contextlib.suppress(ValueError):
                async for number in pipeline.map(range(100), on_error=on_error, ordered=dice.random() < 0.5):
                    if number == 60 and dice.random() < 0.5:
                        break

        async with anyio.create_task_group() as watch:
            watch.start_soon(look)
            async with anyio.create_task_group() as group:
                for number in range(200):
                    group.start_soon(call, number)
                for on_error in ("raise", "skip", "collect", "skip"):
                    group.start_soon(take, on_error)
            looking.set()
        await pipeline.close()
        for _ in range(3):
            with pytest.raises(aa.RuntimeClosedError):
                await pipeline(1)
        statistics = check_books(pipeline)
        assert statistics.rejected == 3
        assert statistics.failed >= statistics.stages[0].failed > 0
        assert min(statistics.ok, statistics.cancelled, sum(stage.skipped for stage in statistics.stages)) > 0
