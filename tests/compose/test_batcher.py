# SPDX-License-Identifier: Apache-2.0
"""The batcher's contract: who shares a batch, when it leaves, and what each caller is told."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import anyio
import pytest

import aioascend as aa
from compose.batching import BURSTS, CANCELLED, Callers, Gate, check_books, quiet

pytestmark = pytest.mark.anyio


async def test_no_burst_leaves_a_tail_behind() -> None:
    for count, max_delay, concurrency in itertools.product(BURSTS, (0, 1000), (1, 2)):
        gate = Gate(closed=False)
        async with aa.Batcher(gate, max_batch=4, max_delay=max_delay, concurrency=concurrency) as batcher:
            async with anyio.create_task_group() as group:  # ends, although nothing comes after the burst
                callers = Callers(group, batcher)
                await callers.start(*range(count))
            assert callers.doubled(*range(count))
            assert gate.sizes == [4] * (count // 4) + [count % 4] * (count % 4 > 0)
            check_books(batcher, ok=count, waiting=0, running=0, in_flight=0)


async def test_what_is_alone_leaves_at_once_and_the_next_gather_while_it_runs() -> None:
    gate = Gate()
    async with aa.Batcher(gate, max_batch=4, max_delay=1000) as batcher, anyio.create_task_group() as group:
        callers = Callers(group, batcher)
        await callers.start(0)
        assert gate.batches == [[0]]
        await callers.start(1, 2, 3)
        assert gate.sizes == [1]
        check_books(batcher, waiting=3, running=1, in_flight=1, idle=1)
        await callers.start(4)  # full, and two may be under way
        assert gate.sizes == [1, 4]
        await callers.start(5)
        await gate.let_through(2)  # now nothing is under way
        assert gate.sizes == [1, 4, 1]
        await gate.open()
    assert callers.doubled(*range(6))
    check_books(batcher, idle=2, full=1, delay=0, close=0, rows=6, submitted=6)
    assert batcher.statistics().mean_batch == 2


async def test_a_batch_goes_to_its_callers_in_any_order_of_ending() -> None:
    gate = Gate()
    async with aa.Batcher(gate, max_batch=3, max_delay=1000) as batcher, anyio.create_task_group() as group:
        callers = Callers(group, batcher)
        await callers.start(*range(6))
        second, first = gate._held.pop(), gate._held.pop()
        second.set()
        await quiet()
        assert callers.doubled(*gate.batches[1])
        assert set(callers.outcomes) == set(gate.batches[1])
        first.set()
    assert callers.doubled(*range(6))


# --- cancellation ---


async def test_a17a_who_is_cancelled_in_the_queue_is_in_no_batch() -> None:
    gate = Gate()
    async with aa.Batcher(gate, max_batch=8, max_delay=1000, concurrency=1) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            await callers.start("first")
            await callers.start(*range(1, 9))
            await callers.cancel(2, 5, 8)
            check_books(batcher, waiting=5, running=1, cancelled=3)
            await gate.let_through()
            assert sorted(gate.batches[1]) == [1, 3, 4, 6, 7]
            await gate.open()
            await callers.start(*range(11, 19))
            assert gate.sizes == [1, 5, 8]
        assert callers.doubled("first", 1, 3, 4, 6, 7, *range(11, 19))
        assert [callers.outcomes[item] for item in (2, 5, 8)] == [CANCELLED] * 3


async def test_a17b_who_is_cancelled_later_rides_along() -> None:
    gate = Gate()
    async with aa.Batcher(gate, max_batch=8, max_delay=1000) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            await callers.start(*range(1, 9))
            await callers.cancel(2, 5, 8)
            assert [callers.outcomes.get(item) for item in (2, 5, 8)] == [CANCELLED] * 3  # free while it runs
            check_books(batcher, running=5, cancelled=3, in_flight=1)
            await gate.let_through()
            assert callers.doubled(1, 3, 4, 6, 7)
            await gate.open()
            await callers.start(*range(11, 19))
        assert gate.sizes == [8, 8]
        assert callers.doubled(*range(11, 19))
        check_books(batcher, ok=13, cancelled=3, rows=16)


async def test_a17c_when_all_are_cancelled_nothing_is_run() -> None:
    gate = Gate()
    async with aa.Batcher(gate, max_batch=8, max_delay=1000, concurrency=1) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            await callers.start("first")
            await callers.start(*range(1, 9))
            await callers.cancel(*range(1, 9))
            await gate.open()
            assert gate.sizes == [1]
            await callers.start(*range(11, 19))
        assert gate.sizes == [1, 8]
        assert callers.doubled(*range(11, 19))


async def test_a_cancelled_caller_at_the_door_takes_no_place_with_it() -> None:
    gate = Gate()
    random_ = random.Random(6)
    async with aa.Batcher(gate, max_batch=2, max_delay=1000, concurrency=1, queue_limit=2) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            for start in range(0, 200, 10):
                await callers.start(*range(start, start + 10))
                gone = [item for item in range(start, start + 10) if random_.random() < 0.5]
                if gate._held and random_.random() < 0.5:
                    gate._held.pop(0).set()  # places are handed over in the tick in which some of them go
                await callers.cancel(*gone)
                check_books(batcher)
            await gate.open()
        kept = [item for item, outcome in callers.outcomes.items() if outcome != CANCELLED]
        assert len(callers.outcomes) == 200
        assert callers.doubled(*kept)
        books = check_books(batcher, failed=0, waiting=0, running=0)
        assert books.ok + books.cancelled == 200
        assert books.ok >= len(kept)  # some were answered in the tick in which they were cancelled
        async with anyio.create_task_group() as group:
            again = Callers(group, batcher)
            await again.start(1, 2, 3, 4)  # all places are there
        assert again.doubled(1, 2, 3, 4)


@pytest.mark.asyncio_only
async def test_ten_thousand_requests_of_which_a_fifth_is_cancelled() -> None:
    async def double(items: list[int]) -> list[int]:
        await asyncio.sleep(0)
        return [item * 2 for item in items]

    random_ = random.Random(10_000)
    cancelled = {number for number in range(10_000) if random_.random() < 0.2}
    wrong: list[int] = []

    async def request(number: int) -> None:
        if await batcher(number) != number * 2:
            wrong.append(number)

    async with aa.Batcher(double, max_batch=32, max_delay=1000, queue_limit=500) as batcher:
        waiting: list[tuple[int, asyncio.Task[None]]] = []
        for start in range(0, 10_000, 250):
            waiting += [(number, asyncio.ensure_future(request(number))) for number in range(start, start + 250)]
            for _ in range(random_.randrange(3)):
                await asyncio.sleep(0)
            for number, task in waiting[-250:]:
                if number in cancelled:
                    task.cancel()
            check_books(batcher)
        ended = await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)
    assert wrong == []
    gone = {number for (number, _), end in zip(waiting, ended, strict=True) if end is not None}
    assert gone <= cancelled  # some had their answers before
    books = check_books(batcher, failed=0, waiting=0, running=0)
    assert books.ok + books.cancelled <= 10_000
    assert books.ok >= 10_000 - len(cancelled)


# --- errors ---


@pytest.mark.parametrize("hook", ["collate", "split", "function"])
async def test_one_bad_item_fails_alone(hook: str) -> None:
    class BadItemError(ValueError):
        pass

    def check(items: Any) -> Any:
        if "x" in items:
            raise BadItemError("x")
        return items

    async def function(items: list[str]) -> list[str]:
        return [item * 2 for item in (check(items) if hook == "function" else items)]

    def split(output: list[str], count: int) -> list[str]:
        if "xx" in output:
            raise BadItemError("x")
        return output

    options: dict[str, Any] = {"collate": check} if hook == "collate" else {"split": split} if hook == "split" else {}
    async with aa.Batcher(function, max_batch=4, max_delay=1000, **options) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            await callers.start(*"abcxefgh")
        assert callers.doubled(*"abcefgh")
        assert isinstance(callers.outcomes["x"], BadItemError)
        check_books(batcher, ok=7, failed=1, isolated=4)


async def test_who_has_gone_is_not_run_again() -> None:
    gate = Gate()

    def results(items: list[int]) -> list[int]:
        if len(items) > 1:
            raise ValueError("one of them")
        return items

    gate.results = results
    async with aa.Batcher(gate, max_batch=4, max_delay=1000) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            await callers.start(0, 1, 2, 3)
            await callers.cancel(2)
            await gate.open()
        assert gate.sizes == [4, 1, 1, 1]
        check_books(batcher, ok=3, cancelled=1, isolated=3)


async def test_without_isolation_all_members_are_told() -> None:
    async def function(items: list[str]) -> list[str]:
        if "x" in items:
            raise ValueError("x")
        return items

    async with aa.Batcher(function, max_batch=4, max_delay=1000, isolate=False) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            await callers.start(*"abcx")
        assert {repr(outcome) for outcome in callers.outcomes.values()} == {"ValueError('x')"}
        depths = []
        for error in callers.outcomes.values():
            depth, at = 0, error.__traceback__
            while at is not None:
                depth, at = depth + 1, at.tb_next
            depths.append(depth)
        assert max(depths) < 10  # it does not grow with everyone who is told
        check_books(batcher, failed=4, isolated=0)


async def test_errors_that_put_nobody_at_fault_are_everybodys() -> None:
    calls = 0

    async def function(items: list[str]) -> list[str]:
        nonlocal calls
        calls += 1
        raise ConnectionError("away")

    async with aa.Batcher(function, max_batch=4, max_delay=1000) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            await callers.start(*"abcd")
        assert calls == 1
        assert {repr(outcome) for outcome in callers.outcomes.values()} == {"ConnectionError('away')"}


async def test_the_function_that_tells_buckets_apart_fails_before_anything_is_queued() -> None:
    gate = Gate(closed=False)

    def size(item: str) -> int:
        if item == "x":
            raise LookupError("no size")
        return len(item)

    async with aa.Batcher(gate, max_batch=4, max_delay=1000, bucket=size) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            await callers.start("a", "x", "b", "cc")
        assert callers.doubled("a", "b", "cc")
        assert isinstance(callers.outcomes["x"], LookupError)
        assert sorted(map(sorted, gate.batches)) == [["a", "b"], ["cc"]]
        check_books(batcher, submitted=3)


@pytest.mark.parametrize(("returned", "told"), [(3, "3 results for 4 items"), (5, "5 results for 4 items")])
@pytest.mark.parametrize("by", ["function", "split"])
async def test_a_wrong_number_of_results_names_both(by: str, returned: int, told: str) -> None:
    gate = Gate(closed=False)
    options: dict[str, Any] = {}
    if by == "split":
        options["split"] = lambda output, count: output[:returned] + [0] * (returned - count)
    else:
        gate.results = lambda items: [0] * returned
    async with aa.Batcher(gate, max_batch=4, max_delay=1000, **options) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            await callers.start(1, 2, 3, 4)
        assert gate.sizes == [4]  # nobody's item is at fault
        assert all(told in str(outcome) for outcome in callers.outcomes.values())


@pytest.mark.parametrize("result", [7, None, "ab", {1: 2}])
async def test_something_else_than_a_sequence_is_no_result(result: object) -> None:
    gate = Gate(closed=False)
    gate.results = lambda items: result
    async with aa.Batcher(gate, max_batch=2, max_delay=0, name="odd") as batcher:
        with pytest.raises(RuntimeError, match=f"odd returned {type(result).__name__}, not a sequence"):
            await batcher(1)
        gate.results = list
        assert await batcher(1) == 1


async def test_an_exception_among_the_results_is_one_callers() -> None:
    gate = Gate(closed=False)
    gate.results = lambda items: [KeyError("third") if item == 3 else item * 2 for item in items]
    async with aa.Batcher(gate, max_batch=4, max_delay=1000) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            await callers.start(1, 2, 3, 4)
        assert callers.doubled(1, 2, 4)
        assert repr(callers.outcomes[3]) == "KeyError('third')"
        check_books(batcher, ok=3, failed=1)


@pytest.mark.asyncio_only
async def test_a_call_that_ends_as_cancelled_cancels_nobody() -> None:
    async def function(items: list[int]) -> list[Any]:
        if items == [0]:
            raise asyncio.CancelledError
        return [asyncio.CancelledError() if item == 1 else item * 2 for item in items]

    async with aa.Batcher(function, max_batch=4, max_delay=1000) as batcher:
        for item in (0, 1):
            with pytest.raises(aa.AioascendError, match="although nobody has cancelled it"):
                await batcher(item)
        assert await batcher(2) == 4


async def test_when_the_inside_fails_everybody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    broken = LookupError("inside")

    def fail(*_: object) -> None:
        raise broken

    batcher = aa.Batcher(gate, max_batch=2, max_delay=1000, queue_limit=3)
    caught: list[BaseException] = []
    async with anyio.create_task_group() as outside:
        callers = Callers(outside, batcher)
        try:
            async with batcher:
                await callers.start(1)
                await callers.start(2)
                monkeypatch.setattr(batcher._engine._queues, "take", fail)
                await callers.start(3)
        except Exception as group:  # of exceptions, for which 3.10 has no name
            caught += group.exceptions  # type: ignore[attr-defined]
    assert sorted(callers.outcomes) == [1, 2, 3]
    assert {repr(outcome) for outcome in callers.outcomes.values()} == {repr(broken)}
    assert len(set(map(id, callers.outcomes.values()))) == 3  # to each his own
    assert caught == [broken]
    with pytest.raises(aa.RuntimeClosedError) as late:
        await batcher(4)
    assert late.value.__cause__ is broken
    check_books(batcher, failed=3, waiting=0, running=0)


# --- the queue ---


async def test_a_full_queue_refuses_without_running_anything() -> None:
    gate = Gate()
    async with aa.Batcher(
        gate, max_batch=4, max_delay=1000, concurrency=1, queue_limit=16, overflow="reject"
    ) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            await callers.start(*range(4))
            await callers.start(*range(4, 1000))
            refused = [outcome for outcome in callers.outcomes.values() if isinstance(outcome, aa.QueueFullError)]
            assert len(refused) == 980
            assert {(error.depth, error.limit, error.retry_after) for error in refused} == {(16, 16, None)}
            check_books(batcher, submitted=20, rejected=980, waiting=16, running=4)
            await gate.let_through(3)
            await callers.start(*range(1000, 1040))
            last = callers.outcomes[max(callers.outcomes)]
            assert last.retry_after is not None  # it has been seen to move
            await gate.open()
        assert sum(gate.sizes) == check_books(batcher, waiting=0).ok == 32
        assert max(gate.sizes) == 4


async def test_who_waits_for_a_place_is_let_in_in_order() -> None:
    gate = Gate(closed=False)
    async with aa.Batcher(gate, max_batch=4, max_delay=0, concurrency=1, queue_limit=16) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            for item in range(100):
                group.start_soon(callers._call, item, {})
        assert callers.doubled(*range(100))
    order = [item for batch in gate.batches for item in batch]
    assert order == list(callers._scopes)  # in which they have begun: trio starts tasks in any order


async def test_the_books_are_right_at_any_moment() -> None:
    gate = Gate()
    random_ = random.Random(23)
    gate.results = lambda items: [ZeroDivisionError() if item % 7 == 0 else item * 2 for item in items]
    async with aa.Batcher(
        gate, max_batch=8, max_delay=1000, concurrency=2, queue_limit=40, overflow="reject"
    ) as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            for start in range(0, 1600, 20):
                await callers.start(*range(start, start + 20))
                check_books(batcher)
                await callers.cancel(*(item for item in range(start, start + 20) if random_.random() < 0.15))
                check_books(batcher)
                while gate._held and random_.random() < 0.7:
                    gate._held.pop(random_.randrange(len(gate._held))).set()
                    check_books(batcher)
                    await quiet()
                    check_books(batcher)
            await gate.open()
        kinds = [type(outcome).__name__ for outcome in callers.outcomes.values()]
        check_books(
            batcher,
            ok=kinds.count("int"),
            failed=kinds.count("ZeroDivisionError"),
            cancelled=kinds.count("str"),
            rejected=kinds.count("QueueFullError"),
            waiting=0,
            running=0,
            in_flight=0,
            oldest_wait=0,
        )
        assert min(map(kinds.count, ("int", "ZeroDivisionError", "str", "QueueFullError"))) > 20


# --- the end ---


async def test_closing_lets_out_what_is_there_and_takes_nothing_more() -> None:
    gate = Gate()
    async with aa.Batcher(gate, max_batch=4, max_delay=1000, concurrency=1, queue_limit=3, name="doubler") as batcher:
        async with anyio.create_task_group() as group:
            callers = Callers(group, batcher)
            await callers.start(0)
            await callers.start(1, 2, 3, 4, 5)  # two of them at the door
            group.start_soon(batcher.close)
            await quiet()
            with pytest.raises(aa.RuntimeClosedError, match=r"doubler: .* is closed"):
                await batcher(6)
            await gate.open()
        await batcher.close()
        assert callers.doubled(*range(6))
    check_books(batcher, ok=6, submitted=6, waiting=0)
    assert repr(batcher) == "<Batcher doubler: 0 waiting, 0 running>"


async def test_leaving_by_an_exception_ends_what_is_there() -> None:
    gate = Gate()
    async with anyio.create_task_group() as outside:
        with pytest.raises(LookupError, match="left"):  # noqa: PT012 - as it is, not in a group
            async with aa.Batcher(gate, max_batch=2, max_delay=1000, concurrency=1, queue_limit=2) as batcher:
                callers = Callers(outside, batcher)
                await callers.start(*range(9))  # two under way, two queued, five at the door
                raise LookupError("left")
        await quiet()
    assert len(callers.outcomes) == 9
    assert all(isinstance(outcome, aa.RuntimeClosedError) for outcome in callers.outcomes.values())
    check_books(batcher, failed=9, waiting=0, running=0, in_flight=0)


async def test_cancelling_whoever_holds_the_block_ends_what_is_there() -> None:
    gate = Gate()
    async with anyio.create_task_group() as outside:
        with anyio.CancelScope() as scope:
            async with aa.Batcher(gate, max_batch=2, max_delay=1000, concurrency=1) as batcher:
                callers = Callers(outside, batcher)
                await callers.start(*range(6))
                scope.cancel()
        assert scope.cancelled_caught
    assert all(isinstance(outcome, aa.RuntimeClosedError) for outcome in callers.outcomes.values())
    check_books(batcher, failed=6, waiting=0, running=0, in_flight=0)
