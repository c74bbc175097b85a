# SPDX-License-Identifier: Apache-2.0
"""The requests of a queue: where each is, and what becomes of it. Nothing here waits."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import anyio

from aioascend.errors import DeadlineError
from aioascend.infer_queue.statistics import InferQueueStatistics

__all__ = ["Request", "Requests", "Results"]


class Request:
    """One request.

    Attributes:
        state: "new" before it is taken, "door" while it waits for a place in the queue, "queued", "running", or "over".
        scope: Around the call of the handler.
        admitted: Set when it is no longer at the door.
        ended: Set when it is over.
        watchers: How many wait for its result.
        cancelled: Why its handler is being cancelled, None unless it is.
        forgotten: Whether nobody will ask for its result.
    """

    def __init__(self, number: int, value: Any, made: float, limit: float) -> None:
        self.id = number
        self.value = value
        self.made = made
        self.began = made
        self.deadline = made + limit
        self.state: Literal["new", "door", "queued", "running", "over"] = "new"
        self.scope = anyio.CancelScope(deadline=self.deadline)
        self.admitted = anyio.Event()
        self.ended = anyio.Event()
        self.watchers = 0
        self.cancelled: Exception | None = None
        self.forgotten = False
        self.result: Any = None
        self.error: BaseException | None = None

    @property
    def over(self) -> bool:
        return self.state == "over"

    def late(self, now: float) -> DeadlineError:
        """That it was not done in time."""
        return DeadlineError(f"request {self.id} of the queue", now - self.made, started=self.state == "running")


class Requests:
    """All requests that are under way, and the results that nobody has taken.

    Attributes:
        counts: How many there have been.
        kept: Requests that are over and that nobody waits for, the oldest first.
        streaming: Whether results are never forgotten.
        service: Seconds that the handler takes, as of late; None before it has succeeded.
        idle: One event for each worker that waits for work.
        changed: Set, and replaced, when a request has ended or a result was taken.
    """

    def __init__(self, limit: int, keep: int) -> None:
        self._limit = limit
        self._keep = keep
        self._numbers = itertools.count()
        self._door: deque[Request] = deque()
        self._queue: deque[Request] = deque()
        self._running: set[Request] = set()
        self._known: dict[int, Request] = {}
        self.kept: dict[int, Request] = {}
        self.counts: Counter[str] = Counter()
        self.streaming = False
        self.service: float | None = None
        self.idle: deque[anyio.Event] = deque()
        self.changed = anyio.Event()

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
    def full(self) -> bool:
        """Whether a new one has to wait for a place. Those that are late give up theirs."""
        if len(self._queue) >= self._limit:
            now = anyio.current_time()
            for request in [one for one in self._queue if one.deadline <= now]:
                self.end(request, "timed_out", error=request.late(now))
        return len(self._queue) >= self._limit

    @property
    def held_up(self) -> bool:
        """Whether there would be more results than may be kept."""
        return self.streaming and len(self.kept) + len(self._running) >= self._keep

    def new(self, value: Any, limit: float) -> Request:
        return Request(next(self._numbers), value, anyio.current_time(), limit)

    def find(self, number: int) -> Request:
        """The request of this id."""
        try:
            return self._known[number]
        except (KeyError, TypeError):
            reason = f"there is none, its result was taken, or it was forgotten when more than {self._keep} were kept"
            raise LookupError(f"no request {number!r} in the queue: {reason}") from None

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
            request.state = "queued"
            request.admitted.set()
            self.wake_worker()

    def begin(self) -> Request | None:
        """The next one whose time is not over, for a worker."""
        while self._queue and not self.held_up:
            request = self._queue[0]
            now = anyio.current_time()
            if request.deadline <= now:
                self.end(request, "timed_out", error=request.late(now))
                continue
            self._leave(request)
            request.state, request.began = "running", now
            self._running.add(request)
            self._admit()
            return request
        return None

    def _leave(self, request: Request) -> None:
        if request.state == "door":
            self._door.remove(request)
        elif request.state == "queued":
            self._queue.remove(request)
        elif request.state == "running":
            self._running.remove(request)

    def end(self, request: Request, outcome: str, result: Any = None, error: BaseException | None = None) -> None:
        """It is over: with a result, or with an error."""
        if outcome == "ok":
            self._measure(anyio.current_time() - request.began)
        self._leave(request)
        request.state, request.result, request.error, request.value = "over", result, error, None
        self.counts[outcome] += 1
        request.admitted.set()
        request.ended.set()
        if request.forgotten:
            self.take(request)
        elif request.watchers == 0:
            self.keep(request)
        self._admit()
        self.tell()

    def _measure(self, took: float) -> None:
        self.service = took if self.service is None else self.service + 0.2 * (took - self.service)

    def keep(self, request: Request) -> None:
        """Its result is there for whoever asks for it."""
        self.kept[request.id] = request
        if len(self.kept) > self._keep and not self.streaming:
            self.take(next(iter(self.kept.values())))
            self.counts["dropped"] += 1

    def take(self, request: Request) -> None:
        """Somebody has its result, or will never ask for it."""
        self._known.pop(request.id, None)
        if self.kept.pop(request.id, None) is not None and self.streaming:
            self.wake_worker()

    def wake_worker(self) -> None:
        """One that is idle, if there is any, looks for work."""
        if self.idle:
            self.idle.popleft().set()

    def tell(self) -> None:
        """Whoever waits for a change has a look."""
        self.changed.set()
        self.changed = anyio.Event()

    def statistics(self) -> InferQueueStatistics:
        """A snapshot."""
        now, waiting = anyio.current_time(), self.waiting
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
            oldest_wait=now - min((request.made for request in waiting), default=now),
        )


class Results(AsyncIterator[tuple[int, Any]]):
    """What has ended, for loops. No generator, for one that is left early would leave that behind."""

    def __init__(self, requests: Requests, is_open: Callable[[], bool]) -> None:
        self._requests = requests
        self._is_open = is_open

    async def __anext__(self) -> tuple[int, Any]:
        requests = self._requests
        while not requests.kept:
            if requests.none and not self._is_open():
                raise StopAsyncIteration
            await requests.changed.wait()
        request = next(iter(requests.kept.values()))
        requests.take(request)
        return request.id, request.result if request.error is None else request.error
