# SPDX-License-Identifier: Apache-2.0
"""Takes requests in, lets batches leave, tells everybody how it has ended."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import anyio

from aioascend._cancels import is_cancelled, stray
from aioascend._deadlines import checkpoint_if_late, turn_of
from aioascend.batcher.pace import Forecast, Pace
from aioascend.batcher.queues import Queues, Request, State
from aioascend.batcher.statistics import BatcherStatistics
from aioascend.batcher.targets import HookError, Target
from aioascend.errors import DeadlineError, QueueFullError, RuntimeClosedError, fresh

__all__ = ["Engine"]

Reason = Literal["full", "delay", "idle", "close"]


class Engine:
    """What a batcher does, in the terms of items and buckets. Workers, as many as batches may be under way, run `work`.

    Attributes:
        closing: Whether it takes nothing more.
        broken: What has ended it, if something has.
        ended: When all workers have.
    """

    ended: anyio.Event
    _now: Callable[[], float]
    _changed: anyio.Event
    _choosing: anyio.Lock
    _places: anyio.Semaphore

    def __init__(
        self,
        target: Target,
        *,
        max_batch: int,
        max_delay: float,
        limit: int,
        rejects: bool,
        ageing: float,
        isolate: bool,
    ) -> None:
        self.closing = False
        self.broken: Exception | None = None
        self._target = target
        self._name = target.name
        self._max_batch = max_batch
        self._limit = limit
        self._rejects = rejects
        self._ageing = ageing
        self._isolate = isolate
        self._queues = Queues(max_batch, max_delay)
        self._live: set[Request] = set()  # all that have not ended
        self._numbers = itertools.count()
        self._counts = dict.fromkeys(State, 0)
        self._reasons: dict[Reason, int] = {"full": 0, "delay": 0, "idle": 0, "close": 0}
        self._rejected = self._rows = self._padded_rows = self._isolated = 0
        self._in_flight = 0
        self._durations = Pace()
        self._forecast = Forecast() if target.one_at_a_time else None
        self._intervals = Pace()  # between batches, while more wait than one batch takes
        self._backlog_since: float | None = None

    def open(self, workers: int, clock: Callable[[], float]) -> None:
        """Called in the event loop, before `work`."""
        self._workers = workers
        self._now = clock
        self._places = anyio.Semaphore(self._limit)
        self._choosing = anyio.Lock()
        self._changed = anyio.Event()
        self.ended = anyio.Event()

    # --- requests ---

    @property
    def waiting(self) -> int:
        return self._counts[State.WAITING]

    @property
    def running(self) -> int:
        return self._counts[State.RUNNING]

    async def submit(self, item: Any, bucket: Hashable, priority: int, limit: float) -> Any:
        """The result of the item. limit: seconds after which it is given up."""
        if self._rejects and self._places.value == 0:
            self._rejected += 1
            raise QueueFullError(f"the queue of {self._name}", len(self._queues), self._limit, self._retry_after())
        now = anyio.current_time()
        gives_up_at = now + limit
        deadline = min(gives_up_at, anyio.current_effective_deadline())
        order = (turn_of(now, priority, self._ageing), next(self._numbers))
        request = Request(item, bucket, order, now, gives_up_at, deadline)
        self._live.add(request)
        self._counts[State.WAITING] += 1
        try:
            with contextlib.nullcontext() if limit == math.inf else anyio.CancelScope(deadline=gives_up_at):
                await self._enqueue(request)
                await request.settled.wait()
            if not request.state.final:
                self._time_out(request)
            return await self._answer(request)
        finally:
            self._end(request, State.CANCELLED)  # nothing, where it has ended already
            del request

    def _retry_after(self) -> float | None:
        return self._durations.mean if self._intervals.mean is None else self._intervals.mean

    async def _enqueue(self, request: Request) -> None:
        try:
            self._places.acquire_nowait()
        except anyio.WouldBlock:
            await self._places.acquire()
        if request.state.final:  # everything was broken off while it waited for a place
            self._places.release()
            return
        try:
            length = self._queues.add(request)
        except Exception as error:  # of the keys of buckets, when they are compared
            self._places.release()
            self._end(request, State.FAILED, error)
            return
        if length in (1, self._max_batch) or request.deadline < math.inf:  # else nothing leaves earlier for it
            self._changed.set()

    async def _answer(self, request: Request) -> Any:
        if request.state is State.CANCELLED:  # the deadline of its scopes had passed when its batch was built
            await checkpoint_if_late()
            raise self._late(request, started=False)
        if request.state is State.OK:
            return request.outcome
        raise request.outcome

    def _late(self, request: Request, *, started: bool) -> DeadlineError:
        return DeadlineError(f"a request to {self._name}", anyio.current_time() - request.made_at, started=started)

    def _time_out(self, request: Request) -> None:
        self._end(request, State.TIMED_OUT, self._late(request, started=request.state is State.RUNNING))

    def _expire(self, request: Request, now: float) -> None:
        """Its deadline has passed, and it is not run any more."""
        if request.gives_up_at <= now:
            self._time_out(request)
        else:
            self._end(request, State.CANCELLED)

    def _settle(self, request: Request, result: Any) -> None:
        if isinstance(result, Exception):
            self._end(request, State.FAILED, result)
        elif isinstance(result, BaseException):
            self._end(request, State.FAILED, stray(f"the call of {self._name}", result))
        else:
            self._end(request, State.OK, result)

    def _end(self, request: Request, state: State, outcome: Any = None) -> None:
        """The one place in which requests end. What ends one first counts."""
        if request.state.final:
            return
        if request.queued:
            self._queues.remove(request)
            self._places.release()
        self._counts[request.state] -= 1
        self._counts[state] += 1
        self._live.discard(request)
        request.state, request.outcome, request.item = state, outcome, None
        request.settled.set()
        if self.closing:
            self._changed.set()  # it may have been the last

    # --- batches ---

    async def work(self) -> None:
        """Runs one batch after the other, until `stop` has been called and nothing waits any more."""
        try:
            while (batch := await self._next_batch()) is not None:
                await self._run(batch)
        except BaseException as error:
            self.break_off(error if isinstance(error, Exception) else self.left(error))
            raise
        finally:
            self._workers -= 1
            if not self._workers:
                self.ended.set()

    async def _next_batch(self) -> list[Request] | None:
        """Waits until one has to leave, one worker at a time. None: there will be no more."""
        async with self._choosing:
            while True:
                self._changed = anyio.Event()
                if not len(self._queues):
                    if self.closing and not self._counts[State.WAITING]:
                        return None
                    await self._changed.wait()
                    continue
                now, expected = anyio.current_time(), self._durations.at_most
                not_before = -math.inf if self._forecast is None else self._forecast.leave_at()
                at_once = self.closing or self._in_flight < self._target.lanes
                ripe = self._queues.ripe(now, expected, at_once=at_once, not_before=not_before)
                if ripe is None:
                    with anyio.CancelScope(deadline=self._queues.due(expected, not_before)):
                        await self._changed.wait()
                elif batch := self._take(*ripe, now, expected):
                    return batch

    def _take(self, bucket: Hashable, full: bool, now: float, expected: float) -> list[Request]:
        batch, expired = self._queues.take(bucket, now, expected)
        for _ in range(len(batch) + len(expired)):
            self._places.release()
        for request in expired:
            self._expire(request, now)
        for request in batch:
            self._counts[State.WAITING] -= 1
            self._counts[State.RUNNING] += 1
            request.state = State.RUNNING
        if batch:
            self._reasons[
                "full"
                if full
                else "close"
                if self.closing
                else "delay"
                if self._in_flight >= self._target.lanes
                else "idle"
            ] += 1
            self._in_flight += 1
            self._rows += len(batch)
            if self._backlog_since is not None:
                self._intervals.add(now - self._backlog_since)
            self._backlog_since = now if len(self._queues) else None
        return batch

    async def _run(self, batch: list[Request]) -> None:
        began = anyio.current_time()
        forecast = self._forecast and self._forecast.begin(began, len(batch))
        ok = False
        try:
            results = await self._results([request.item for request in batch])
            if isinstance(results, Exception):
                await self._run_apart(batch, results)
            else:
                ok = True
                self._durations.add(anyio.current_time() - began)
                for request, result in zip(batch, results, strict=True):
                    self._settle(request, result)
        finally:
            self._in_flight -= 1
            if self._forecast and forecast:
                self._forecast.end(anyio.current_time(), forecast, ok=ok)
            self._changed.set()

    async def _run_apart(self, batch: list[Request], error: Exception) -> None:
        """What becomes of a batch that has failed."""
        apart = self._isolate and len(batch) > 1 and _at_fault(error)
        for request in batch:
            now = anyio.current_time()
            if request.state.final:
                continue
            if apart and request.deadline <= now:
                self._expire(request, now)
            elif apart:
                self._isolated += 1
                results = await self._results([request.item])
                self._settle(request, _told(results) if isinstance(results, Exception) else results[0])
            else:
                self._settle(request, _told(error))

    async def _results(self, items: list[Any]) -> Sequence[Any] | Exception:
        """A result for each item, or the error of all: whatever is wrong with the call or the hooks ends here."""
        try:
            return await self._target.rows(items)
        except Exception as error:
            return error
        except anyio.get_cancelled_exc_class() as error:
            if is_cancelled(in_doubt=False):
                raise
            return stray(f"the call of {self._name}", error)

    # --- the end ---

    def stop(self) -> None:
        """Take nothing more; what is there leaves at once."""
        self.closing = True
        self._changed.set()

    def break_off(self, error: Exception) -> None:
        """Nothing goes on: all that have not ended are told."""
        self.closing = True
        self.broken = self.broken or error
        for request in list(self._live):
            self._end(request, State.FAILED, _told(self.broken))

    def left(self, cause: BaseException) -> RuntimeClosedError:
        """What to tell when it ends by something that is none of its callers' concern."""
        error = RuntimeClosedError(f"{self._name} has ended by {cause!r}; what it was doing has been given up")
        error.__cause__ = cause if isinstance(cause, (Exception, KeyboardInterrupt, SystemExit)) else None
        return error

    def statistics(self) -> BatcherStatistics:
        now = self._now() if len(self._queues) else 0.0
        return BatcherStatistics(
            submitted=sum(self._counts.values()),
            **{state.value: count for state, count in self._counts.items()},
            **self._reasons,
            rejected=self._rejected,
            batches=sum(self._reasons.values()),
            rows=self._rows,
            padded_rows=self._target.padded_rows,
            isolated=self._isolated,
            in_flight=self._in_flight,
            oldest_wait=max((now - request.made_at for request in self._queues), default=0.0),
        )


def _at_fault(error: Exception) -> bool:
    """Whether it is what was given, and maybe only one item of it, that is wrong."""
    return isinstance(error, (HookError, ValueError, TypeError)) or getattr(error, "retry", None) == "caller"


def _told(error: Exception) -> Exception:
    """As one member of the batch is to see it: where it was raised, not where the others were told."""
    if isinstance(error, HookError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return fresh(error).with_traceback(error.__traceback__)
