# SPDX-License-Identifier: Apache-2.0
"""Stages that work on streams: each worker's own, or those of a pool; and what overlaps then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator, TaskRecord, unit_overlap
from compose.stages import check_books, collected, double, settled

pytestmark = pytest.mark.anyio

Array = np.ndarray[Any, Any]


class Pool:
    """Lends streams, to whoever has waited longest."""

    def __init__(self, *streams: aa.Stream) -> None:
        self._streams = list(streams)
        self._free = anyio.Semaphore(len(streams))
        self.lent = 0

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[aa.Stream]:
        async with self._free:
            stream = self._streams.pop()
            self.lent += 1
            try:
                yield stream
            finally:
                self._streams.append(stream)

    @property
    def free(self) -> int:
        return len(self._streams)


async def test_each_worker_has_a_stream_of_its_own(npu: aa.Device) -> None:
    used: list[aa.Stream] = []

    async def there_and_back(value: int, stream: aa.Stream) -> int:
        used.append(stream)
        buffer, host = npu.empty(4, "int64"), np.zeros(4, "int64")
        stream.memcpy(buffer, np.full(4, value, "int64"))
        await stream.memcpy(host, buffer)
        return int(host.sum())

    async with aa.Pipeline(double, aa.Stage(there_and_back, streams=npu, concurrency=2)) as pipeline:
        assert npu.statistics().streams == 2
        assert await collected(pipeline.map(range(20))) == [8 * value for value in range(20)]
        assert len({stream.id for stream in used}) == 2
    assert npu.statistics().streams == 0
    assert all(stream.closed for stream in used)


async def test_a_stream_that_went_with_a_reset_is_replaced(npu: aa.Device) -> None:
    async def clear(value: int, stream: aa.Stream) -> int:
        await stream.memset(npu.empty(4), 0)
        return value

    async with aa.Pipeline(aa.Stage(clear, streams=npu)) as pipeline:
        assert await pipeline(1) == 1
        await npu.reset()
        assert await pipeline(2) == 2
        assert npu.statistics().streams == 1
    assert npu.statistics().streams == 0


async def test_pipelines_that_share_a_pool_take_turns(stream: aa.Stream) -> None:
    pool = Pool(stream)
    turns: list[str] = []

    def stage(name: str) -> aa.Stage[int, int]:
        async def take_turn(value: int, borrowed: aa.Stream) -> int:
            assert borrowed is stream
            turns.append(name)
            await anyio.lowlevel.checkpoint()
            return value

        return aa.Stage(take_turn, streams=pool)

    pipelines = aa.Pipeline(stage("a")), aa.Pipeline(stage("b"))
    async with pipelines[0], pipelines[1], anyio.create_task_group() as group:
        for pipeline in pipelines:
            group.start_soon(collected, pipeline.map(range(20)))
    assert sorted(turns) == ["a"] * 20 + ["b"] * 20
    assert all(abs(turns[:end].count("a") - turns[:end].count("b")) <= 3 for end in range(40))
    assert pool.lent == 40
    assert pool.free == 1


async def test_a_borrowed_stream_is_given_back_however_the_item_ends(stream: aa.Stream) -> None:
    pool = Pool(stream)

    async def stage(value: int, borrowed: aa.Stream) -> int:
        if value == 1:
            raise ValueError(value)
        if value == 2:
            await anyio.sleep_forever()
        return value

    async with aa.Pipeline(aa.Stage(stage, streams=pool, concurrency=3)) as pipeline:
        with pytest.raises(ValueError, match="1"):
            await pipeline(1)
        async with anyio.create_task_group() as group:
            group.start_soon(pipeline, 2)
            group.start_soon(pipeline, 2)  # waits for the stream
            await settled()
            assert pool.free == 0
            group.cancel_scope.cancel()
        await settled()
        assert pool.free == 1
        assert await pipeline(3) == 3
        check_books(pipeline)


async def test_copies_in_runs_and_copies_out_overlap(npu: aa.Device, sim: Simulator, tmp_path: Path) -> None:
    """Each stage on a stream of its own: while one item is computed, the next is copied in and the last one out.

    In real time, in which the machine may do something else for a while: then items follow each other."""
    items = 20
    records = await of_three_stages(items, npu, sim, tmp_path)
    copied_in, copied_out = (
        [record.start_ns for record in records if record.unit == unit] for unit in ("copy_in", "copy_out")
    )
    assert len(copied_in) == len(copied_out) == items
    assert any(following < this for following, this in zip(copied_in[1:], copied_out, strict=False))
    assert unit_overlap(records).shared > 0


async def of_three_stages(items: int, npu: aa.Device, sim: Simulator, tmp_path: Path) -> list[TaskRecord]:
    """What the device has done. All that it took is given back by the end of this."""
    size = 100_000
    (tmp_path / "even.toml").write_text(
        f'name = "even"\nai_cores = 1\nh2d_gbps = {size * 4 / 1e6}\nd2h_gbps = {size * 4 / 1e6}\n', encoding="utf-8"
    )
    sim.set_profile(tmp_path / "even.toml")
    tensor = f"shape = [{size}]\n"
    description = f'latency_us = 1000\n[[inputs]]\nname = "x"\n{tensor}[[outputs]]\nname = "y"\n{tensor}fill = "copy"\n'
    async with await npu.load_model(description.encode()) as model:

        async def copy_in(image: Array, stream: aa.Stream) -> aa.DeviceBuffer:
            x = npu.empty(size)
            await stream.memcpy(x, image)
            return x

        async def run(x: aa.DeviceBuffer, stream: aa.Stream) -> aa.DeviceBuffer:
            y = npu.empty(size)
            await stream.execute(model, [x], [y])
            return y

        async def copy_out(y: aa.DeviceBuffer, stream: aa.Stream) -> float:
            host = await npu.pinned(size)
            await stream.memcpy(host, y)
            return float(host.array[-1])

        images = [await npu.pinned(size) for _ in range(items)]
        for number, image in enumerate(images):
            image.array[:] = number
        stages = [aa.Stage(stage, streams=npu) for stage in (copy_in, run, copy_out)]
        async with aa.Pipeline(*stages) as pipeline:  # type: ignore[call-overload]
            assert await collected(pipeline.map(images[:3])) == [0, 1, 2]
            sim.clear_timeline()
            assert await collected(pipeline.map(images)) == list(range(items))
    return sim.timeline()
