# SPDX-License-Identifier: Apache-2.0
"""Calls wait in one queue on the host, and go to whichever unit has room."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from aioascend._arguments import seconds, whole
from aioascend._deadlines import check_priority, checkpoint_if_late, turn_of
from aioascend._words import counted
from aioascend.device import Device
from aioascend.scheduler.calls import Calls, Recover
from aioascend.scheduler.dispatch import Dispatch
from aioascend.scheduler.loaded import Loaded
from aioascend.scheduler.options import check_kinds, check_policy, check_request, check_units
from aioascend.scheduler.policies import Policy
from aioascend.scheduler.requests import Request
from aioascend.scheduler.statistics import SchedulerStatistics
from aioascend.scheduler.units import SchedulerUnit

if TYPE_CHECKING:
    from typing_extensions import Self, TypedDict, Unpack

    class _Options(TypedDict, total=False):
        policy: str | Policy
        concurrency: int
        queue_limit: int
        overflow: Literal["wait", "reject"]
        ageing: float
        kinds: Mapping[str, float] | None
        retries: int
        recover_pause: float


__all__ = ["Scheduler"]

U = TypeVar("U")
R = TypeVar("R")


class Scheduler(Generic[U]):
    """Spreads calls over units: devices, streams, models, or whatever else calls can be made on.

        async with aioascend.Scheduler([first, second]) as scheduler:
            boxes = await scheduler(image)
            boxes = await scheduler.run(lambda model: model(image))

    A request waits in one queue of the scheduler, and is given to a unit when that can begin with it. The call runs in
    the caller's own task.

    Guaranteed:
    - A unit has at most `concurrency` calls. What a cancelled call of a model or stream left on the device counts until
      the device is past it, and past the rest of what the unit had been given by then.
    - Among requests that can go to the same units, one waits only behind those made before it, and behind more urgent
      ones that were made at most (difference of their priorities) x `ageing` seconds after it.
    - A request whose deadline has passed is not given to a unit.
    - A unit of which an error says that it is gone, or whose device is out of service, gets no further call until it is
      back: when `recover` has brought it back; without that, when its device works again and it is still open, which is
      looked at whenever a request is made or ends; or upon `restore`. When nobody is left who could take a request, or
      is about to be recovered, it raises the error of the unit at once.

    Not guaranteed: that requests end in the order they were made; that a call which is run again has not run before.

    It belongs to the event loop in which it is entered. Leaving the block closes it; leaving it by an exception, or
    cancelling it from outside, makes requests that wait raise `RuntimeClosedError`, and does not wait for those that
    run.

    Args:
        units: What to spread over, at least one; the scheduler does not close them.
        policy: Who gets a call when several have room: "least_loaded" (who will be done with it first, by its recent
            service times and its calls in flight), "round_robin", "weighted_random" (the fewer calls, the likelier),
            "two_choices" (the less loaded of two at random); or a function that takes the units that have room, as
            `SchedulerUnit`s, and returns one of them. It must not block.
        concurrency: Calls that a unit may have at the same time.
        queue_limit: Requests that may wait with overflow="reject"; 0 for none.
        overflow: What becomes of a request beyond that. "wait": it waits like the others, so there is no limit but the
            number of callers. "reject": it raises `QueueFullError`.
        ageing: Seconds of waiting that make up for one step of priority.
        kinds: For some kinds of requests the share of the slots of all units in service that they may take, above 0 and
            up to 1, at least one slot. What exceeds it waits, others pass.
        retries: How often a call that failed through no fault of its own (`error.retry` is "retry", "elsewhere" or
            "gone") is run again, on another unit if it is "elsewhere". 0 for calls that must not run twice.
        recover: An async function that brings a unit back which is out of service. It is given the unit, and returns
            what takes its place, or None if that is the unit itself. What it raises, the unit's requests raise; that
            the unit is closed, or its device failed, after all counts as a failure, too.
        recover_pause: Seconds after which `recover` is tried again when it has failed.

    Raises:
        TypeError, ValueError: an argument makes no sense; the message names it.
    """

    def __init__(
        self,
        units: Sequence[U],
        *,
        policy: str | Policy = "least_loaded",
        concurrency: int = 2,
        queue_limit: int = 1024,
        overflow: Literal["wait", "reject"] = "wait",
        ageing: float = 1.0,
        kinds: Mapping[str, float] | None = None,
        retries: int = 1,
        recover: Recover[U] | None = None,
        recover_pause: float = 1.0,
    ) -> None:
        given = check_units(units)
        concurrency = whole("concurrency", concurrency, 1, 2**20, "a number of calls")
        if overflow not in ("wait", "reject"):
            raise ValueError(f'overflow must be "wait" or "reject", not {overflow!r}')
        limit = whole("queue_limit", queue_limit, 0, 2**31 - 1, "a number of requests")
        self._ageing = seconds("ageing", ageing)
        self._kinds = check_kinds(kinds)
        self._retries = whole("retries", retries, 0, 1000, "a number of further tries")
        if recover is not None and not callable(recover):
            raise TypeError(f"recover must be an async function, not {recover!r}")
        self._dispatch = Dispatch(
            [SchedulerUnit(index, unit, concurrency) for index, unit in enumerate(given)],
            check_policy(policy),
            self._kinds,
            limit if overflow == "reject" else None,
        )
        self._calls = Calls(self._dispatch, recover, seconds("recover_pause", recover_pause))

    @classmethod
    def over_devices(
        cls, devices: Sequence[Device], load: Callable[[Device], Awaitable[U]], **options: Unpack[_Options]
    ) -> contextlib.AbstractAsyncContextManager[Scheduler[U]]:
        """One unit on each of the devices, for `async with`.

            async with aioascend.Scheduler.over_devices([npu0, npu1], lambda npu: npu.load_model("m.om")) as scheduler:
                boxes = await scheduler(image)

        Units are loaded side by side, and closed with the block if they have a `close`. When a unit is out of service,
        its device is reset if that has failed (which takes it from everybody in the process), and the unit is loaded
        again; that may close it once more if it has failed. A device may be given several times, for as many units.

        Args:
            devices: Open devices.
            load: Makes the unit of a device.
            **options: See `Scheduler`; all but `recover`.

        Raises:
            TypeError, ValueError: an argument makes no sense; the message names it.

        Raises (when entered): what `load` raises.
        """
        if "recover" in options:
            raise TypeError("recover is what over_devices comes with: it resets the device, and loads the unit again")
        Scheduler(devices, **options)  # or else wrong options would come up when all has been loaded
        return Loaded(check_units(devices), load, lambda units, recover: cls(units, recover=recover, **options))

    # --- calls ---

    async def __call__(
        self,
        /,
        *args: Any,
        unit: int | None = None,
        affinity: Hashable = None,
        priority: int = 0,
        kind: str | None = None,
        timeout: float | None = None,
        retries: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call a unit, as `run(lambda unit: unit(*args, **kwargs))`. The named arguments are those of `run`; for a unit
        that has some of the same name, use that."""
        return await self.run(
            lambda callee: callee(*args, **kwargs),  # type: ignore[operator]
            unit=unit,
            affinity=affinity,
            priority=priority,
            kind=kind,
            timeout=timeout,
            retries=retries,
        )

    async def run(
        self,
        call: Callable[[U], Awaitable[R]],
        *,
        unit: int | None = None,
        affinity: Hashable = None,
        priority: int = 0,
        kind: str | None = None,
        timeout: float | None = None,
        retries: int | None = None,
    ) -> R:
        """Run `await call(unit)` with one of the units, when one has room.

        Cancelling the caller withdraws a request that waits, and cancels a call that runs; what that has put on the
        device goes on (docs/cancellation.md).

        Args:
            call: What to do with the unit.
            unit: Index of the only unit that may take it.
            affinity: Requests with equal keys go to the same unit as long as that is in service, and wait for it.
            priority: The lower, the more urgent, as with streams.
            kind: One of `kinds`.
            timeout: Seconds until the result has to be there; None for no limit but the caller's own.
            retries: As the scheduler's, for this call.

        Raises:
            TypeError, ValueError: an argument makes no sense; the message names it.
            QueueFullError: there is no room, with overflow="reject".
            DeadlineError: the timeout has passed.
            RuntimeClosedError: the scheduler is closed.
            RuntimeError: it has not been entered, or another event loop has.
            Exception: what the call has raised, or why the units are out of service.
        """
        limit, again = check_request(
            len(self._dispatch.units), self._kinds, self._retries, unit, affinity, kind, timeout, retries
        )
        priority = check_priority(priority)
        await checkpoint_if_late()
        self._calls.check()
        now = self._dispatch.now()
        request = Request(
            made=now,
            turn=turn_of(now, priority, self._ageing),
            deadline=now + limit,
            pinned=unit,
            affinity=affinity,
            kind=kind,
            retries=again,
        )
        return await self._calls.run(request, call, limit)

    # --- units ---

    @property
    def units(self) -> tuple[U, ...]:
        """The units, as they are now; `recover` may have replaced some."""
        return tuple(unit.unit for unit in self._dispatch.units)

    def restore(self, unit: int) -> None:
        """Put the unit of this index back into service, now that whatever was wrong with it has been seen to.

        Does nothing unless the unit's state is "failed": while `recover` is at it, it is left to that.

        Raises:
            TypeError, ValueError: there is no such unit.
            RuntimeClosedError: the scheduler is closed.
            RuntimeError: it has not been entered, or another event loop has.
        """
        unit = whole("unit", unit, 0, len(self._dispatch.units) - 1, "the index of a unit")
        self._calls.check(draining=True)
        self._calls.restore(self._dispatch.units[unit])

    def statistics(self) -> SchedulerStatistics:
        """What is going on right now. May be called at any time, by any thread."""
        return self._dispatch.statistics()

    # --- life cycle ---

    @property
    def closed(self) -> bool:
        """Whether it takes no more requests."""
        return self._calls.state in ("draining", "closed")

    async def __aenter__(self) -> Self:
        await self._calls.open()
        return self

    async def close(self) -> None:
        """Take no more requests, and wait for those that were taken. May be called again, and before it is entered.

        A cancelled close leaves it closed to new requests. When the block is cancelled, nothing is waited for.

        Raises:
            RuntimeError: another event loop has entered it.
        """
        await self._calls.drain()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.close()
        finally:
            await self._calls.leave()

    def __repr__(self) -> str:
        units = counted(len(self._dispatch.units), "unit")
        if self._calls.state == "new":
            return f"<Scheduler of {units}, not entered>"
        now = self.statistics()
        return f"<Scheduler of {units}, {self._calls.state}: {now.waiting} waiting, {now.running} running>"
