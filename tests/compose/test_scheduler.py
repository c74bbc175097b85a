# SPDX-License-Identifier: Apache-2.0
"""The scheduler over units without a device: who gets which call, when, and how often."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

import aioascend as aa
from aioascend.errors import error_from_code
from compose.units import Clock, HeldUnit, check_identity, run_out, settle

pytestmark = pytest.mark.anyio

GONE, ELSEWHERE, CALLER, RETRY = 507010, 507014, 107000, 207018


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def double(value: int) -> int:
    await anyio.lowlevel.checkpoint()
    return 2 * value


@pytest.mark.parametrize(
    "policy", ["least_loaded", "round_robin", "weighted_random", "two_choices", lambda free: free[-1]]
)
async def test_calls_are_spread_and_answered(policy: Any, clock: Clock) -> None:
    units = [HeldUnit(), HeldUnit(), HeldUnit()]
    answers: dict[int, int] = {}

    async def request(value: int) -> None:
        answers[value] = await scheduler(value)

    async with aa.Scheduler(units, policy=policy) as scheduler:
        async with anyio.create_task_group() as group:
            for value in range(30):
                group.start_soon(request, value)
            await run_out(units, clock)
        statistics = scheduler.statistics()
    assert answers == {value: value for value in range(30)}
    assert sorted(call for unit in units for call in unit.calls) == list(range(30))
    assert [unit.most for unit in units] == [2, 2, 2]
    assert statistics.ok == statistics.submitted == 30
    assert [unit.ok for unit in statistics.units] == [len(unit.calls) for unit in units]


async def test_a_call_runs_in_the_task_of_its_caller() -> None:
    async def task() -> int:
        return anyio.get_current_task().id

    async with aa.Scheduler([task]) as scheduler:
        assert await scheduler.run(lambda unit: unit()) == anyio.get_current_task().id


async def with_clients(policy: str, clients: int, clock: Clock) -> tuple[float, float]:
    """What share of the requests a unit gets that is four times as fast as the other, and how long they all take."""
    fast, slow = HeldUnit(0.01), HeldUnit(0.04)
    left, begun = 400, clock.now

    async def client() -> None:
        nonlocal left
        while left:
            left -= 1
            await scheduler(left)

    async with (
        aa.Scheduler([slow, fast], policy=policy, concurrency=4) as scheduler,
        anyio.create_task_group() as group,
    ):
        for _ in range(clients):
            group.start_soon(client)
        await run_out([fast, slow], clock)
    return len(fast.calls) / 400, clock.now - begun


@pytest.mark.parametrize("policy", ["least_loaded", "two_choices"])
async def test_a_fast_unit_handles_most_of_the_work(policy: str, clock: Clock) -> None:
    share, _ = await with_clients(policy, 6, clock)
    assert 0.7 <= share <= 0.9


async def test_least_loaded_keeps_the_fast_unit_busy_when_there_is_a_choice(clock: Clock) -> None:
    _, taken = await with_clients("least_loaded", 3, clock)
    _, in_turn = await with_clients("round_robin", 3, clock)
    assert taken < 0.7 * in_turn


async def test_urgent_requests_pass_and_patient_ones_are_not_forgotten(clock: Clock) -> None:
    unit = HeldUnit()
    async with aa.Scheduler([unit], concurrency=1, ageing=5) as scheduler:

        async def request(name: str, priority: int) -> None:
            await scheduler(name, priority=priority)

        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(request, f"low {number}", 1)
                await settle()
            for number in range(10):
                clock.now += 1
                group.start_soon(request, f"high {number}", 0)
                await settle()
            await run_out([unit], clock)
    # Four of the urgent ones were made within 5 s of the patient ones; with the fifth it is a draw, first come first.
    high = [f"high {number}" for number in range(10)]
    assert unit.calls == ["low 0", *high[:4], "low 1", "low 2", *high[4:]]


async def test_what_does_not_fit_is_rejected_at_once() -> None:
    units = [HeldUnit(), HeldUnit()]
    refused: list[aa.QueueFullError] = []
    async with aa.Scheduler(units, queue_limit=16, overflow="reject") as scheduler:

        async def request() -> None:
            try:
                await scheduler("x")
            except aa.QueueFullError as error:
                refused.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(1000):
                group.start_soon(request)
            await settle()
            assert len(refused) == 980
            assert {(error.depth, error.limit) for error in refused} == {(16, 16)}
            assert "queue of the scheduler is full: 16 are waiting" in str(refused[0])
            statistics = scheduler.statistics()
            check_identity(statistics)
            assert (statistics.submitted, statistics.rejected) == (20, 980)
            while scheduler.statistics().running:
                units[scheduler.statistics().units[0].running == 0].end()
                await settle()
    assert sum(len(unit.calls) for unit in units) == 20


async def test_those_beyond_the_limit_wait_as_well_first_come_first_served() -> None:
    unit = HeldUnit()
    async with aa.Scheduler([unit], concurrency=1, queue_limit=2) as scheduler:

        async def request(number: int) -> None:
            await scheduler(number)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(request, number)
                await settle()
            assert scheduler.statistics().waiting == 7
            for _ in range(8):
                unit.end()
                await settle()
    assert unit.calls == list(range(8))


async def test_a_request_that_waited_too_long_was_never_submitted() -> None:
    unit = HeldUnit()
    async with aa.Scheduler([unit], concurrency=1) as scheduler:
        async with anyio.create_task_group() as group:
            group.start_soon(scheduler, "first")
            await settle()
            for name in ("alone", "behind another"):
                if name == "behind another":
                    group.start_soon(scheduler, "second")
                    await settle()
                with pytest.raises(aa.DeadlineError, match="never submitted") as raised:
                    await scheduler(name, timeout=1e-9)
                assert not raised.value.started
            unit.end()
            await settle()
            unit.end()
        assert scheduler.statistics().timed_out == 2
    assert unit.calls == ["first", "second"]


async def test_a_timeout_of_a_call_that_runs_says_so(clock: Clock) -> None:
    unit = HeldUnit()
    async with aa.Scheduler([unit]) as scheduler:
        with pytest.raises(aa.DeadlineError, match="under way") as raised:
            await scheduler("x", timeout=1e-9)
        assert raised.value.started
        assert scheduler.statistics().running == 0
    assert unit.calls == ["x"]


async def test_a_caller_whose_time_is_over_submits_nothing() -> None:
    unit = HeldUnit()
    async with aa.Scheduler([unit]) as scheduler:
        with anyio.move_on_after(0):
            await scheduler("x")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await scheduler("x")
        assert scheduler.statistics().submitted == 0
    assert unit.calls == []


async def test_a_request_whose_deadline_passes_while_the_loop_is_busy_is_not_submitted(clock: Clock) -> None:
    unit = HeldUnit()
    async with aa.Scheduler([unit], concurrency=1) as scheduler, anyio.create_task_group() as group:
        group.start_soon(scheduler, "first")
        await settle()

        async def late() -> None:
            await scheduler("late", timeout=5)

        async def cancelled_late() -> None:
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                await late()

        scopes: list[anyio.CancelScope] = []
        group.start_soon(cancelled_late)
        await settle()
        clock.now += 6  # the loop has not seen to its timers yet
        unit.end()
        await settle()
        assert unit.calls == ["first"]
        scopes[0].cancel()
    assert scheduler.statistics().cancelled == 1


async def test_the_callers_deadline_is_what_it_is_when_a_slot_comes(clock: Clock) -> None:
    unit = HeldUnit()
    async with aa.Scheduler([unit], concurrency=1) as scheduler, anyio.create_task_group() as group:

        async def request(name: str, scope: anyio.CancelScope) -> None:
            with scope:
                await scheduler(name)

        group.start_soon(scheduler, "first")
        await settle()
        scopes = {name: anyio.CancelScope(deadline=clock.real() + 5000) for name in ("late", "moved")}
        for name, scope in scopes.items():
            group.start_soon(request, name, scope)
            await settle()
        clock.now = clock.real() + 6000  # both are over, and the loop has not seen to its timers yet
        scopes["moved"].deadline = float("inf")
        unit.end()
        await settle()
        assert unit.calls == ["first"]
        scopes["late"].cancel()  # as the loop is about to
        await settle()
        assert unit.calls == ["first", "moved"]
        unit.end()


async def test_a_slot_that_is_handed_to_a_cancelled_request_goes_on() -> None:
    for when in ("before", "after"):
        unit = HeldUnit()
        async with aa.Scheduler([unit], concurrency=1) as scheduler:

            async def waiter(name: str, scope: anyio.CancelScope) -> None:
                with scope:
                    await scheduler(name)

            async with anyio.create_task_group() as group:
                first, second, third = (anyio.CancelScope() for _ in range(3))
                for name, scope in (("first", first), ("second", second), ("third", third)):
                    group.start_soon(waiter, name, scope)
                    await settle()
                for step in ("cancel", "end") if when == "before" else ("end", "cancel"):
                    if step == "cancel":
                        second.cancel()
                    else:
                        unit.end()
                        if when == "after":
                            while scheduler.statistics().ok == 0:  # the slot is the second's now
                                await anyio.lowlevel.checkpoint()
                await settle()
                check_identity(scheduler.statistics())
                unit.end()
                assert scheduler.statistics().cancelled == 1
                assert second.cancelled_caught
            assert unit.calls[-1] == "third"
            assert scheduler.statistics().units[0].running == 0


async def test_requests_add_up_at_any_moment() -> None:
    choice = random.Random(23)
    units = [HeldUnit(), HeldUnit()]
    rejected = 0
    scopes: list[anyio.CancelScope] = []
    async with aa.Scheduler(units, queue_limit=8, overflow="reject", retries=1) as scheduler:

        async def request() -> None:
            nonlocal rejected
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                try:
                    await scheduler("x", timeout=choice.choice([None, None, 1e-9]))
                except aa.QueueFullError:
                    rejected += 1
                except (aa.AclError, aa.DeadlineError):
                    pass

        async with anyio.create_task_group() as group:
            for _ in range(1000):
                match choice.randrange(5):
                    case 0 | 1:
                        group.start_soon(request)
                    case 2 if scopes:
                        scopes.pop(choice.randrange(len(scopes))).cancel()
                    case _:
                        busy = [unit for unit in units if unit.next_end < float("inf")]
                        if busy:
                            outcome = choice.choice([None, error_from_code(CALLER), error_from_code(RETRY)])
                            choice.choice(busy).end(outcome)
                for _ in range(choice.randrange(4)):
                    await anyio.lowlevel.checkpoint()
                    check_identity(scheduler.statistics())
            group.cancel_scope.cancel()
        statistics = scheduler.statistics()
    check_identity(statistics)
    assert (statistics.waiting, statistics.running, statistics.rejected) == (0, 0, rejected)
    assert min(statistics.ok, statistics.failed, statistics.cancelled, statistics.timed_out, statistics.retried) > 0
    assert [unit.running for unit in statistics.units] == [0, 0]


async def test_equal_keys_go_to_the_same_unit_while_it_is_there() -> None:
    calls: list[list[int]] = [[], [], []]

    def unit(index: int) -> Any:
        async def call(key: int) -> None:
            calls[index].append(key)

        return call

    async with aa.Scheduler([unit(0), unit(1), unit(2)]) as scheduler:
        for _ in range(2):
            for key in range(60):
                await scheduler(key, affinity=f"user {key}")
        homes = [set(keys) for keys in calls]
        assert sum(map(len, homes)) == 60
        assert min(map(len, homes)) > 0

        async def fail(_: Any) -> None:
            raise error_from_code(GONE)

        with pytest.raises(aa.DeviceLostError):
            await scheduler.run(fail, unit=0, retries=0)
        for keys in calls:
            keys.clear()
        for key in range(60):
            await scheduler(key, affinity=f"user {key}")
        assert not calls[0]
        assert homes[1] <= set(calls[1])  # only keys of the lost unit have moved
        assert homes[2] <= set(calls[2])
        scheduler.restore(0)
        for key in range(60):
            await scheduler(key, affinity=f"user {key}")
        assert set(calls[0]) == homes[0]


async def test_a_pinned_request_waits_for_its_unit_and_holds_up_nobody() -> None:
    first, second = HeldUnit(), HeldUnit()
    async with aa.Scheduler([first, second], concurrency=1) as scheduler:

        async def request(name: str, unit: int | None) -> None:
            await scheduler(name, unit=unit)

        async with anyio.create_task_group() as group:
            for name, unit in (("a", 0), ("b", 0), ("c", None), ("d", None)):
                group.start_soon(request, name, unit)
                await settle()
            assert (first.calls, second.calls) == (["a"], ["c"])
            second.end()
            await settle()
            assert (first.calls, second.calls) == (["a"], ["c", "d"])  # past b
            first.end()
            await settle()
            assert first.calls == ["a", "b"]
            first.end()
            second.end()


async def test_a_kind_takes_no_more_than_its_share() -> None:
    units = [HeldUnit(), HeldUnit()]
    async with aa.Scheduler(units, kinds={"ocr": 0.5}) as scheduler:

        async def request(name: str, kind: str | None) -> None:
            await scheduler(name, kind=kind)

        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(request, f"ocr {number}", "ocr")
            await settle()
            assert scheduler.statistics().running == 2
            for number in range(2):
                group.start_soon(request, f"other {number}", None)
            await settle()
            assert scheduler.statistics().running == 4
            assert {"other 0", "other 1"} <= {*units[0].calls, *units[1].calls}
            while scheduler.statistics().running:
                units[units[0].next_end == float("inf")].end()
                await settle()
    assert sum(len(unit.calls) for unit in units) == 6


# --- failures ---


class FailingUnit:
    """Raises, as long as there is something to raise."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.calls = 0

    async def __call__(self, value: int) -> int:
        self.calls += 1
        if self.codes:
            raise error_from_code(self.codes.pop(0))
        return value


async def test_faults_of_the_caller_are_never_run_again() -> None:
    units = [FailingUnit(CALLER), FailingUnit(CALLER)]
    async with aa.Scheduler(units, retries=3, policy="round_robin") as scheduler:
        with pytest.raises(aa.ArgumentError):
            await scheduler(1)
        assert [unit.calls for unit in units] == [1, 0]
        assert await scheduler(2, unit=0) == 2


async def test_what_a_unit_cannot_do_is_done_by_another() -> None:
    units = [FailingUnit(ELSEWHERE, ELSEWHERE), FailingUnit()]
    async with aa.Scheduler(units, policy=lambda free: free[0]) as scheduler:
        assert await scheduler(1) == 1
        assert [unit.calls for unit in units] == [1, 1]
        with pytest.raises(aa.TaskError):
            await scheduler(1, unit=0)
        assert [unit.calls for unit in units] == [2, 1]  # nobody else may
        assert await scheduler(2, unit=0) == 2  # that it could not do these does not put it out of service
        assert scheduler.statistics().retried == 1


async def test_calls_that_must_not_run_twice_do_not() -> None:
    units = [FailingUnit(GONE), FailingUnit()]
    async with aa.Scheduler(units, policy=lambda free: free[0]) as scheduler:
        with pytest.raises(aa.DeviceLostError):
            await scheduler(1, retries=0)
        assert await scheduler(2, retries=0) == 2
        assert [unit.calls for unit in units] == [1, 1]


async def test_when_the_last_unit_goes_everybody_is_told() -> None:
    units = [HeldUnit(), HeldUnit()]
    errors: list[aa.AclError] = []
    async with aa.Scheduler(units, concurrency=1, queue_limit=4) as scheduler:

        async def request() -> None:
            try:
                await scheduler("x")
            except aa.AclError as error:
                errors.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(request)
            await settle()
            for unit in units:
                unit.end(error_from_code(GONE))
        assert [error.code for error in errors] == [GONE] * 20
        assert len(set(map(id, errors))) == 20
        with pytest.raises(aa.DeviceLostError):
            await scheduler("x")
        assert [len(unit.calls) for unit in units] == [1, 1]
        assert [unit.state for unit in scheduler.statistics().units] == ["failed", "failed"]
        scheduler.restore(1)
        async with anyio.create_task_group() as group:
            group.start_soon(scheduler, "y")
            await settle()
            units[1].end()
    assert units[1].calls == ["x", "y"]


async def test_requests_wait_for_a_recovery_and_run_on_what_it_returns() -> None:
    recovering, go_on = anyio.Event(), anyio.Event()
    fresh = FailingUnit()

    async def recover(unit: FailingUnit) -> FailingUnit:
        assert unit is failing
        recovering.set()
        await go_on.wait()
        return fresh

    failing = FailingUnit(GONE)
    answers: list[int] = []
    async with aa.Scheduler([failing], recover=recover) as scheduler:

        async def request(value: int) -> None:
            answers.append(await scheduler(value))

        async with anyio.create_task_group() as group:
            for value in range(5):
                group.start_soon(request, value)
            await recovering.wait()
            assert scheduler.statistics().units[0].state == "recovering"
            go_on.set()
        assert scheduler.units == (fresh,)
        assert scheduler.statistics().units[0].state == "ok"
    assert sorted(answers) == list(range(5))
    assert failing.calls + fresh.calls == 6


async def test_a_recovery_that_fails_fails_those_who_wait_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    sleeping, go_on = anyio.Event(), anyio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        sleeping.set()
        await go_on.wait()

    monkeypatch.setattr(anyio, "sleep", sleep)
    attempts = 0

    async def recover(unit: FailingUnit) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ZeroDivisionError("a mistake in recover")

    async with aa.Scheduler([FailingUnit(GONE)], recover=recover, recover_pause=7) as scheduler:
        with pytest.raises(ZeroDivisionError):
            await scheduler(1)
        await sleeping.wait()
        with pytest.raises(ZeroDivisionError):
            await scheduler(1)
        go_on.set()
        while scheduler.statistics().units[0].state != "ok":
            await anyio.lowlevel.checkpoint()
        assert await scheduler(2) == 2
    assert (slept, attempts) == ([7], 2)


async def test_a_policy_that_makes_mistakes_hurts_nobody_else() -> None:
    unit = HeldUnit()
    policies = [lambda free: 1 / 0, lambda free: None]

    def policy(free: Any) -> Any:
        return policies.pop(0)(free) if policies else free[0]

    async with aa.Scheduler([unit, HeldUnit()], policy=policy) as scheduler:
        with pytest.raises(ZeroDivisionError):
            await scheduler("x")
        with pytest.raises(RuntimeError, match="must return one of the units"):
            await scheduler("x")
        async with anyio.create_task_group() as group:
            group.start_soon(scheduler, "y")
            await settle()
            unit.end()
        check_identity(scheduler.statistics())
    assert unit.calls == ["y"]


# --- life cycle ---


async def test_closing_waits_for_what_was_taken_and_takes_no_more() -> None:
    unit = HeldUnit()
    answers: list[str] = []
    async with anyio.create_task_group() as group:

        async def request(name: str) -> None:
            answers.append(await scheduler(name))

        async def leave() -> None:
            async with scheduler:
                ready.set()
                await requested.wait()
            left.set()

        scheduler = aa.Scheduler([unit], concurrency=1)
        ready, requested, left = anyio.Event(), anyio.Event(), anyio.Event()
        group.start_soon(leave)
        await ready.wait()
        for name in ("a", "b"):
            group.start_soon(request, name)
        await settle()
        requested.set()
        await settle()
        with pytest.raises(aa.RuntimeClosedError, match="closing"):
            await scheduler("c")
        assert not left.is_set()
        for _ in range(2):
            unit.end()
            await settle()
        assert left.is_set()
        await scheduler.close()
    assert sorted(answers) == ["a", "b"]
    with pytest.raises(aa.RuntimeClosedError, match="is closed"):
        await scheduler("d")


async def test_leaving_by_an_exception_refuses_those_who_wait_and_raises_it_as_it_is() -> None:
    unit = HeldUnit()
    outcomes: list[BaseException | str] = []
    async with anyio.create_task_group() as group:

        async def request(name: str) -> None:
            try:
                outcomes.append(await scheduler(name))
            except aa.RuntimeClosedError as error:
                outcomes.append(error)

        scheduler = aa.Scheduler([unit], concurrency=1)

        async def leave() -> None:
            async with scheduler:
                for name in ("a", "b"):
                    group.start_soon(request, name)
                await settle()
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await leave()
        await settle()
        assert [type(outcome) for outcome in outcomes] == [aa.RuntimeClosedError]
        unit.end()
    assert outcomes[1] in ("a", "b")
    check_identity(scheduler.statistics())
    assert (scheduler.statistics().running, scheduler.statistics().waiting) == (0, 0)


async def test_it_is_used_inside_its_block_once() -> None:
    scheduler = aa.Scheduler([double])
    for use in (lambda: scheduler(1), lambda: scheduler.run(double)):
        with pytest.raises(RuntimeError, match="has not been entered"):
            await use()
    with pytest.raises(RuntimeError, match="has not been entered"):
        scheduler.restore(0)
    assert repr(scheduler) == "<Scheduler of 1 unit, not entered>"
    assert (scheduler.units, scheduler.closed) == ((double,), False)
    before = scheduler.statistics()
    assert (before.submitted, before.oldest_wait) == (0, 0)
    assert [(unit.state, unit.busy_seconds, unit.busy_rate) for unit in before.units] == [("ok", 0, 0)]
    async with scheduler:
        assert await scheduler(2) == 4
        assert repr(scheduler) == "<Scheduler of 1 unit, open: 0 waiting, 0 running>"
        with pytest.raises(RuntimeError, match="entered before"):
            await scheduler.__aenter__()
        assert await scheduler(3) == 6
    assert scheduler.closed
    for use in (lambda: scheduler(1), scheduler.__aenter__):
        with pytest.raises((aa.RuntimeClosedError, RuntimeError), match=r"is closed|entered before"):
            await use()
    with pytest.raises(aa.RuntimeClosedError, match="is closed"):
        scheduler.restore(0)
    assert scheduler.statistics().ok == 2


async def test_what_is_closed_before_it_is_entered_stays_closed() -> None:
    scheduler = aa.Scheduler([double])
    for _ in range(2):
        await scheduler.close()
        assert scheduler.closed
        assert scheduler.units == (double,)
        assert scheduler.statistics().submitted == 0
        with pytest.raises(aa.RuntimeClosedError, match="is closed"):
            await scheduler(1)
    with pytest.raises(RuntimeError, match="closed; make another one"):
        await scheduler.__aenter__()


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"units": []}, ValueError, "at least one unit"),
        ({"units": 3}, TypeError, "list or tuple, not 3"),
        ({"policy": "fastest"}, ValueError, "'fastest'"),
        ({"policy": 1}, TypeError, "not 1"),
        ({"concurrency": 0}, ValueError, "concurrency .* not 0"),
        ({"queue_limit": -1}, ValueError, "queue_limit .* not -1"),
        ({"overflow": "drop"}, ValueError, "'drop'"),
        ({"ageing": 0}, ValueError, "ageing .* not 0"),
        ({"kinds": {"ocr": 2}}, ValueError, "'ocr' .* not 2"),
        ({"kinds": {"ocr": "half"}}, TypeError, "'half'"),
        ({"kinds": ["ocr"]}, TypeError, "kinds must be a dict"),
        ({"retries": -1}, ValueError, "retries .* not -1"),
        ({"recover": "reset"}, TypeError, "'reset'"),
    ],
)
async def test_scheduler_arguments_are_checked(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        aa.Scheduler(**{"units": [double], **arguments})


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"unit": 1}, ValueError, "unit .* not 1"),
        ({"unit": 0, "affinity": "a"}, ValueError, "not both"),
        ({"affinity": []}, TypeError, "hashable"),
        ({"priority": "high"}, TypeError, "'high'"),
        ({"kind": "ocr"}, ValueError, "there are none.* not 'ocr'"),
        ({"timeout": 0}, ValueError, "timeout .* not 0"),
        ({"retries": 1.5}, TypeError, "retries .* not 1.5"),
    ],
)
async def test_request_arguments_are_checked(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    async with aa.Scheduler([double]) as scheduler:
        with pytest.raises(kind, match=message):
            await scheduler(1, **arguments)
        assert scheduler.statistics().submitted == 0
