# SPDX-License-Identifier: Apache-2.0
"""When batches leave, deadlines, overload and priorities: in virtual time, so nothing depends on the machine."""

from __future__ import annotations

import random
import statistics
from typing import Any

import anyio
import pytest

import aioascend as aa
from aioascend.batcher.targets import FunctionTarget
from compose.batching import BURSTS, CANCELLED, Callers, Machine, check_books, in_virtual_time, virtual_loops


@virtual_loops
@pytest.mark.parametrize(("max_delay", "takes"), [(0.02, 0.001), (0.02, 0.1), (0, 0.1)])
def test_no_burst_waits_longer_than_it_has_to(backend: str, max_delay: float, takes: float) -> None:
    async def burst(count: int) -> None:
        machine = Machine(takes)
        async with aa.Batcher(machine, max_batch=4, max_delay=max_delay) as batcher:
            began = anyio.current_time()
            async with anyio.create_task_group() as group:
                for item in range(count):
                    group.start_soon(batcher, item)
            most = max_delay + takes * -(-count // 4)
            assert anyio.current_time() - began <= most + 1e-6
            assert [len(batch) for batch in machine.batches] == [4] * (count // 4) + [count % 4] * (count % 4 > 0)

    async def main() -> None:
        for count in BURSTS:
            await burst(count)

    in_virtual_time(backend, main)


@virtual_loops
def test_the_delay_counts_from_the_oldest(backend: str) -> None:
    async def main() -> None:
        machine = Machine(1.0)
        async with aa.Batcher(machine, max_batch=8, max_delay=0.1) as batcher:
            began = anyio.current_time()
            async with anyio.create_task_group() as group:
                for item in range(4):
                    group.start_soon(batcher, item)
                    await anyio.sleep(0.04)  # the next one each time; the first runs alone
            assert machine.batches == [[0], [1, 2, 3]]
            assert machine.began == pytest.approx([began, began + 0.04 + 0.1])
            assert check_books(batcher).delay == 1

    in_virtual_time(backend, main)


@virtual_loops
def test_what_waits_for_the_device_anyway_lets_others_come_along(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model runs one batch after the other; a batch that leaves before it is free begins no earlier for that."""
    monkeypatch.setattr(FunctionTarget, "one_at_a_time", True)

    async def main() -> None:
        machine = Machine(1.0)
        async with aa.Batcher(machine, max_batch=8, max_delay=0.1) as batcher:
            await batcher(0)  # from here on it is known what one takes
            began = anyio.current_time()
            async with anyio.create_task_group() as group:
                for item in range(1, 5):
                    group.start_soon(batcher, item)
                    await anyio.sleep(0.3)  # the first runs alone
            assert machine.batches == [[0], [1], [2, 3, 4]]
            assert machine.began[2] == pytest.approx(began + 1)
            assert anyio.current_time() == pytest.approx(began + 2)
            check_books(batcher, idle=3)

    in_virtual_time(backend, main)


@virtual_loops
def test_requests_between_two_sizes_leave_when_the_delay_is_over(backend: str) -> None:
    """With sizes 2 and 6, seven requests leave as six, and as one that is padded."""

    async def main() -> None:
        machine = Machine(0.03)
        async with aa.Batcher(machine, sizes=[2, 6], max_delay=0.01) as batcher:
            began = anyio.current_time()
            async with anyio.create_task_group() as group:
                group.start_soon(batcher, 100)
                await anyio.sleep(0.001)
                for item in range(4):
                    group.start_soon(batcher, item)
                await anyio.sleep(0.012)
                assert len(machine.batches) == 2
                assert sorted(machine.batches[1][:4]) == [0, 1, 2, 3]
                assert machine.batches[1][3] == machine.batches[1][4] == machine.batches[1][5]
            assert anyio.current_time() - began == pytest.approx(0.06)
            check_books(batcher, padded_rows=3, rows=5, delay=1)

    in_virtual_time(backend, main)


@virtual_loops
@pytest.mark.parametrize("how", ["timeout", "scope"])
def test_overload_with_deadlines_does_not_starve(backend: str, how: str) -> None:
    """Batches of 8 in 30 ms, deadlines of 60 ms, three times as many requests as that is, then as many."""

    async def main() -> None:
        machine = Machine(0.03)
        done: list[tuple[float, float]] = []  # when, and how long it took

        async def request(item: int) -> None:
            began = anyio.current_time()
            if how == "timeout":
                try:
                    await batcher(item, timeout=0.06)
                except aa.DeadlineError:
                    return
                done.append((anyio.current_time(), anyio.current_time() - began))
            else:
                with anyio.move_on_after(0.06):
                    await batcher(item)
                    done.append((anyio.current_time(), anyio.current_time() - began))

        async with aa.Batcher(machine, max_batch=8, max_delay=0.005, concurrency=1) as batcher:
            async with anyio.create_task_group() as group:
                began = anyio.current_time()
                for item in range(1600):  # 2 s of it
                    group.start_soon(request, item)
                    await anyio.sleep(0.03 / 24)
                end = anyio.current_time()
                for item in range(400):
                    group.start_soon(request, item)
                    await anyio.sleep(0.03 / 7)
            under_load = [when for when, _ in done if when <= end]
            assert len(under_load) >= 0.8 * (end - began) / 0.03 * 8
            after = [took for when, took in done if when > end + 0.2]
            assert statistics.median(after) <= 0.06
            assert len([1 for when, _ in done if when > end]) >= 380
            books = check_books(batcher, waiting=0, running=0, failed=0)
            assert len(done) <= books.ok <= len(done) * 1.01  # a tie of an answer and the end of the scope
            assert (books.timed_out, books.cancelled)[how == "timeout"] == 0
            assert sum(map(len, machine.batches)) == books.rows <= len(done) * 1.25  # hardly any work was in vain

    in_virtual_time(backend, main)


@virtual_loops
def test_when_nothing_can_be_in_time_it_is_run_all_the_same(backend: str) -> None:
    async def main() -> None:
        machine = Machine(10.0)  # a slow start
        async with aa.Batcher(machine, max_batch=4, max_delay=0.005, concurrency=1) as batcher:
            await batcher(0)
            machine.takes = 0.01
            for item in range(40):  # of which the batcher expects that none can be in time
                assert await batcher(item, timeout=0.1) == item * 2

    in_virtual_time(backend, main)


@virtual_loops
def test_of_what_is_late_the_least_late_is_run_first(backend: str) -> None:
    async def main() -> None:
        machine = Machine(10.0)
        async with aa.Batcher(machine, max_batch=2, max_delay=0, concurrency=1) as batcher:
            await batcher(0)
            machine.takes = 0.5
            async with anyio.create_task_group() as group:
                group.start_soon(batcher, 1)
                await anyio.sleep(0.1)
                callers = Callers(group, batcher)
                for item in (2, 3, 4, 5):
                    group.start_soon(callers._call, item, {"timeout": item})
                    await anyio.sleep(0.01)
                group.start_soon(callers._call, 6, {})  # has time, and goes first
            assert machine.batches == [[0], [1], [6, 5], [4, 3], [2]]
            assert callers.doubled(2, 3, 4, 5, 6)

    in_virtual_time(backend, main)


@virtual_loops
def test_what_is_in_danger_leaves_before_its_delay_is_over(backend: str) -> None:
    async def main() -> None:
        seen: list[list[int]] = []

        async def independent(items: list[int]) -> list[int]:
            seen.append(items)
            await anyio.sleep(0.1)
            return items

        async with aa.Batcher(independent, max_batch=8, max_delay=5) as batcher, anyio.create_task_group() as group:
            await batcher(0)
            group.start_soon(batcher, 1)
            await anyio.sleep(0.05)
            group.start_soon(batcher, 3)  # has time
            await anyio.sleep(0.001)
            assert await batcher(2, timeout=0.12) == 2
            assert seen == [[0], [1], [3, 2]]
            check_books(batcher, idle=2, delay=1)

    in_virtual_time(backend, main)


@virtual_loops
def test_what_expires_in_the_queue_is_never_run(backend: str) -> None:
    async def main() -> None:
        machine = Machine(1.0)
        async with aa.Batcher(machine, max_batch=4, max_delay=0, concurrency=1, queue_limit=4) as batcher:
            async with anyio.create_task_group() as group:
                callers = Callers(group, batcher)
                group.start_soon(callers._call, 0, {})
                await anyio.sleep(0.1)
                group.start_soon(callers._call, 1, {"timeout": 0.9})  # when the batch is over, to the tick
                group.start_soon(callers._call, 2, {"timeout": 0.5})
                group.start_soon(callers._call, 3, {})
                with anyio.move_on_after(0.5) as scope:
                    await batcher(4)
                assert scope.cancelled_caught
            assert machine.batches == [[0], [3]]
            assert callers.doubled(0, 3)
            for item, waited in ((1, 0.9), (2, 0.5)):
                assert isinstance(callers.outcomes[item], aa.DeadlineError)
                assert callers.outcomes[item].started is False
                assert callers.outcomes[item].waited == pytest.approx(waited)
            check_books(batcher, ok=2, timed_out=2, cancelled=1)
            async with anyio.create_task_group() as group:
                for item in range(20, 25):
                    group.start_soon(batcher, item)
            assert sorted(map(len, machine.batches)) == [1, 1, 1, 4]  # all places are there again

    in_virtual_time(backend, main)


@virtual_loops
def test_a_timeout_under_way_says_so(backend: str) -> None:
    async def main() -> None:
        machine = Machine(1.0)
        async with aa.Batcher(machine, max_batch=4) as batcher:
            with pytest.raises(aa.DeadlineError, match="under way") as caught:
                await batcher(1, timeout=0.25)
            assert caught.value.started
            assert caught.value.waited == pytest.approx(0.25)
            check_books(batcher, timed_out=1, running=0, in_flight=1)
            assert await batcher(2) == 4

    in_virtual_time(backend, main)


@virtual_loops
def test_scopes_whose_deadline_is_put_off_do_not_hang(backend: str) -> None:
    async def main() -> None:
        machine = Machine(1.0)
        async with aa.Batcher(machine, max_batch=1, max_delay=0, concurrency=1, queue_limit=1) as batcher:
            async with anyio.create_task_group() as group:
                group.start_soon(batcher, 0)
                await anyio.sleep(0.1)
                with anyio.move_on_after(0.5) as scope:
                    group.start_soon(_put_off, scope)
                    with pytest.raises(aa.DeadlineError):
                        await batcher(1)
                assert not scope.cancelled_caught
            assert machine.batches == [[0]]
            assert await batcher(2) == 4  # its place is free again

    async def _put_off(scope: anyio.CancelScope) -> None:
        scope.deadline += 100

    in_virtual_time(backend, main)


@virtual_loops
def test_waiting_for_a_place_has_an_end(backend: str) -> None:
    async def main() -> None:
        machine = Machine(0.03)
        async with aa.Batcher(machine, max_batch=4, max_delay=0, concurrency=1, queue_limit=16) as batcher:
            async with anyio.create_task_group() as group:
                callers = Callers(group, batcher)
                for item in range(1000):
                    group.start_soon(callers._call, item, {"timeout": 0.1})
            late = [outcome for outcome in callers.outcomes.values() if isinstance(outcome, aa.DeadlineError)]
            books = check_books(batcher, waiting=0, running=0, rejected=0, timed_out=len(late))
            assert books.ok == 1000 - len(late) >= 12
            order = list(callers._scopes)
            assert [item for batch in machine.batches for item in batch] == order[: books.rows]

    in_virtual_time(backend, main)


@virtual_loops
def test_what_arrives_at_random_waits_no_longer_than_the_delay_and_a_batch(backend: str) -> None:
    """At half of what the machine can do, which takes one batch at a time: 99 of 100."""

    async def main() -> None:
        machine = Machine(0.004, per_item=0.0005)
        full = 0.008
        random_ = random.Random(500)
        waited: list[float] = []

        async def request(item: int) -> None:
            began = anyio.current_time()
            await batcher(item)
            waited.append(anyio.current_time() - began - full)

        async with aa.Batcher(machine, max_batch=8) as batcher, anyio.create_task_group() as group:
            for item in range(1000):
                await anyio.sleep(random_.expovariate(500))
                group.start_soon(request, item)
        assert statistics.quantiles(waited, n=100)[98] <= 0.005 + full

    in_virtual_time(backend, main)


# --- priorities ---


@virtual_loops
def test_what_is_urgent_does_not_wait_behind_a_flood(backend: str) -> None:
    async def main() -> None:
        machine = Machine(0.02)
        took: list[float] = []

        async def urgent(item: int) -> None:
            began = anyio.current_time()
            await batcher(item, priority=0)
            took.append(anyio.current_time() - began)

        async with aa.Batcher(machine, max_batch=8, max_delay=0.005, concurrency=1, ageing=10) as batcher:
            async with anyio.create_task_group() as group:
                for item in range(1000):
                    group.start_soon(_low, batcher, item)
                for item in range(40):
                    await anyio.sleep(0.05)
                    group.start_soon(urgent, item)
            assert statistics.median(took) < 2 * 0.02
            check_books(batcher, ok=1040)

    in_virtual_time(backend, main)


async def _low(batcher: aa.Batcher[Any, Any], item: int) -> None:
    await batcher(item, priority=1)


@virtual_loops
def test_what_is_not_urgent_gets_its_turn(backend: str) -> None:
    async def main() -> None:
        machine = Machine(0.02)
        took: list[float] = []

        async def low(item: int) -> None:
            began = anyio.current_time()
            await batcher(item, priority=1)
            took.append(anyio.current_time() - began)

        async with aa.Batcher(machine, max_batch=8, max_delay=0.005, concurrency=1, ageing=0.5) as batcher:
            async with anyio.create_task_group() as group:
                for item in range(64):  # a standing queue of urgent ones, which is never empty
                    group.start_soon(_again_and_again, batcher, item)
                await anyio.sleep(0.1)
                for item in range(5):
                    group.start_soon(low, item)
                with anyio.fail_after(10):
                    while len(took) < 5:  # noqa: ASYNC110 - in virtual time
                        await anyio.sleep(0.01)
                group.cancel_scope.cancel()
            # Older by `ageing`, they go before what comes; what was there already, eight batches, is in front of them.
            assert max(took) <= 0.5 + 10 * 0.02
            assert min(took) > 0.5  # and not before

    in_virtual_time(backend, main)


async def _again_and_again(batcher: aa.Batcher[Any, Any], item: int) -> None:
    while True:
        await batcher(item)


@virtual_loops
def test_every_ending_is_counted_once(backend: str) -> None:
    async def main() -> None:
        machine = Machine(0.01)
        kinds: dict[str, int] = dict.fromkeys(("ok", "timed_out", "cancelled"), 0)

        async def request(item: int) -> None:
            """Half of them have time; the others time out, or are cancelled, in the queue or under way."""
            patience = 1000 if item % 2 else 0.004 + (item % 50) * 0.0004
            if item % 4:
                try:
                    await batcher(item, timeout=patience)
                except aa.DeadlineError:
                    kinds["timed_out"] += 1
                    return
                kinds["ok"] += 1
                return
            with anyio.move_on_after(patience) as scope:
                await batcher(item)
                kinds["ok"] += 1
            if scope.cancelled_caught:
                kinds["cancelled"] += 1

        async with aa.Batcher(machine, max_batch=8, max_delay=0.002, queue_limit=32) as batcher:
            async with anyio.create_task_group() as group:
                for item in range(2000):
                    group.start_soon(request, item)
                    if item % 8 == 0:
                        await anyio.sleep(0.005)
                    check_books(batcher)
            check_books(batcher, waiting=0, running=0, submitted=2000, **kinds)
            assert min(kinds.values()) > 100

    in_virtual_time(backend, main)


@virtual_loops
def test_the_oldest_wait_is_told(backend: str) -> None:
    async def main() -> None:
        machine = Machine(1.0)
        async with aa.Batcher(machine, max_batch=4, max_delay=10, concurrency=1) as batcher:
            async with anyio.create_task_group() as group:
                callers = Callers(group, batcher)
                group.start_soon(callers._call, 0, {})
                await anyio.sleep(0.25)
                group.start_soon(callers._call, 1, {})
                await anyio.sleep(0.5)
                assert check_books(batcher, waiting=1).oldest_wait == pytest.approx(0.5)
                callers._scopes[1].cancel()
            assert callers.outcomes[1] == CANCELLED
            check_books(batcher, oldest_wait=0)

    in_virtual_time(backend, main)
