# SPDX-License-Identifier: Apache-2.0
"""The queue: requests in, results out, workers in between."""

from __future__ import annotations

import concurrent.futures
import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel

from aioascend._arguments import whole
from aioascend._deadlines import checkpoint_if_late, limit_of
from aioascend.errors import DeadlineError, QueueFullError, RuntimeClosedError
from aioascend.infer_queue.requests import Request, Requests, Results
from aioascend.infer_queue.statistics import InferQueueStatistics

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["InferQueue"]

T = TypeVar("T")
R = TypeVar("R")

_NOT_OPEN = {
    "new": "the queue is not open yet; use it inside its async with block",
    "closing": "the queue is closing and takes no more requests",
    "closed": "the queue is closed",
}


class InferQueue(Generic[T, R]):
    """A bounded queue of requests that a number of workers serve, and the results by the ids of the requests.

        async with aioascend.InferQueue(model, workers=2) as queue:
            first, second = await queue.submit(image), await queue.submit(other)
            boxes = await queue.result(first, timeout=1)

    Guaranteed:
    - Requests are begun in the order of their submits, at most `workers` at the same time.
    - Every request ends: with a result, the error of the handler, `DeadlineError`, or as cancelled.
    - A result is given out once: to all who wait for it when it comes, or to the first who asks later. A wait that is
      cancelled, or whose timeout has passed, leaves it there.

    Not guaranteed: that requests end in order; that what a cancelled handler had put on a device does not run.

    It belongs to the event loop in which it is entered; `submit_from_thread` is for other threads. Leaving the block
    waits for what was submitted; leaving it by an exception gives that up.

    Args:
        handler: An async function of the value of a request, such as a model or a scheduler.
        workers: How many requests it is called for at the same time.
        limit: How many requests may wait.
        keep: How many results are kept that nobody waits for. When there are more, the oldest is forgotten. Once
            `results` is in use none is; then the workers pause until some have been taken.

    Raises:
        TypeError, ValueError: an argument makes no sense; the message names it.
    """

    def __init__(
        self, handler: Callable[[T], Awaitable[R]], *, workers: int = 4, limit: int = 64, keep: int = 1024
    ) -> None:
        if not callable(handler):
            raise TypeError(f"handler must be an async function, not {handler!r}")
        self._handler = handler
        self._workers = whole("workers", workers, 1, 2**20, "a number of workers")
        self._limit = whole("limit", limit, 1, 2**31 - 1, "a number of requests")
        self._keep = whole("keep", keep, 1, 2**31 - 1, "a number of results")
        self._state: Literal["new", "open", "closing", "closed"] = "new"
        self._broken: BaseException | None = None  # what has ended a worker

    # --- requests in ---

    async def submit(self, value: T, *, timeout: float | None = None) -> int:  # noqa: ASYNC109 - of the request
        """Add a request, and wait for a place if there is none. Cancelling this withdraws the request.

        Args:
            value: What the handler is called with.
            timeout: Seconds in which the request has to be done. When they are over it is not begun, or cancelled, and
                its result is `DeadlineError`. A deadline of the caller bounds this call, not the request.

        Returns:
            The id of the request.

        Raises:
            TypeError, ValueError: `timeout` is no number of seconds.
            DeadlineError: there was no place in time.
            RuntimeClosedError: the queue is not open, or was closed at once while this waited.
        """
        return (await self._submit(value, timeout)).id

    async def _submit(self, value: T, timeout: float | None) -> Request:  # noqa: ASYNC109 - of the request
        request = self._new(value, timeout)
        await checkpoint_if_late()
        self._requests.take_in(request)
        try:
            while request.state == "door":
                with anyio.CancelScope(deadline=request.deadline):
                    await request.admitted.wait()
                self._expire(request)
        except BaseException:
            self._withdraw(request)
            raise
        if request.over and request.error is not None:  # which it was told at the door
            self._requests.take(request)
            raise request.error
        return request

    def try_submit(self, value: T, *, timeout: float | None = None) -> int:
        """Add a request if there is a place for it; otherwise see `submit`.

        Raises:
            QueueFullError: there is none.
        """
        request = self._new(value, timeout)
        if self._requests.full:
            self._requests.counts["rejected"] += 1
            after = self._requests.service
            retry_after = None if after is None else after / self._workers
            raise QueueFullError("the queue", len(self._requests.waiting), self._limit, retry_after)
        self._requests.take_in(request)
        return request.id

    def submit_from_thread(self, value: T, *, timeout: float | None = None) -> concurrent.futures.Future[R]:
        """Add a request from a thread that is not the event loop's, as with `submit`; wait for its place elsewhere.

        Returns:
            A future of the result. Cancelling it cancels the request.

        Raises:
            RuntimeError: this is the thread of the event loop.
            RuntimeClosedError: the queue is not open.
        """
        self._check_open()
        limit_of(timeout)
        if threading.get_ident() == self._thread:
            raise RuntimeError("submit_from_thread is for other threads; use submit in that of the event loop")
        try:
            return self._portal.start_task_soon(self._submit_and_wait, value, timeout)
        except RuntimeError as error:  # it was closed meanwhile
            raise RuntimeClosedError(_NOT_OPEN["closed"]) from error

    async def _submit_and_wait(self, value: T, timeout: float | None) -> R:  # noqa: ASYNC109 - of the request
        request = await self._submit(value, timeout)
        try:
            result: R = await self._outcome(request, math.inf)
            return result
        except anyio.get_cancelled_exc_class():
            self._withdraw(request)
            raise

    def _new(self, value: T, timeout: float | None) -> Request:
        self._check_open()
        return self._requests.new(value, limit_of(timeout))

    # --- results out ---

    async def result(self, request: int, *, timeout: float | None = None) -> R:  # noqa: ASYNC109 - of the wait
        """The result of a request, which is then forgotten.

        Args:
            request: Its id, which `submit` has returned.
            timeout: Seconds to wait. The request goes on, and its result can be asked for again.

        Raises:
            LookupError: there is no such request, its result was taken, or was forgotten (see `keep`).
            DeadlineError: it is not there in time, or the request itself was not done in time.
            concurrent.futures.CancelledError: the request was cancelled.
            RuntimeClosedError: the queue was closed without waiting for it.
            Exception: what the handler has raised.
        """
        self._check_entered()
        limit = limit_of(timeout)
        result: R = await self._outcome(self._requests.find(request), limit)
        return result

    async def _outcome(self, request: Request, limit: float) -> Any:
        began = anyio.current_time()
        request.watchers += 1
        try:
            while not request.over:
                until = min(began + limit, math.inf if request.state == "running" else request.deadline)
                with anyio.CancelScope(deadline=until):
                    await request.ended.wait()
                self._expire(request)
                now = anyio.current_time()
                if began + limit <= now and not request.ended.is_set():
                    running = request.state == "running"
                    raise DeadlineError(f"the result of request {request.id}", now - began, started=running)
        except BaseException:
            request.watchers -= 1
            if request.over and not request.watchers:  # it has come, and nobody else gets it
                self._requests.keep(request)
            raise
        self._requests.take(request)
        if request.error is not None:
            raise request.error
        return request.result

    def results(self) -> AsyncIterator[tuple[int, R | BaseException]]:
        """All results that nobody waits for by `result`, as they come: pairs of id and result.

        A request that has failed gives its error in the place of the result, as with gather(return_exceptions=True).
        Several loops over `results` share what comes. A loop ends when the queue is closed and everything was taken.
        """
        self._check_entered()
        self._requests.streaming = True
        return Results(self._requests, lambda: self._state == "open")

    # --- ends ---

    def cancel(self, request: int) -> bool:
        """Cancel the request of this id: it is not begun, or its handler is cancelled.

        Asking for its result raises `concurrent.futures.CancelledError`.

        Returns:
            Whether that was still possible.

        Raises:
            LookupError: there is no such request.
        """
        self._check_entered()
        found = self._requests.find(request)
        if found.over:
            return False
        self._cancel(found, _cancelled(found))
        return True

    def _cancel(self, request: Request, reason: Exception) -> None:
        if request.state == "running":
            request.cancelled = reason
            request.scope.cancel()
        else:
            self._requests.end(request, "cancelled", error=reason)

    def _withdraw(self, request: Request) -> None:
        """Whoever has made it has gone."""
        request.forgotten = True
        if request.over:
            self._requests.take(request)
        else:
            self._cancel(request, _cancelled(request))

    def _expire(self, request: Request) -> None:
        """It is over if it has waited too long."""
        now = anyio.current_time()
        if request.state in ("door", "queued") and request.deadline <= now:
            self._requests.end(request, "timed_out", error=request.late(now))

    # --- workers ---

    async def _work(self) -> None:
        requests = self._requests
        while True:
            request = requests.begin()
            if request is not None:
                await self._serve(request)
            elif self._state != "open" and not requests.waiting:
                return
            else:
                event = anyio.Event()
                requests.idle.append(event)
                await event.wait()

    async def _serve(self, request: Request) -> None:
        requests = self._requests
        try:
            with request.scope:
                result = await self._handler(request.value)
                requests.end(request, "ok", result)
                return
            if request.cancelled is not None:
                requests.end(request, "cancelled", error=request.cancelled)
            else:
                requests.end(request, "timed_out", error=request.late(anyio.current_time()))
        except Exception as error:
            requests.end(request, "failed", error=error)
        except anyio.get_cancelled_exc_class():
            leaving = anyio.current_effective_deadline() == -math.inf
            requests.end(request, "cancelled", error=_left(request) if leaving else _cancelled(request))
            if leaving:
                raise
        except BaseException as error:
            requests.end(request, "failed", error=error)
            self._break(error)
            raise

    def _break(self, error: BaseException) -> None:
        """A worker has ended, and with it all of them: nobody is left who would begin with what waits."""
        self._broken, self._state = error, "closed"
        for request in self._requests.waiting:
            self._requests.end(request, "failed", error=error)

    # --- life cycle ---

    def statistics(self) -> InferQueueStatistics:
        """What is going on right now.

        Raises:
            RuntimeClosedError: the queue was not entered yet.
        """
        self._check_entered()
        return self._requests.statistics()

    def _check_open(self) -> None:
        if self._state != "open":
            raise RuntimeClosedError(_NOT_OPEN[self._state]) from self._broken

    def _check_entered(self) -> None:
        if self._state == "new":
            raise RuntimeClosedError(_NOT_OPEN["new"])

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise RuntimeClosedError("a queue can be entered once; make another one")
        self._requests = Requests(self._limit, self._keep)
        self._thread = threading.get_ident()
        self._portal = anyio.from_thread.BlockingPortal()
        await self._portal.__aenter__()
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        for _ in range(self._workers):
            self._group.start_soon(self._work)
        self._state = "open"
        return self

    async def close(self, *, drain: bool = True) -> None:
        """Take no more requests, and wait until those that were taken are over. May be called again.

        Args:
            drain: Whether they are still done. If not, those that wait raise `RuntimeClosedError`, and the handlers of
                those that run are cancelled.

        A cancelled close leaves the queue closed to new requests.
        """
        if self._state == "new":
            self._state = "closed"
            return
        if self._state == "open":
            self._state = "closing"
        if not drain:
            self._give_up()
        while self._requests.idle:
            self._requests.wake_worker()
        self._requests.tell()
        while not self._requests.none:
            await self._requests.changed.wait()

    def _give_up(self) -> None:
        for request in [*self._requests.waiting, *self._requests.running]:
            self._cancel(request, _left(request))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.close()
        finally:
            self._state = "closed"
            self._give_up()
            self._requests.tell()
            self._group.cancel_scope.cancel()
            # Without the error: the groups are an inner affair, and would wrap it in a group of exceptions.
            try:
                await self._group.__aexit__(None, None, None)
            finally:
                await self._portal.__aexit__(None, None, None)


def _cancelled(request: Request) -> Exception:
    return concurrent.futures.CancelledError(f"request {request.id} of the queue was cancelled")


def _left(request: Request) -> Exception:
    how = "under way" if request.state == "running" else "waiting"
    return RuntimeClosedError(f"the queue was closed at once, when request {request.id} was {how}")
