# SPDX-License-Identifier: Apache-2.0
"""What waits: requests in the order in which they are due, one queue for each bucket."""

from __future__ import annotations

import bisect
import enum
import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import anyio

__all__ = ["Queues", "Request", "State"]


class State(enum.Enum):
    """Where a request is; a request is in the last four for good."""

    WAITING = "waiting"
    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"

    @property
    def final(self) -> bool:
        return self not in (State.WAITING, State.RUNNING)


@dataclass(eq=False, slots=True)
class Request:
    """One item and the caller who waits for it.

    Attributes:
        order: What comes first: priority and age weighed against each other, then the order of the submits.
        made_at: When it was submitted.
        gives_up_at: When its own timeout ends; infinite without.
        deadline: When nobody wants it any more: that, or the deadline of the caller's scopes.
        queued: Whether it is in its bucket.
        outcome: The row, or the error if the state is FAILED or TIMED_OUT.
    """

    item: Any
    bucket: Hashable
    order: tuple[float, int]
    made_at: float
    gives_up_at: float
    deadline: float
    state: State = State.WAITING
    queued: bool = False
    settled: anyio.Event = field(default_factory=anyio.Event)
    outcome: Any = None


_ORDER = attrgetter("order")


class Queues:
    """Requests that wait, by bucket. Knows which bucket has to leave when, not whether anybody can take it."""

    def __init__(self, max_batch: int, max_delay: float) -> None:
        self._max_batch = max_batch
        self._max_delay = max_delay
        self._buckets: dict[Hashable, list[Request]] = {}

    def __iter__(self) -> Iterator[Request]:
        for waiting in list(self._buckets.values()):  # another thread may ask
            yield from waiting

    def __len__(self) -> int:
        return sum(map(len, list(self._buckets.values())))

    def add(self, request: Request) -> int:
        """How many its bucket has now."""
        waiting = self._buckets.setdefault(request.bucket, [])
        bisect.insort(waiting, request, key=_ORDER)
        request.queued = True
        return len(waiting)

    def remove(self, request: Request) -> None:
        waiting = self._buckets[request.bucket]
        del waiting[bisect.bisect_left(waiting, request.order, key=_ORDER)]
        request.queued = False
        if not waiting:
            del self._buckets[request.bucket]

    def ripe(self, now: float, expected: float, *, at_once: bool, not_before: float) -> tuple[Hashable, bool] | None:
        """The bucket that has to leave now, and whether it is full; of several the one that begins with what is first.

        at_once: whatever there is may leave.
        not_before: when a batch that is not full may leave at the earliest, unless a deadline is in danger.
        """
        first: list[Request] | None = None
        for waiting in self._buckets.values():
            ready = at_once or len(waiting) >= self._max_batch or self._due(waiting, expected, not_before) <= now
            if ready and (first is None or waiting[0].order < first[0].order):
                first = waiting
        return None if first is None else (first[0].bucket, len(first) >= self._max_batch)

    def due(self, expected: float, not_before: float) -> float:
        """When the next bucket has to leave, if nothing is added; infinite if none has."""
        return min((self._due(waiting, expected, not_before) for waiting in self._buckets.values()), default=math.inf)

    def _due(self, waiting: list[Request], expected: float, not_before: float) -> float:
        oldest = min(one.made_at for one in waiting)
        last_moment = min(self._last_moment(one, expected) for one in waiting)
        return min(max(oldest + self._max_delay, not_before), last_moment)

    @staticmethod
    def _last_moment(request: Request, expected: float) -> float:
        """When it has to leave to be done in time; infinite for what never could."""
        moment = request.deadline - expected
        return moment if moment >= request.made_at else math.inf

    def take(self, bucket: Hashable, now: float, expected: float) -> tuple[list[Request], list[Request]]:
        """The next batch of the bucket, and what has expired; both have left.

        Those that can be done in time come first. The others fill up what is left, with those that are late by least:
        what is expected can be wrong, and nothing that can be run is left standing for it.
        """
        waiting = self._buckets[bucket]
        punctual: list[Request] = []
        late: list[Request] = []
        expired: list[Request] = []
        seen = 0
        for request in waiting:
            if len(punctual) == self._max_batch:
                break
            seen += 1
            if request.deadline <= now:
                expired.append(request)
            elif request.deadline < now + expected:
                late.append(request)
            else:
                punctual.append(request)
        late.sort(key=lambda request: -request.deadline)
        filling = late[: self._max_batch - len(punctual)]
        waiting[:seen] = sorted(late[len(filling) :], key=_ORDER)
        batch = punctual + filling
        for request in (*batch, *expired):
            request.queued = False
        if not waiting:
            del self._buckets[bucket]
        return batch, expired
