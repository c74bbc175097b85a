# SPDX-License-Identifier: Apache-2.0
"""The life of a pipeline: before it is entered, when its block is cancelled or its workers fail, and who may use it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

import aioascend as aa
from aioascend.testing import Simulator
from compose.stages import Gate, check_books, collected, double, pass_on, settled

pytestmark = pytest.mark.anyio


# --- the block is cancelled ---


async def test_who_is_shielded_is_told_that_the_block_was_cancelled() -> None:
    """Those whose items are on their way, and those who come later."""
    gate = Gate()
    told: list[int] = []

    async def call(number: int) -> None:
        with (
            anyio.fail_after(60, shield=True),
            pytest.raises(aa.RuntimeClosedError, match="before the item was through"),
        ):
            await pipeline(number)
        told.append(number)

    with anyio.fail_after(60), anyio.CancelScope() as scope:
        async with (
            aa.Pipeline(pass_on, aa.Stage(gate, queue_limit=0)) as pipeline,
            anyio.create_task_group() as group,
        ):
            for number in range(8):  # in the gate, in front of it, and in front of the pipeline
                group.start_soon(call, number)
            while not gate.inside:
                await anyio.lowlevel.checkpoint()
            await settled()
            scope.cancel()
            with anyio.fail_after(60, shield=True):
                await settled()
                assert sorted(told) == list(range(8))
                assert pipeline.closed
                with pytest.raises(aa.RuntimeClosedError, match="is closed"):
                    await pipeline(8)
                await pipeline.close()
    assert check_books(pipeline).failed == 8


async def test_closing_under_a_shield_ends_when_the_block_is_cancelled() -> None:
    gate = Gate()
    with anyio.fail_after(60), anyio.CancelScope() as scope:
        async with aa.Pipeline(gate) as pipeline, anyio.create_task_group() as group:
            group.start_soon(collected, pipeline.map(itertools.count()))
            await gate.holds(0)
            scope.cancel()
            with anyio.fail_after(60, shield=True):
                await pipeline.close()
    check_books(pipeline)


@pytest.mark.parametrize("given", [0, 1])
async def test_a_map_under_a_shield_ends_when_the_block_is_cancelled(given: int) -> None:
    """Whether it waits for a stage or for the source."""
    gate = Gate()
    ended: list[str] = []

    async def source() -> AsyncIterator[int]:
        try:
            for number in range(given):
                yield number
            await anyio.sleep_forever()
        finally:
            ended.append("source")

    async def take() -> None:
        with anyio.fail_after(60, shield=True), pytest.raises(aa.RuntimeClosedError):
            await collected(pipeline.map(source()))
        ended.append("map")

    with anyio.fail_after(60), anyio.CancelScope() as scope:
        async with aa.Pipeline(gate) as pipeline, anyio.create_task_group() as group:
            group.start_soon(take)
            await gate.holds(*range(given))
            await settled()
            scope.cancel()
    assert scope.cancelled_caught
    assert sorted(ended) == ["map", "source"]
    check_books(pipeline)


# --- workers that fail ---


class End(BaseException):
    pass


async def on_a_stream(item: int, stream: aa.Stream) -> int:
    await anyio.lowlevel.checkpoint()
    return item


@pytest.mark.parametrize("mine", [ValueError("mine"), End("mine")], ids=["exception", "end"])
async def test_the_error_of_the_block_comes_out_although_streams_do_not_close(
    mine: BaseException, npu: aa.Device, sim: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    async def use() -> None:
        async with aa.Pipeline(aa.Stage(on_a_stream, streams=npu, concurrency=2)) as pipeline:
            assert await pipeline(1) == 1
            sim.fail_call("aclrtDestroyStream", code=507000)
            raise mine

    with caplog.at_level(logging.ERROR, "aioascend.pipeline"), pytest.raises(type(mine)) as raised:
        await use()
    assert raised.value is mine
    assert "pipeline on_a_stream has failed while it was closed" in caplog.text


async def test_a_stream_that_does_not_close_is_raised_at_the_end_of_the_block(npu: aa.Device, sim: Simulator) -> None:
    async def use() -> None:
        async with aa.Pipeline(aa.Stage(on_a_stream, streams=npu), pass_on) as pipeline:
            assert await pipeline(1) == 1
            sim.fail_call("aclrtDestroyStream", code=507000)

    with pytest.raises(aa.AclError) as raised:
        await use()
    assert raised.value.code == 507000


async def test_the_first_of_two_errors_at_the_start_comes_out(npu: aa.Device, sim: Simulator) -> None:
    """A stream cannot be had, and then the one that was cannot be closed."""
    sim.fail_call("aclrtCreateStreamWithConfig", nth=2, code=207008)
    sim.fail_call("aclrtDestroyStream", code=507000)
    pipeline = aa.Pipeline(aa.Stage(on_a_stream, streams=npu, concurrency=2))
    with pytest.raises(aa.ResourceError):
        await pipeline.__aenter__()


# --- sources ---


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
async def test_a_source_is_closed_although_nothing_was_taken_from_it(closed: bool) -> None:
    ended: list[str] = []

    async def source() -> AsyncIterator[int]:
        try:
            for number in itertools.count():
                yield number
        finally:
            ended.append("source")

    async with aa.Pipeline(double) as pipeline:
        numbers = source()
        assert await anext(numbers) == 0
        results = pipeline.map(numbers)
        if closed:
            await pipeline.close()
            with pytest.raises(aa.RuntimeClosedError):
                await anext(results)
        await results.aclose()
        assert ended == ["source"]
        await results.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(results)
        check_books(pipeline)


# --- where and when it can be used ---


async def test_outside_of_its_block_it_does_nothing() -> None:
    pipeline = aa.Pipeline(double, pass_on)
    assert repr(pipeline) == "<pipeline double > pass_on, not entered>"
    assert [stage.name for stage in pipeline.stages] == ["double", "pass_on"]
    assert [stage.name for stage in check_books(pipeline).stages] == ["double", "pass_on"]
    for refused in (lambda: pipeline.map([1]), lambda: pipeline(1).send(None)):
        with pytest.raises(RuntimeError, match="has not been entered: use it inside") as raised:
            refused()
        assert type(raised.value) is RuntimeError
    async with pipeline:
        assert repr(pipeline) == "<pipeline double > pass_on>"
    assert repr(pipeline) == "<pipeline double > pass_on, closed>"
    for refused in (lambda: pipeline.map([1]), lambda: pipeline(1).send(None)):
        with pytest.raises(aa.RuntimeClosedError, match="pipeline double > pass_on is closed"):
            refused()
    with pytest.raises(RuntimeError, match="entered before"):
        await pipeline.__aenter__()
    assert pipeline.statistics().rejected == 2


async def test_closed_before_it_is_entered() -> None:
    pipeline = aa.Pipeline(double)
    await pipeline.close()
    assert pipeline.closed
    with pytest.raises(aa.RuntimeClosedError):
        await pipeline.__aenter__()
    check_books(pipeline)


async def test_in_another_loop_it_says_so() -> None:
    gate = Gate()
    async with aa.Pipeline(gate) as pipeline:
        results = pipeline.map(range(2))
        gate.open(0)
        assert await anext(results) == 0
        await gate.holds(1)

        async def elsewhere() -> None:
            for ask in (lambda: pipeline(1), lambda: anext(results), results.aclose, pipeline.close):
                with pytest.raises(RuntimeError, match="belongs to the event loop"):
                    await ask()  # type: ignore[operator]

        def in_thread() -> None:
            with pytest.raises(RuntimeError, match="belongs to the event loop"):
                pipeline.map([1])
            asyncio.run(elsewhere())
            assert check_books(pipeline, at_rest=False).running == 1

        await anyio.to_thread.run_sync(in_thread)
        assert not pipeline.closed
        gate.open()
        assert await collected(results) == [1]


async def test_who_is_cancelled_or_late_has_submitted_nothing() -> None:
    async with aa.Pipeline(double) as pipeline:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await pipeline(1)
        with anyio.move_on_after(-1):
            await pipeline(1)
        assert pipeline.statistics().submitted == 0
        await anyio.lowlevel.checkpoint()


async def test_a_source_that_ends_the_program_ends_all() -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        raise End

    async def use() -> None:
        async with aa.Pipeline(double) as pipeline:
            with anyio.fail_after(60, shield=True), pytest.raises(aa.RuntimeClosedError):
                await collected(pipeline.map(source()))
            await anyio.sleep_forever()

    with anyio.fail_after(60), pytest.raises(BaseException) as caught:  # noqa: PT011 - a group of exceptions
        await use()
    inner: Any = getattr(caught.value, "exceptions", ())
    assert [type(error) for error in inner] == [End]


# --- what would end something else ---


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_stage_that_stops_an_iteration_does_not_end_that_of_the_results(ordered: bool) -> None:
    async def stop_at_three(value: int) -> int:
        if value == 3:
            raise StopAsyncIteration
        return value

    got: list[int] = []
    async with aa.Pipeline(stop_at_three) as pipeline:
        with pytest.raises(RuntimeError, match="stage 'stop_at_three' has raised StopAsyncIteration"):  # noqa: PT012
            async for value in pipeline.map(range(8), ordered=ordered):
                got.append(value)  # noqa: PERF401 - what had come by then
        with pytest.raises(RuntimeError, match="has raised StopAsyncIteration"):
            await pipeline(3)
    assert got == [0, 1, 2]


async def test_a_stage_that_has_waited_for_a_stream_is_not_begun_too_late(npu: aa.Device) -> None:
    """The stream and the deadline come at the same time."""
    begun: list[str] = []
    queued = anyio.Event()
    late = 0.0

    async def stage(name: str, stream: aa.Stream) -> str:
        begun.append(name)
        if name == "first":
            await queued.wait()
            while anyio.current_time() <= late:  # so that nobody is told meanwhile
                pass
        return name

    async with aa.StreamPool(npu, size=1) as pool:
        pipeline = aa.Pipeline(aa.Stage(stage, streams=pool, concurrency=2))

        async def second() -> None:
            with pytest.raises(aa.DeadlineError):
                await pipeline("second", timeout=0.2)

        async with pipeline:
            async with anyio.create_task_group() as group:
                group.start_soon(pipeline, "first")
                await settled()
                group.start_soon(second)
                await settled()
                late = anyio.current_time() + 0.2
                queued.set()
            assert await pipeline("third") == "third"
            await settled()
            check_books(pipeline)
    assert begun == ["first", "third"]
