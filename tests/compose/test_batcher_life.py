# SPDX-License-Identifier: Apache-2.0
"""Batchers at their end, in trouble, and looked at from outside of tasks."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

import aioascend as aa
from compose.batching import Callers, Gate, check_books, quiet

pytestmark = pytest.mark.anyio


async def same(items: list[Any]) -> list[Any]:
    return items


async def test_when_a_worker_fails_its_own_batch_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = LookupError("inside")

    def fail(*_: object) -> None:
        raise broken

    caught: list[BaseException] = []
    async with anyio.create_task_group() as outside:
        batcher = aa.Batcher(same, max_batch=2)
        callers = Callers(outside, batcher)
        try:
            async with batcher:
                monkeypatch.setattr(batcher._engine._durations, "add", fail)
                await callers.start(1)
                await anyio.sleep_forever()
        except Exception as group:  # of exceptions, for which 3.10 has no name
            caught += group.exceptions  # type: ignore[attr-defined]
    assert caught == [broken]
    assert repr(callers.outcomes[1]) == repr(broken)


async def test_results_may_be_any_sequence() -> None:
    async def function(items: list[int]) -> Any:
        return deque(items)

    async with aa.Batcher(function, max_batch=4, sizes=[4]) as batcher:
        assert await batcher(1) == 1


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a task cannot tell its own cancel from that of what it awaits")
@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_loop_that_ends_under_it_comes_to_its_end(concurrency: int) -> None:
    """Its block belongs to a generator that nobody closes, so that its workers are cancelled with all other tasks."""

    async def blocks(gate: Gate) -> AsyncIterator[aa.Batcher[int, int]]:
        async with aa.Batcher(gate, max_batch=1, concurrency=concurrency) as batcher:
            yield batcher

    kept: list[Any] = []

    async def main() -> None:
        blocks_of_one = blocks(Gate())
        batcher = await blocks_of_one.__anext__()
        kept.append(blocks_of_one)
        kept.append([asyncio.create_task(batcher(number)) for number in range(concurrency)])
        await quiet()
        assert batcher.statistics().running == concurrency
        raise KeyError("end")

    with pytest.raises(KeyError, match="end"):
        asyncio.run(main())


def test_statistics_are_there_outside_of_tasks() -> None:
    """In a callback of the loop, in another thread, before it is entered and after it is closed."""
    gate = Gate()
    seen: list[aa.BatcherStatistics] = []
    batcher = aa.Batcher(gate, max_batch=1, concurrency=1, name="same")
    assert batcher.statistics().submitted == 0

    def look() -> None:
        seen.append(batcher.statistics())
        assert repr(batcher) == "<Batcher same: 1 waiting, 1 running>"

    async def main() -> None:
        async with batcher:
            calls = [asyncio.create_task(batcher(number)) for number in range(2)]
            await quiet()
            looked = asyncio.Event()
            asyncio.get_running_loop().call_soon(lambda: (look(), looked.set()))
            await looked.wait()
            thread = threading.Thread(target=look)
            thread.start()
            await asyncio.to_thread(thread.join)
            await gate.open()
            await asyncio.gather(*calls)

    asyncio.run(main())
    assert [statistics.waiting for statistics in seen] == [1, 1]
    assert all(statistics.oldest_wait >= 0 for statistics in seen)
    assert batcher.statistics().ok == 2


async def test_who_is_late_is_not_run_again() -> None:
    """A batch has failed when a member's time is over, and the loop was too busy to tell it."""
    runs: list[list[int]] = []
    gate = anyio.Event()
    late = 0.0

    async def function(items: list[int]) -> list[int]:
        runs.append(items)
        if items == [0]:
            await gate.wait()
        elif len(items) > 1:
            while anyio.current_time() <= late:
                pass
            raise ValueError(items)
        return items

    batcher = aa.Batcher(function, max_batch=2, max_delay=1000, concurrency=1)
    async with anyio.create_task_group() as group, batcher:
        callers = Callers(group, batcher)
        await callers.start(0)
        await callers.start(1, timeout=0.2)
        late = anyio.current_time() + 0.2
        await callers.start(2)
        gate.set()
    assert isinstance(callers.outcomes[1], aa.DeadlineError)
    assert callers.outcomes[2] == 2
    assert [1] not in runs
    check_books(batcher, ok=2, timed_out=1)


async def test_buckets_that_cannot_be_compared_cost_no_place() -> None:
    class Key:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise LookupError("no")

    gate = Gate()
    async with aa.Batcher(gate, max_batch=1, concurrency=1, queue_limit=2, bucket=lambda _: Key()) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            await callers.start(0)
            await callers.start(1)
            for number in range(2, 6):
                with pytest.raises(LookupError, match="no"):
                    await batcher(number)
            await gate.open()
        assert await batcher(9) == 18
        check_books(batcher, ok=3, failed=4)
