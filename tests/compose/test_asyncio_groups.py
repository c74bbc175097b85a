# SPDX-License-Identifier: Apache-2.0
"""Blocks in which a task group of asyncio has failed, and that error was dealt with.

Up to Python 3.12 such a task counts as being cancelled from there on, which the end of a block must not stumble over.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

import aioascend as aa

pytestmark = [
    pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.TaskGroup is new in 3.11"),
]

Call = Callable[[int], Any]


async def double(value: int) -> int:
    await asyncio.sleep(0)
    if value < 0:
        raise ValueError(value)
    return 2 * value


async def doubles(values: list[int]) -> list[Any]:
    return [2 * value if value >= 0 else ValueError(value) for value in values]


@asynccontextmanager
async def scheduler() -> AsyncIterator[Call]:
    async with aa.Scheduler([double]) as made:
        yield made


@asynccontextmanager
async def infer_queue() -> AsyncIterator[Call]:
    async with aa.InferQueue(double) as made:

        async def call(value: int) -> int:
            return await made.result(await made.submit(value))

        yield call


@asynccontextmanager
async def batcher() -> AsyncIterator[Call]:
    async with aa.Batcher(doubles, max_batch=4) as made:
        yield made


@asynccontextmanager
async def pipeline() -> AsyncIterator[Call]:
    async with aa.Pipeline(double) as made:
        yield made


@asynccontextmanager
async def pool() -> AsyncIterator[Call]:
    async with aa.open_device(0, backend="sim") as npu, aa.StreamPool(npu) as made:

        async def call(value: int) -> int:
            async with made.acquire() as stream:
                await stream.memset(npu.empty(4, "uint8"), 0)
            return await double(value)

        yield call


BLOCKS = [scheduler, infer_queue, batcher, pipeline, pool]


async def fail_in_a_group(call: Call) -> None:
    async def fail() -> None:
        await call(-1)

    async def wait() -> None:
        await asyncio.Event().wait()

    try:
        async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined, unused-ignore]
            group.create_task(wait())
            group.create_task(fail())
    except BaseException as error:
        (failure,) = error.exceptions  # type: ignore[attr-defined]
        assert repr(failure) == "ValueError(-1)"


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_goes_on_and_ends(block: Callable[[], AbstractAsyncContextManager[Call]]) -> None:
    async def main() -> None:
        async with block() as call:
            await fail_in_a_group(call)
            assert await call(4) == 8

    asyncio.run(main())


@pytest.mark.parametrize("block", BLOCKS)
def test_the_error_of_a_block_is_the_one_that_comes_out(block: Callable[[], AbstractAsyncContextManager[Call]]) -> None:
    async def main() -> None:
        async with block() as call:
            await fail_in_a_group(call)
            raise LookupError("of the block")

    with pytest.raises(LookupError, match="of the block"):
        asyncio.run(main())
