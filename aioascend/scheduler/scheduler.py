# SPDX-License-Identifier: Apache-2.0
"""Calls wait in one queue on the host, and go to whichever unit has room."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import anyio

from aioascend._arguments import seconds, whole
from aioascend.device import Device
from aioascend.scheduler.calls import Calls, Recover
from aioascend.scheduler.dispatch import Dispatch
from aioascend.scheduler.loaded import Loaded
from aioascend.scheduler.options import check_kinds, check_policy, check_request, check_units
from aioascend.scheduler.policies import Policy
from aioascend.scheduler.requests import Request, Waiting
from aioascend.scheduler.statistics import SchedulerStatistics
from aioascend.scheduler.units import SchedulerUnit

if TYPE_CHECKING:
    from typing_extensions import Self

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
    - A unit has at most `in_flight` calls. What a cancelled call of a model or stream left on the device counts until
      the device is past it.
    - Among requests that can go to the same units, one waits only behind those made before it, and behind more urgent
      ones that were made at most (difference of their priorities) x `ageing` seconds after it.
    - A request whose deadline has passed is not given to a unit.
    - A unit of which an error says that it is gone, or whose device is out of service, gets no further call until it is
      back: when `recover` has brought it back; without that, when its device works again and it is still open; or upon
      `restore`. When nobody is left who could take a request, or is about to be recovered, it raises the error of the
      unit at once.

    Not guaranteed: that requests end in the order they were made; that a call which is run again has not run before.

    It belongs to the event loop in which it is entered. Leaving the block closes it; leaving it by an exception makes
    requests that wait raise `RuntimeClosedError`, and does not wait for those that run.

    Args:
        units: What to spread over, at least one; the scheduler does not close them.
        policy: Who gets a call when several have room: "least_loaded" (who will be done with it first, by its recent
            service times and its calls in flight), "round_robin", "weighted_random" (the fewer calls, the likelier),
            "two_choices" (the less loaded of two at random); or a function that takes the units that have room, as
            `SchedulerUnit`s, and returns one of them. It must not block.
        in_flight: Calls that a unit may have at the same time.
        queue_limit: Requests that may wait; 0 only with overflow="reject".
        overflow: What becomes of a request that finds the queue full. "wait": it waits for a place, first come, first
            served. "reject": it raises `QueueFullError`.
        ageing: Seconds of waiting that make up for one step of priority.
        kinds: For some kinds of requests the share of the slots of all units in service that they may take, above 0 and
            up to 1, at least one slot. What exceeds it waits, others pass.
        retries: How often a call that failed through no fault of its own (`error.retry` is "retry", "elsewhere" or
            "gone") is run again, on another unit if it is "elsewhere". 0 for calls that must not run twice.
        recover: An async function that brings a unit back which is out of service. It is given the unit, and returns
            what takes its place, or None if that is the unit itself. What it raises, the unit's requests raise.
        recover_pause: Seconds after which `recover` is tried again when it has failed.

    Raises:
        TypeError, ValueError: an argument makes no sense; the message names it.
    """

    def __init__(
        self,
        units: Sequence[U],
        *,
        policy: str | Policy = "least_loaded",
        in_flight: int = 2,
        queue_limit: int = 1024,
        overflow: Literal["wait", "reject"] = "wait",
        ageing: float = 1.0,
        kinds: Mapping[str, float] | None = None,
        retries: int = 1,
        recover: Recover[U] | None = None,
        recover_pause: float = 1.0,
    ) -> None:
        self._given = check_units(units)
        self._policy = check_policy(policy)
        self._in_flight = whole("in_flight", in_flight, 1, 2**20, "a number of calls")
        if overflow not in ("wait", "reject"):
            raise ValueError(f'overflow must be "wait" or "reject", not {overflow!r}')
        self._waits = overflow == "wait"
        least = 1 if self._waits else 0
        self._queue_limit = whole("queue_limit", queue_limit, least, 2**31 - 1, "a number of requests")
        self._ageing = seconds("ageing", ageing)
        self._kinds = check_kinds(kinds)
        self._retries = whole("retries", retries, 0, 1000, "a number of further tries")
        if recover is not None and not callable(recover):
            raise TypeError(f"recover must be an async function, not {recover!r}")
        self._recover = recover
        self._recover_pause = seconds("recover_pause", recover_pause)
        self._calls: Calls[U] = Calls()

    @classmethod
    def over_devices(
        cls, devices: Sequence[Device], load: Callable[[Device], Awaitable[U]], **options: Any
    ) -> contextlib.AbstractAsyncContextManager[Scheduler[U]]:
        """One unit on each of the devices, for `async with`.

            async with aioascend.Scheduler.over_devices([npu0, npu1], lambda npu: npu.load_model("m.om")) as scheduler:
                boxes = await scheduler(image)

        Units are loaded side by side, and closed with the block if they have a `close`. When a unit is out of service,
        its device is reset if that has failed (which takes it from everybody in the process), and the unit is loaded
        again. A device may be given several times, for as many units.

        Args:
            devices: Open devices.
            load: Makes the unit of a device.
            **options: See `Scheduler`; all but `recover`.

        Raises (when entered): what `load` raises.
        """
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
        timeout: float | None = None,  # noqa: ASYNC109 - it has an error of its own
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
        timeout: float | None = None,  # noqa: ASYNC109 - it has an error of its own
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
            RuntimeClosedError: the scheduler is not open.
            Exception: what the call has raised, or why the units are out of service.
        """
        self._calls.check("open")
        limit, again = check_request(
            len(self._given), self._kinds, self._retries, unit, affinity, kind, timeout, retries
        )
        now = anyio.current_time()
        request = Request(
            made=now,
            key=now + whole("priority", priority, -(10**6), 10**6, "a priority") * self._ageing,
            deadline=now + limit,
            pinned=unit,
            affinity=affinity,
            kind=kind,
            retries=again,
        )
        return await self._calls.run(request, call, limit, wait=self._waits)

    # --- units ---

    @property
    def units(self) -> tuple[U, ...]:
        """The units, as they are now; `recover` may have replaced some."""
        if self._calls.state == "new":
            return tuple(self._given)
        return tuple(unit.unit for unit in self._calls.dispatch.units)

    def restore(self, unit: int) -> None:
        """Put the unit of this index back into service, now that whatever was wrong with it has been seen to.

        Raises:
            TypeError, ValueError: there is no such unit.
            RuntimeClosedError: the scheduler is not open.
        """
        self._calls.check("open", "draining")
        unit = whole("unit", unit, 0, len(self._given) - 1, "the index of a unit")
        self._calls.dispatch.come_back(self._calls.dispatch.units[unit])

    def statistics(self) -> SchedulerStatistics:
        """What is going on right now.

        Raises:
            RuntimeClosedError: the scheduler was not entered yet.
        """
        self._calls.check("open", "draining", "closed")
        return self._calls.dispatch.statistics()

    # --- life cycle ---

    async def __aenter__(self) -> Self:
        now = anyio.current_time()
        units = [SchedulerUnit(index, unit, self._in_flight, now) for index, unit in enumerate(self._given)]
        waiting = Waiting(self._queue_limit)
        await self._calls.open(Dispatch(units, self._policy(), waiting, self._kinds, self._start_recovery))
        return self

    @property
    def _start_recovery(self) -> Callable[[SchedulerUnit[U]], None] | None:
        recover, pause = self._recover, self._recover_pause
        return None if recover is None else lambda unit: self._calls.start_recovery(unit, recover, pause)

    async def close(self) -> None:
        """Take no more requests, and wait for those that were taken. May be called again.

        A cancelled close leaves it closed to new requests.
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
