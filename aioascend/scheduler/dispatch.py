# SPDX-License-Identifier: Apache-2.0
"""Which request gets which unit, and when. Nothing here waits, so nothing can come in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import anyio

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
        waiting: Where requests wait.
        kinds: The share of all slots that requests of a kind may have.
        recover: Begins to bring a unit back; None if nobody does.
    """

    def __init__(
        self,
        units: Sequence[SchedulerUnit[U]],
        policy: Policy,
        waiting: Waiting,
        kinds: Mapping[str, float],
        recover: Callable[[SchedulerUnit[U]], None] | None,
    ) -> None:
        self.units = units
        self.waiting = waiting
        self.counts: Counter[str] = Counter()
        self._policy = policy
        self._kinds = kinds
        self._of_kind: Counter[str] = Counter()
        self._recover = recover
        self._went_out = False

    # --- requests ---

    def enter(self, request: Request, *, wait: bool) -> None:
        """A new request: it gets a unit, waits, or is told that nobody can take it.

        Raises:
            QueueFullError: there is no room, and it is not to wait for it.
        """
        self.look_for_returned()
        if not self.place(request):
            request.error = self.hopeless(request)
            if request.error is None and self.waiting.full and not wait:
                self.counts["rejected"] += 1
                depth, limit = len(self.waiting), self.waiting.limit
                raise QueueFullError("the queue of the scheduler", depth, limit, self._retry_after())
            self.waiting.add(request)
        self.counts["submitted"] += 1
        if self._went_out:
            self.go_on()

    def _retry_after(self) -> float | None:
        """Seconds in which one call ends, by how fast they have been ending."""
        rate = sum(1 / unit.service for unit in self.units if unit.state == "ok" and unit.service)
        return 1 / rate if rate else None

    def run_again(self, request: Request, unit: SchedulerUnit[U]) -> None:
        """It has failed, through no fault of its own, and waits once more."""
        request.retries -= 1
        self._take_back(request, unit)
        request.woken = None
        self.counts["retried"] += 1
        self.waiting.put_back(request)
        self.go_on()

    def place(self, request: Request) -> bool:
        """Gives it a unit, if one that may have it has room."""
        while True:
            able = [unit for unit in self.units if unit.state == "ok" and _may_go_to(request, unit)]
            if request.affinity is not None and able:
                able = [max(able, key=lambda unit: _affinity(request.affinity, unit.index))]
            free = [unit for unit in able if unit.taken < unit.limit]
            if not free or not self._kind_has_room(request.kind):
                return False
            chosen = free[0] if len(free) == 1 else self._chosen(free)
            trouble = chosen.trouble()
            if trouble is None:
                chosen.take(anyio.current_time())
                request.unit, request.lives = chosen, chosen.lives
                if request.kind is not None:
                    self._of_kind[request.kind] += 1
                return True
            self.take_out(chosen, trouble)

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

    def hopeless(self, request: Request) -> Exception | None:
        """Why nobody can take it, now or soon; None if somebody can."""
        if self.possible(request):
            return None
        return next((unit.error for unit in self.units if _may_go_to(request, unit)), None)

    def possible(self, request: Request) -> bool:
        """Whether somebody can take it, now or soon."""
        return any(unit.state != "failed" and _may_go_to(request, unit) for unit in self.units)

    @property
    def idle(self) -> bool:
        """Whether there is no request."""
        return not self.waiting and all(unit.running == 0 for unit in self.units)

    def refuse(self, error: Exception) -> None:
        """All that wait raise the error."""
        for request in self.waiting:
            request.error = error
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
        unit.give_back(anyio.current_time())
        request.unit = request.began = None

    def abandon(self, request: Request, unit: SchedulerUnit[U], outcome: str) -> None:
        """It is over, and what it began on the device goes on: the slot stays taken until `settled`."""
        unit.abandoned += 1
        self.counts[outcome] += 1

    def settled(self, request: Request, unit: SchedulerUnit[U]) -> None:
        """What it had begun on the device is over."""
        unit.abandoned -= 1
        self._take_back(request, unit)
        self.go_on()

    def go_on(self) -> None:
        """Gives units to those who wait, after something has changed."""
        self.look_for_returned()
        now = anyio.current_time()
        refused: set[tuple[Hashable, ...]] = set()
        queue, position = self.waiting.queue, 0
        while position < len(queue) and self._has_room():
            request = queue[position]
            if request.error is not None or request.deadline <= now or request.sort in refused:
                position += 1  # the first two are about to leave by themselves
                continue
            try:
                placed = self.place(request)
            except Exception as error:  # of the policy, which is the user's
                request.error = error
                request.wake()
                continue
            if placed:
                self.waiting.remove(request)
                request.wake()
                position = 0  # somebody may have moved up from the door
            else:
                refused.add(request.sort)
        if self._went_out:
            self._went_out = False
            for request in self.waiting:
                request.error = request.error or self.hopeless(request)
                if request.error is not None:
                    request.wake()

    def _has_room(self) -> bool:
        return any(unit.state == "ok" and unit.taken < unit.limit for unit in self.units)

    # --- units ---

    def take_out(self, unit: SchedulerUnit[U], error: Exception) -> None:
        """It gets nothing any more. `go_on` tells those who have nobody else."""
        if unit.state != "ok":
            return
        unit.state, unit.error = "failed", fresh(error)
        self._went_out = True
        if self._recover is not None:
            unit.state = "recovering"
            self._recover(unit)

    def has_failed(self, unit: SchedulerUnit[U], error: Exception) -> None:
        """It could not be brought back this time."""
        unit.state, unit.error = "failed", error
        self._went_out = True
        self.go_on()

    def come_back(self, unit: SchedulerUnit[U], fresh: U | None = None) -> None:
        """It takes calls again."""
        unit.come_back(fresh)
        self.go_on()

    def look_for_returned(self) -> None:
        """A unit whose device has come back takes calls again, unless somebody else sees to that."""
        for unit in self.units:
            if unit.state == "failed" and self._recover is None and unit.device is not None and unit.trouble() is None:
                unit.come_back()

    def statistics(self) -> SchedulerStatistics:
        """A snapshot."""
        now = anyio.current_time()
        units = tuple(unit.statistics(now) for unit in self.units)
        return SchedulerStatistics(
            submitted=self.counts["submitted"],
            ok=self.counts["ok"],
            failed=self.counts["failed"],
            cancelled=self.counts["cancelled"],
            timed_out=self.counts["timed_out"],
            waiting=len(self.waiting),
            running=sum(unit.running for unit in units),
            rejected=self.counts["rejected"],
            retried=self.counts["retried"],
            oldest_wait=now - min((request.made for request in self.waiting), default=now),
            units=units,
        )


def _may_go_to(request: Request, unit: SchedulerUnit[U]) -> bool:
    return unit.index not in request.tried and request.pinned in (None, unit.index)


def _affinity(key: Hashable, index: int) -> int:
    """The unit with the largest of these has the key: when one goes, only its own keys move."""
    return hash((index, hash(key)))
