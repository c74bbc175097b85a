# SPDX-License-Identifier: Apache-2.0
"""The requests of a queue: where each is, and what becomes of it. Nothing here waits."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Literal

import anyio

from aioascend._deadlines import recent_mean
from aioascend._signals import Signal
from aioascend.errors import DeadlineError, fresh
from aioascend.infer_queue.statistics import InferQueueStatistics

__all__ = ["Request", "Requests"]


class Request:
    """One request.

    Attributes:
        state: "new" before it is taken, "door" while it waits for a place in the queue, "queued", "running", or "over".
        scope: Around the call of the handler, while it runs.
        moved: Told when it is no longer at the door, and when it is over.
        watchers: How many wait for its result.
        cancelled: Why its handler is being cancelled, None unless it is.
        admitted: Whether it has come into the queue.
        own: Whether its result is for whoever has made it, and nobody else.
        forgotten: Whether nobody will ask for its result.
        error: With what it has ended; `told` is for whoever is told of it.
    """

    def __init__(self, number: int, value: Any, made: float, limit: float) -> None:
        self.id = number
        self.value = value
        self.made = made
        self.began = made
        self.deadline = made + limit
        self.state: Literal["new", "door", "queued", "running", "over"] = "new"
        self.scope: anyio.CancelScope | None = None
        self.moved = Signal()
        self.watchers = 0
        self.cancelled: Exception | None = None
        self.admitted = False
        self.own = False
        self.forgotten = False
        self.result: Any = None
        self.error: Exception | None = None
        self._is_told = False

    @property
    def over(self) -> bool:
        return self.state == "over"

    def late(self, now: float) -> DeadlineError:
        """That it was not done in time."""
        return DeadlineError(f"request {self.id} of the queue", now - self.made, started=self.state == "running")

    def told(self) -> Exception | None:
        """Its error, for one more who is told of it. The first gets the one that has come, which knows from where."""
        if self.error is None or not self._is_told:
            self._is_told = True
            return self.error
        return fresh(self.error)


class Requests:
    """All requests that are under way, and the results that nobody has taken.

    Attributes:
        state: Of the queue. "closing": no more are taken; "closed": and none are begun.
        now: The clock, once the queue is open.
        counts: How many there have been.
        kept: Requests that are over and that nobody waits for, the oldest first.
        streaming: Whether results are never forgotten.
        service: Seconds that the handler takes, as of late; None before it has succeeded.
        idle: One event for each worker that waits for work.
        changed: Told when a request has ended, a result is kept, or the queue closes.
    """

    now: Callable[[], float]

    def __init__(self, limit: int, keep: int) -> None:
        self._limit = limit
        self._keep = keep
        self._numbers = itertools.count()
        self._door: deque[Request] = deque()
        self._queue: deque[Request] = deque()
        self._running: set[Request] = set()
        self._known: dict[int, Request] = {}
        self.state: Literal["new", "open", "closing", "closed"] = "new"
        self.kept: dict[int, Request] = {}
        self.counts: Counter[str] = Counter()
        self.streaming = False
        self.service: float | None = None
        self.idle: deque[anyio.Event] = deque()
        self.changed = Signal()

    @property
    def waiting(self) -> list[Request]:
        return [*self._queue, *self._door]

    @property
    def running(self) -> list[Request]:
        return list(self._running)

    @property
    def none(self) -> bool:
        return not (self._queue or self._door or self._running)

    @property
    def finished(self) -> bool:
        """Whether no result will come any more."""
        return self.none and self.state != "open"

    @property
    def held_up(self) -> bool:
        """Whether there would be more results than may be kept. When the queue closes, nothing more comes in, and it
        must not wait for whoever takes them."""
        return self.streaming and self.state == "open" and len(self.kept) + len(self._running) >= self._keep

    def new(self, value: Any, limit: float) -> Request:
        return Request(next(self._numbers), value, self.now(), limit)

    def find(self, number: int) -> Request:
        """The request of this id."""
        try:
            return self._known[number]
        except (KeyError, TypeError):
            reason = f"there is none, its result was taken, or it was forgotten when more than {self._keep} were kept"
            raise LookupError(f"no request {number!r} in the queue: {reason}") from None

    def make_room(self) -> bool:
        """Whether there is a place in the queue. If not, those that are late give up theirs."""
        if len(self._queue) >= self._limit:
            for request in list(self._queue):
                self.expire(request)
        return len(self._queue) < self._limit

    def take_in(self, request: Request) -> None:
        """A new one, at the door; it goes further if there is a place."""
        self.counts["submitted"] += 1
        self._known[request.id] = request
        request.state = "door"
        self._door.append(request)
        self._admit()

    def _admit(self) -> None:
        while self._door and len(self._queue) < self._limit:
            request = self._door.popleft()
            self._queue.append(request)
            request.state, request.admitted = "queued", True
            request.moved.notify()
            self.wake_worker()

    def begin(self) -> Request | None:
        """The next one whose time is not over, for a worker."""
        while self._queue and not self.held_up:
            request = self._queue[0]
            if self.expire(request):
                continue
            self._leave(request)
            request.state, request.began = "running", self.now()
            self._running.add(request)
            self._admit()
            return request
        return None

    def expire(self, request: Request) -> bool:
        """Whether it has waited too long; then it is over."""
        now = self.now()
        if request.state not in ("door", "queued") or now < request.deadline:
            return False
        self.end(request, "timed_out", error=request.late(now))
        return True

    def _leave(self, request: Request) -> None:
        if request.state == "door":
            self._door.remove(request)
        elif request.state == "queued":
            self._queue.remove(request)
        elif request.state == "running":
            self._running.remove(request)

    def end(self, request: Request, outcome: str, result: Any = None, error: Exception | None = None) -> None:
        """It is over: with a result, or with an error."""
        if outcome == "ok":
            self.service = recent_mean(self.service, self.now() - request.began)
        self._leave(request)
        request.state, request.result, request.error, request.value, request.scope = "over", result, error, None, None
        self.counts[outcome] += 1
        request.moved.notify()
        if request.forgotten:
            self.take(request)
        elif request.watchers == 0 and not request.own:
            self.keep(request)
        self._admit()
        self.changed.notify()

    def keep(self, request: Request) -> None:
        """Its result is there for whoever asks for it."""
        self.kept[request.id] = request
        if len(self.kept) > self._keep and not self.streaming:
            self.take(next(iter(self.kept.values())))
            self.counts["dropped"] += 1
        self.changed.notify()

    def take(self, request: Request) -> None:
        """Somebody has its result, or will never ask for it."""
        self._known.pop(request.id, None)
        if self.kept.pop(request.id, None) is not None and self.streaming:
            self.wake_worker()

    def wake_worker(self) -> None:
        """One that is idle, if there is any, looks for work."""
        if self.idle:
            self.idle.popleft().set()

    def close(self, state: Literal["closing", "closed"]) -> None:
        """Nothing more comes in. Whoever waits has a look, and all workers have."""
        if self.state != "closed":
            self.state = state
        while self.idle:
            self.wake_worker()
        self.changed.notify()

    def statistics(self) -> InferQueueStatistics:
        """A snapshot."""
        waiting = self.waiting
        oldest = min((request.made for request in waiting), default=None)
        return InferQueueStatistics(
            submitted=self.counts["submitted"],
            ok=self.counts["ok"],
            failed=self.counts["failed"],
            cancelled=self.counts["cancelled"],
            timed_out=self.counts["timed_out"],
            waiting=len(waiting),
            running=len(self._running),
            rejected=self.counts["rejected"],
            kept=len(self.kept),
            dropped=self.counts["dropped"],
            oldest_wait=0.0 if oldest is None else self.now() - oldest,
        )
