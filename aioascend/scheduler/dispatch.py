# SPDX-License-Identifier: Apache-2.0
"""Which request gets which unit, and when. Nothing here waits, so nothing can come in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from aioascend.errors import QueueFullError, fresh
from aioascend.scheduler.policies import Policy
from aioascend.scheduler.requests import Request, Waiting
from aioascend.scheduler.statistics import SchedulerStatistics
from aioascend.scheduler.units import SchedulerUnit

__all__ = ["Dispatch"]

U = TypeVar("U")


class Dispatch(Generic[U]):
    """The units, the requests that wait for them, and the counts.

    Args:
        units: What calls are spread over.
        policy: Chooses among those that have room.
        kinds: The share of all slots that requests of a kind may have.
        limit: How many requests may wait; None if those beyond it wait as well.

    Attributes:
        recover: Begins to bring a unit back; None if nobody does.
        now: The clock of the loop, once there is one.
    """

    recover: Callable[[SchedulerUnit[U]], None] | None = None

    def __init__(
        self, units: Sequence[SchedulerUnit[U]], policy: Policy, kinds: Mapping[str, float], limit: int | None
    ) -> None:
        self.units = units
        self.waiting = Waiting()
        self.counts: Counter[str] = Counter()
        self.now: Callable[[], float] = float  # 0, always
        self._policy = policy
        self._kinds = kinds
        self._of_kind: Counter[str] = Counter()
        self._limit = limit
        self._went_out = False

    def open(self, now: Callable[[], float]) -> None:
        """In the loop."""
        self.now = now
        for unit in self.units:
            unit.open(now())

    # --- requests ---

    def enter(self, request: Request) -> None:
        """A new request: it gets a unit, waits, or is told that nobody can take it.

        Raises:
            QueueFullError: there is no room, and it is not to wait for it.
        """
        self.counts["submitted"] += 1
        self._queue(request)
        depth = len(self.waiting) - 1
        if self._limit is not None and request.unit is None and request.error is None and depth >= self._limit:
            self.waiting.remove(request)
            self.counts["submitted"] -= 1
            self.counts["rejected"] += 1
            raise QueueFullError("the queue of the scheduler", depth, self._limit, self._retry_after())

    def run_again(self, request: Request, unit: SchedulerUnit[U]) -> None:
        """It has failed, through no fault of its own, and waits once more."""
        request.retries -= 1
        self.counts["retried"] += 1
        self.put_back(request, unit)

    def put_back(self, request: Request, unit: SchedulerUnit[U]) -> None:
        """It does not go to this unit, and gets another one, at its turn."""
        self._take_back(request, unit)
        request.woken = None
        self._queue(request)

    def _queue(self, request: Request) -> None:
        self.waiting.add(request)
        self.go_on()
        if request.unit is None and request.error is None:
            request.error = self._hopeless(request)

    def _retry_after(self) -> float | None:
        """Seconds in which one call ends, by how fast they have been ending."""
        rate = sum(1 / unit.service_seconds for unit in self.units if unit.state == "ok" and unit.service_seconds)
        return 1 / rate if rate else None

    def _place(self, request: Request) -> bool:
        """Gives it a unit, if one that may have it has room. A unit that is found to be out of service is taken out,
        and nothing else done: it may be the turn of somebody else then."""
        able = [unit for unit in self.units if unit.state == "ok" and request.accepts(unit)]
        if request.affinity is not None and able:
            able = [max(able, key=lambda unit: _affinity(request.affinity, unit.index))]
        free = [unit for unit in able if unit.taken < unit.limit]
        if not free or not self._kind_has_room(request.kind):
            return False
        chosen = free[0] if len(free) == 1 else self._chosen(free)
        trouble = chosen.trouble()
        if trouble is not None:
            self.take_out(chosen, trouble)
            return False
        chosen.take(self.now())
        request.unit = chosen
        if request.kind is not None:
            self._of_kind[request.kind] += 1
        return True

    def _chosen(self, free: Sequence[SchedulerUnit[U]]) -> SchedulerUnit[U]:
        chosen = self._policy(free)
        if not any(chosen is unit for unit in free):
            raise RuntimeError(f"a policy must return one of the units that it is given, not {chosen!r}")
        return chosen

    def _kind_has_room(self, kind: str | None) -> bool:
        if kind is None:
            return True
        slots = sum(unit.limit for unit in self.units if unit.state == "ok")
        return self._of_kind[kind] < max(1, int(self._kinds[kind] * slots))

    def _hopeless(self, request: Request) -> Exception | None:
        """Why nobody can take it, now or soon; None if somebody can."""
        if self.possible(request):
            return None
        return next((unit.error for unit in self._wanted(request) if unit.error is not None), None)

    def possible(self, request: Request) -> bool:
        """Whether somebody can take it, now or soon. What comes back has not been tried yet."""
        return any(
            unit.state == "recovering" or (unit.state == "ok" and request.accepts(unit))
            for unit in self._wanted(request)
        )

    def _wanted(self, request: Request) -> Sequence[SchedulerUnit[U]]:
        return self.units if request.pinned is None else [self.units[request.pinned]]

    @property
    def idle(self) -> bool:
        """Whether there is no request."""
        return not self.waiting and all(unit.running == 0 for unit in self.units)

    def refuse(self, error: Exception) -> None:
        """All that wait raise the error."""
        for request in self.waiting:
            request.error = request.error or error
            request.wake()

    def leave(self, request: Request, outcome: str) -> None:
        """It is over."""
        if request.unit is None:
            self.waiting.remove(request)
        else:
            self._take_back(request, request.unit)
        self.counts[outcome] += 1
        self.go_on()

    def _take_back(self, request: Request, unit: SchedulerUnit[Any]) -> None:
        """The slot, of a request that is over or runs again."""
        if request.kind is not None:
            self._of_kind[request.kind] -= 1
        unit.give_back(self.now())
        request.unit = request.callee = request.began = None

    def abandon(self, unit: SchedulerUnit[Any], outcome: str) -> None:
        """A request of the unit is over, and what it began on the device goes on: the slot stays taken until
        `settled`."""
        unit.abandoned += 1
        self.counts[outcome] += 1

    def settled(self, request: Request, unit: SchedulerUnit[Any]) -> None:
        """What it had begun on the device is over."""
        unit.abandoned -= 1
        self._take_back(request, unit)
        self.go_on()

    def go_on(self) -> None:
        """Gives units to those who wait, after something has changed."""
        self._look_for_returned()
        while not self._hand_out():
            pass
        if self._went_out:
            self._went_out = False
            for request in self.waiting:
                request.error = request.error or self._hopeless(request)
                if request.error is not None:
                    request.wake()

    def _hand_out(self) -> bool:
        """False: a unit has been found to be out of service, so whose turn it is has to be looked at again."""
        now, queue = self.now(), self.waiting.queue
        in_service, room = self._in_service(), self._has_room()
        refused: set[tuple[Hashable, ...]] = set()
        position = 0
        while room and position < len(queue):
            request = queue[position]
            position += 1
            if request.sort in refused or request.error is not None or request.deadline <= now:
                continue  # the last two are about to leave by themselves
            try:
                placed = self._place(request)
            except Exception as error:  # of the policy, which is the user's
                request.error = error
                request.wake()
                continue
            if placed:
                position -= 1
                del queue[position]
                request.wake()
                room = self._has_room()
            elif self._in_service() < in_service:
                return False
            else:
                refused.add(request.sort)
        return True

    def _in_service(self) -> int:
        return sum(unit.state == "ok" for unit in self.units)

    def _has_room(self) -> bool:
        return any(unit.state == "ok" and unit.taken < unit.limit for unit in self.units)

    # --- units ---

    def take_out(self, unit: SchedulerUnit[U], error: Exception) -> None:
        """It gets nothing any more. `go_on` tells those who have nobody else."""
        if unit.state != "ok":
            return
        unit.state, unit.error = "failed", fresh(error)
        self._went_out = True
        if self.recover is not None:
            self.recover(unit)

    def has_failed(self, unit: SchedulerUnit[U], error: Exception) -> None:
        """It could not be brought back this time."""
        unit.state, unit.error = "failed", error
        self._went_out = True
        self.go_on()

    def come_back(self, unit: SchedulerUnit[U]) -> None:
        """It takes calls again."""
        unit.come_back()
        self.go_on()

    def _look_for_returned(self) -> None:
        """A unit whose device has come back takes calls again, unless somebody else sees to that."""
        for unit in self.units:
            if unit.state == "failed" and self.recover is None and unit.device is not None and unit.trouble() is None:
                unit.come_back()

    def statistics(self) -> SchedulerStatistics:
        """A snapshot."""
        now = self.now()
        units = tuple(unit.statistics(now) for unit in self.units)
        waiting = list(self.waiting)
        return SchedulerStatistics(
            submitted=self.counts["submitted"],
            ok=self.counts["ok"],
            failed=self.counts["failed"],
            cancelled=self.counts["cancelled"],
            timed_out=self.counts["timed_out"],
            waiting=len(waiting),
            running=sum(unit.running for unit in units),
            rejected=self.counts["rejected"],
            retried=self.counts["retried"],
            oldest_wait=now - min((request.made for request in waiting), default=now),
            units=units,
        )


def _affinity(key: Hashable, index: int) -> int:
    """The unit with the largest of these has the key: when one goes, only its own keys move."""
    return hash((index, hash(key)))
