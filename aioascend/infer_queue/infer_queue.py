# SPDX-License-Identifier: Apache-2.0
"""The queue: requests in, results out, workers in between."""

from __future__ import annotations

import concurrent.futures
import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import anyio.abc
import anyio.from_thread

from aioascend._arguments import whole
from aioascend._background import Background
from aioascend._deadlines import HomeLoop, checkpoint_if_late, limit_of
from aioascend.errors import DeadlineError, QueueFullError, RuntimeClosedError
from aioascend.infer_queue.requests import Request, Requests
from aioascend.infer_queue.results import Results
from aioascend.infer_queue.statistics import InferQueueStatistics
from aioascend.infer_queue.workers import Workers, cancelled

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["InferQueue"]

T = TypeVar("T")
R = TypeVar("R")

_CLOSED = {"closing": "the queue is closing and takes no more requests", "closed": "the queue is closed"}


class InferQueue(Generic[T, R]):
    """A bounded queue of requests that a number of workers serve, and the results by the ids of the requests.

        async with aioascend.InferQueue(model, concurrency=2) as queue:
            first, second = await queue.submit(image), await queue.submit(other)
            boxes = await queue.result(first, timeout=1)

    Guaranteed:
    - Requests are begun in the order of their submits, at most `concurrency` at the same time.
    - Every request ends: with a result, the error of the handler, `DeadlineError`, or as cancelled.
    - A result is given out once: to all who wait for it when it comes, or to the first who asks later. A wait that is
      cancelled, or whose timeout has passed, leaves it there.

    Not guaranteed: that requests end in order; that what a cancelled handler had put on a device does not run.

    It belongs to the event loop in which it is entered; `submit_from_thread` is for other threads. Leaving the block
    waits for what was submitted. Leaving it by an exception, or being cancelled in it, gives that up: whoever still
    waits for a result gets `RuntimeClosedError`. So does everybody when the handler raises what is no `Exception`, but
    is to end the program; that comes out of the block, in a group.

    Args:
        handler: An async function of the value of a request, such as a model or a scheduler.
        concurrency: How many requests it is called for at the same time.
        queue_limit: How many requests may wait.
        keep: How many results are kept that nobody waits for. When there are more, the oldest is forgotten. Once
            somebody has asked `results` for one none is; then no further request is begun until some have been taken,
            or the queue is closed.

    Raises:
        TypeError, ValueError: an argument makes no sense; the message names it.
    """

    def __init__(
        self, handler: Callable[[T], Awaitable[R]], *, concurrency: int = 4, queue_limit: int = 64, keep: int = 1024
    ) -> None:
        if not callable(handler):
            raise TypeError(f"handler must be an async function, not {handler!r}")
        name = getattr(handler, "__name__", None) or getattr(handler, "name", None) or type(handler).__name__
        self._label = f"InferQueue of {name}"
        self._concurrency = whole("concurrency", concurrency, 1, 2**20, "a number of calls")
        self._queue_limit = whole("queue_limit", queue_limit, 1, 2**31 - 1, "a number of requests")
        self._requests = Requests(self._queue_limit, whole("keep", keep, 1, 2**31 - 1, "a number of results"))
        self._workers = Workers(handler, self._requests)
        self._home: HomeLoop | None = None
        self._block: AbstractAsyncContextManager[None] | None = None

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
            RuntimeClosedError: the queue is closed, or was closed at once while this waited.
            RuntimeError: it has not been entered, or by another event loop.
        """
        return (await self._submit(value, limit_of(timeout))).id

    async def _submit(self, value: T, limit: float, *, own: bool = False) -> Request:
        await checkpoint_if_late()
        request = self._new(value, limit)
        request.own = own
        self._requests.make_room()
        self._requests.take_in(request)
        try:
            while request.state == "door":
                with anyio.CancelScope(deadline=request.deadline):
                    await request.moved.until(lambda: request.state != "door")
                self._requests.expire(request)
        except BaseException:
            self._workers.withdraw(request)
            raise
        if not request.admitted and (error := request.told()) is not None:
            self._requests.take(request)
            raise error
        return request

    def try_submit(self, value: T, *, timeout: float | None = None) -> int:
        """Add a request if there is a place for it; otherwise see `submit`. Callbacks of the event loop may call it.

        Raises:
            QueueFullError: there is none.
        """
        request = self._new(value, limit_of(timeout))
        if not self._requests.make_room():
            self._requests.counts["rejected"] += 1
            after = self._requests.service
            retry_after = None if after is None else after / self._concurrency
            raise QueueFullError("the queue", len(self._requests.waiting), self._queue_limit, retry_after)
        self._requests.take_in(request)
        return request.id

    def submit_from_thread(self, value: T, *, timeout: float | None = None) -> concurrent.futures.Future[R]:
        """Add a request from a thread that is not the event loop's, as with `submit`; wait for its place elsewhere.

        Returns:
            A future of the result. Cancelling it cancels the request.

        Raises:
            RuntimeClosedError: the queue is closed.
            RuntimeError: it has not been entered, or this is the thread of its event loop.
        """
        limit = limit_of(timeout)
        self._check_taking()
        if threading.get_ident() == self._thread:
            raise RuntimeError("submit_from_thread is for other threads; use submit in that of the event loop")
        try:
            future: concurrent.futures.Future[R] = self._portal.start_task_soon(self._submit_and_wait, value, limit)
            return future
        except RuntimeError as error:  # it was closed meanwhile
            raise RuntimeClosedError(_CLOSED["closed"]) from error

    async def _submit_and_wait(self, value: T, limit: float) -> R:
        request = await self._submit(value, limit, own=True)
        try:
            result: R = await self._outcome(request, math.inf)
            return result
        except anyio.get_cancelled_exc_class():
            self._workers.withdraw(request)
            raise

    def _new(self, value: T, limit: float) -> Request:
        self._check_taking()
        self._check_home()
        return self._requests.new(value, limit)

    # --- results out ---

    async def result(self, request: int, *, timeout: float | None = None) -> R:  # noqa: ASYNC109 - of the wait
        """The result of a request, which is then forgotten.

        Args:
            request: Its id, which `submit` has returned.
            timeout: Seconds to wait. The request goes on, and its result can be asked for again.

        Raises:
            LookupError: there is no such request, its result was taken, or was forgotten (see `keep`).
            DeadlineError: it is not there in time, or the request itself was not done in time.
            concurrent.futures.CancelledError: the request was cancelled, by `cancel`.
            RuntimeClosedError: the queue was closed without waiting for it.
            RuntimeError: the queue has not been entered, or by another event loop.
            Exception: what the handler has raised.
        """
        self._check_home()
        limit = limit_of(timeout)
        result: R = await self._outcome(self._requests.find(request), limit)
        return result

    async def _outcome(self, request: Request, limit: float) -> Any:
        requests = self._requests
        began = requests.now()
        request.watchers += 1
        try:
            while not request.over:
                until = min(began + limit, math.inf if request.state == "running" else request.deadline)
                with anyio.CancelScope(deadline=until):
                    await request.moved.until(lambda: request.over)
                requests.expire(request)
                now = requests.now()
                if began + limit <= now and not request.over:
                    running = request.state == "running"
                    raise DeadlineError(f"the result of request {request.id}", now - began, started=running)
        except BaseException:
            request.watchers -= 1
            if request.over and not request.watchers and not request.own:  # it has come, and nobody else gets it
                requests.keep(request)
            raise
        requests.take(request)
        if (error := request.told()) is not None:
            raise error
        return request.result

    def results(self) -> AsyncIterator[tuple[int, R | Exception]]:
        """All results that nobody waits for by `result`, as they come: pairs of id and result.

        A request that has failed gives its error in the place of the result, as with gather(return_exceptions=True).
        Several loops over `results` share what comes. A loop ends when the queue is closed and everything was taken.
        From when the first result is asked for, none is forgotten.

        Raises:
            RuntimeError: the queue has not been entered; when the next one is asked for: or by another event loop.
        """
        self._check_entered()
        return Results(self._requests, self._check_home)

    # --- ends ---

    def cancel(self, request: int) -> bool:
        """Cancel the request of this id: it is not begun, or its handler is cancelled.

        Asking for its result raises `concurrent.futures.CancelledError`.

        Returns:
            Whether that was still possible.

        Raises:
            LookupError: there is no such request.
            RuntimeError: the queue has not been entered, or by another event loop.
        """
        self._check_home()
        found = self._requests.find(request)
        if found.over:
            return False
        self._workers.cancel(found, cancelled(found))
        return True

    async def close(self, *, drain: bool = True) -> None:
        """Take no more requests, and wait until those that were taken are over. May be called again.

        Args:
            drain: Whether they are still done, even those that were held back until results are taken. If not, those
                that wait raise `RuntimeClosedError`, and the handlers of those that run are cancelled.

        Raises:
            RuntimeError: another event loop has entered it.

        A cancelled close leaves the queue closed to new requests.
        """
        if self._home is None:
            self._requests.close("closed")
            return
        self._check_home()
        self._requests.close("closing")
        if not drain:
            self._give_up()
        await self._requests.changed.until(lambda: self._requests.none)

    def _give_up(self) -> None:
        self._workers.give_up([*self._requests.waiting, *self._requests.running])

    # --- the block ---

    async def __aenter__(self) -> Self:
        if self._block is not None:
            raise RuntimeError(f"{self._label} has been entered before; make another one")
        if self.closed:
            raise RuntimeClosedError(_CLOSED["closed"])
        self._block = self._running()
        await self._block.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        block: Any = self._block
        return bool(await block.__aexit__(kind, error, traceback))

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        failures: list[BaseException] = []
        requests = self._requests
        async with Background() as tasks:
            self._portal, self._thread = anyio.from_thread.BlockingPortal(), threading.get_ident()
            self._home = HomeLoop()
            requests.now = self._home.now
            try:
                lent = anyio.Event()
                tasks.start_soon(self._lend_portal, lent)
                await lent.wait()
                if requests.state == "new":  # it may have been closed meanwhile
                    requests.state = "open"
                for _ in range(self._concurrency):
                    tasks.start_soon(self._workers.work)
                yield
                await self.close()
            except BaseException as error:
                if isinstance(error, anyio.get_cancelled_exc_class()):
                    raise
                failures.append(error)  # raised outside of the task group, which would put it into a group
            finally:
                requests.close("closed")
                self._give_up()
                await self._portal.stop()  # does not wait
                tasks.cancel()
        if failures:
            raise failures.pop()

    async def _lend_portal(self, lent: anyio.Event) -> None:
        """Shielded, so that threads are told what has become of their requests, whatever ends the block."""
        with anyio.CancelScope(shield=True):
            async with self._portal:
                lent.set()
                await self._portal.sleep_until_stopped()

    # --- what goes on ---

    @property
    def closed(self) -> bool:
        """Whether it takes no more requests."""
        return self._requests.state in _CLOSED

    def statistics(self) -> InferQueueStatistics:
        """What is going on right now. From another thread the numbers may be a moment apart."""
        return self._requests.statistics()

    def _check_taking(self) -> None:
        if self.closed:
            raise RuntimeClosedError(_CLOSED[self._requests.state]) from self._workers.broken
        self._check_entered()

    def _check_entered(self) -> None:
        if self._requests.state == "new":
            raise RuntimeError(f"{self._label} has not been entered: use it inside `async with queue:`")

    def _check_home(self) -> None:
        self._check_entered()
        if self._home is not None:
            self._home.check(self._label)

    def __repr__(self) -> str:
        if self._requests.state != "open":
            return f"<{self._label}, {'closed' if self.closed else 'not entered'}>"
        now = self.statistics()
        return f"<{self._label}: {now.waiting} waiting, {now.running} running>"
