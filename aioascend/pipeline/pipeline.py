# SPDX-License-Identifier: Apache-2.0
"""Pipelines: what users make, enter, call and close."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import anyio
import anyio.abc

from aioascend._arguments import seconds, whole
from aioascend._deadlines import HomeLoop, checkpoint_if_late, limit_of
from aioascend.errors import DeadlineError, RuntimeClosedError
from aioascend.pipeline.items import End, Item, Ledger, Owner
from aioascend.pipeline.results import Failed, PipelineResults
from aioascend.pipeline.run import OnError, Run, raise_free_of_cycles
from aioascend.pipeline.stage import Stage, as_stage
from aioascend.pipeline.statistics import PipelineStatistics
from aioascend.pipeline.workers import Workers

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Pipeline"]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
In = TypeVar("In")
Out = TypeVar("Out")
Step = Stage[A, B] | Callable[[A], Awaitable[B]]

_logger = logging.getLogger("aioascend.pipeline")


class _Call(Owner):
    """One item, and who waits for it."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    def ended(self, item: Item) -> None:
        self.event.set()


class Pipeline(Generic[In, Out]):
    """Stages, through which items pass one behind the other, so that all stages work at the same time.

        async with aioascend.Pipeline(decode, aioascend.Stage(detect, concurrency=2), classify) as pipeline:
            async for label in pipeline.map(files):
                ...

    It works inside its block, on one event loop. Each stage has as many workers as its `concurrency` and a bounded
    queue in front of it; there is no task per item. Workers run in the context, as of contextvars, in which the block
    was entered. Several maps and calls can be under way at the same time, and take turns.

    Guaranteed: an item is in one stage at a time, in the order of the stages, and a stage with one worker takes up
    items in the order in which the one before was done with them. An item that has ended, because its caller was
    cancelled or its deadline has passed, is given to no further stage. At the end of the block no stage runs any more,
    but for functions in threads. Not guaranteed: that what a cancelled stage has submitted to a device stops there.

    The end of the block closes it, as `close()` does. When the block is left by an exception or cancelled, everything
    in it is stopped, and whoever still waits for an item gets `RuntimeClosedError`. A stage that raises what is no
    `Exception`, but is to end the program, stops everything likewise.

    Attributes:
        stages: The stages, in order.

    Raises:
        TypeError: no stages, or something that cannot be one.
    """

    @overload
    def __init__(self: Pipeline[In, Out], stage: Step[In, Out], /) -> None: ...
    @overload
    def __init__(self: Pipeline[In, Out], first: Step[In, A], second: Step[A, Out], /) -> None: ...
    @overload
    def __init__(self: Pipeline[In, Out], first: Step[In, A], second: Step[A, B], third: Step[B, Out], /) -> None: ...
    @overload
    def __init__(
        self: Pipeline[In, Out], first: Step[In, A], second: Step[A, B], third: Step[B, C], fourth: Step[C, Out], /
    ) -> None: ...
    @overload
    def __init__(
        self: Pipeline[In, Any],
        first: Step[In, A],
        second: Step[A, B],
        third: Step[B, C],
        fourth: Step[C, D],
        fifth: Step[D, Any],
        /,
        *more: Step[Any, Any],
    ) -> None: ...

    def __init__(self, *stages: Step[Any, Any]) -> None:
        if not stages:
            raise TypeError("a pipeline has at least one stage: Pipeline(function, ...)")
        self.stages = tuple(as_stage(stage) for stage in stages)
        self._label = f"pipeline {' > '.join(stage.name for stage in self.stages)}"
        self._workers: list[Workers] = []
        for stage in reversed(self.stages):
            self._workers.insert(0, Workers(stage, self._workers[0] if self._workers else None))
        self._ledger = Ledger()
        self._runs: set[Run] = set()
        self._block: AbstractAsyncContextManager[Self] | None = None
        self._home: HomeLoop | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._failures: list[BaseException] = []  # of the block, and of tasks without which nothing goes on
        self._broken: BaseException | None = None  # what has ended it
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether it takes no more items."""
        return self._closed

    # --- items ---

    async def __call__(
        self,
        item: In,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - what it ends in tells more than a TimeoutError
    ) -> Out:
        """Send one item through all stages; waits for a place in the first queue.

        When its deadline passes before it has come to a stage, be it that of `timeout` or of a scope around the call,
        it is not given to that stage any more.

        Args:
            item: What goes into the first stage.
            timeout: Seconds after which it is given up.

        Raises:
            Exception: what a stage has raised; a note says which stage.
            DeadlineError: `timeout` has passed.
            RuntimeClosedError: the pipeline is closed, or was before the item was through.
            RuntimeError: the pipeline's block has not been entered, or by another event loop.
        """
        limit = limit_of(timeout)
        await checkpoint_if_late()
        self._check_open()
        began = anyio.current_time()
        call = _Call()
        entry = Item(self._ledger, call, item, gives_up_at=began + limit, deadline=anyio.current_effective_deadline())
        del item
        end: End = "cancelled"
        try:
            with anyio.move_on_after(limit):
                await self._workers[0].put(entry)
                await call.event.wait()
            end = "timed_out"
            if entry.state == "cancelled":  # a worker has seen the deadline of the caller's scopes before they have
                await checkpoint_if_late()
        finally:
            entry.end(end)
        if entry.error is not None:
            error, entry.error = entry.error, None
            raise_free_of_cycles(error)
        if entry.state != "ok":
            raise DeadlineError(f"an item of {self}", anyio.current_time() - began, started=entry.started)
        result: Out = entry.value
        return result

    @overload
    def map(
        self,
        source: AsyncIterable[In] | Iterable[In],
        *,
        ordered: bool = True,
        on_error: Literal["raise", "skip"] = "raise",
        limit: int | None = None,
    ) -> PipelineResults[Out]: ...

    @overload
    def map(
        self,
        source: AsyncIterable[In] | Iterable[In],
        *,
        ordered: bool = True,
        on_error: Literal["collect"],
        limit: int | None = None,
    ) -> PipelineResults[Out | Failed[In]]: ...

    def map(
        self,
        source: AsyncIterable[In] | Iterable[In],
        *,
        ordered: bool = True,
        on_error: OnError = "raise",
        limit: int | None = None,
    ) -> PipelineResults[Any]:
        """Send all items of a source through all stages; iterate over the results with `async for`.

        Args:
            source: An iterable, an async iterable or a receive stream of anyio. Its items are taken by a task of the
                pipeline, as there is room. The next item of an ordinary iterable is asked for on the event loop, so one
                that blocks blocks the loop.
            ordered: Results come in the order of the source. Otherwise as they become ready.
            on_error: What becomes of an item for which a stage raises. "raise": nothing more is taken from the source,
                what is behind the item is given up, and the error is raised in the place of its result. "skip": it has
                no result. "collect": its result is a `Failed`. Errors of the source itself are always raised, after the
                results of what it has given.
            limit: How many items may be under way or through without their result having been taken. By default twice
                as many as all workers and queues hold.

        Raises:
            TypeError, ValueError: no source, or an argument that makes no sense.
            RuntimeClosedError: the pipeline is closed.
            RuntimeError: its block has not been entered, or by another event loop.
        """
        if on_error not in ("raise", "skip", "collect"):
            raise ValueError(f'on_error must be "raise", "skip" or "collect", not {on_error!r}')
        if limit is None:
            limit = 2 * sum(stage.concurrency + stage.queue_limit for stage in self.stages)
        limit = whole("limit", limit, 1, 1_000_000_000, "a number of items")
        self._check_open()
        run = Run(self._ledger, self._workers[0], source, ordered=ordered, on_error=on_error, limit=limit)
        return PipelineResults(run, self._start, self._check_home)

    def _start(self, run: Run) -> None:
        tasks = self._check_open()
        self._runs.add(run)
        run.feeding = True
        tasks.start_soon(self._feed, run)

    async def _feed(self, run: Run) -> None:
        try:
            with self._vital():
                await run.feed()
        finally:
            self._runs.discard(run)
            self._ledger.changed.notify()

    def _check_open(self) -> anyio.abc.TaskGroup:
        if self._closed:
            self._ledger.rejected += 1
            raise RuntimeClosedError(f"{self} is closed") from self._broken
        if self._tasks is None:
            raise RuntimeError(f"{self} has not been entered: use it inside `async with pipeline:`")
        self._check_home()
        return self._tasks

    def _check_home(self) -> None:
        if self._home is not None:
            self._home.check(self._label)

    # --- the block ---

    async def __aenter__(self) -> Self:
        if self._block is not None:
            raise RuntimeError(f"{self} has been entered before; make another one")
        if self._closed:
            raise RuntimeClosedError(f"{self} is closed")
        self._block = self._running()
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        block: Any = self._block
        return bool(await block.__aexit__(kind, error, traceback))

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[Self]:
        self._home = HomeLoop()
        for workers in self._workers:
            workers.open()
        try:
            async with anyio.create_task_group() as tasks:
                try:
                    await self._open(tasks)
                    yield self
                    await self.close()
                except BaseException as error:
                    self._stop()
                    if isinstance(error, anyio.get_cancelled_exc_class()):
                        raise
                    self._failures.insert(0, error)  # the task group would put it into a group
            if self._failures:
                raise self._failures.pop(0)
        finally:
            for workers in self._workers:
                workers.close()
            for failure in self._failures:  # which nobody else can tell of
                _logger.error("%s has failed while it was closed", self, exc_info=failure)
            self._failures.clear()

    async def _open(self, tasks: anyio.abc.TaskGroup) -> None:
        for workers in self._workers:
            for _ in range(workers.stage.concurrency):
                with contextlib.suppress(RuntimeError):  # it has ended before it had what it needs
                    await tasks.start(self._work, workers)
                if self._failures:
                    raise self._failures.pop(0)
        self._tasks = tasks

    async def _work(self, workers: Workers, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with self._vital():
            await workers.work(task_status=task_status)

    @contextmanager
    def _vital(self) -> Generator[None]:
        """Where the task ends by an error, which is none of an item's, or is cancelled together with the block, all
        there is ends with it, and everybody who waits is told. (Workers that are told to stop just end.)"""
        try:
            yield
        except Exception as error:
            self._failures.append(error)
            self._stop(error)
        except BaseException as error:
            self._stop(None if isinstance(error, anyio.get_cancelled_exc_class()) else error)
            raise

    # --- closing ---

    async def close(self, grace: float | None = None) -> None:
        """Take nothing more, wait until all that was taken is through, end the workers, from front to back.

        Calls that wait for a place in the first queue have been taken. Maps take nothing more from their sources;
        results that are through can still be asked for, and then `RuntimeClosedError` says that it was not all. May be
        called again, by several tasks too, in which case the shortest grace counts. A cancelled close leaves the
        pipeline closed.

        Args:
            grace: Seconds after which what is left is given up: stages are cancelled, and `RuntimeClosedError` is
                raised for its items, whatever `on_error` says. 0: at once. By default there is no limit. Returns as
                soon as nothing is left, or the grace is over; the end of the block waits for stages to take note of it.

        Raises:
            TypeError, ValueError: `grace` is no duration.
            RuntimeError: another event loop has entered it.
        """
        limit = math.inf if grace is None else seconds("grace", grace, zero=True)
        self._check_home()
        self._closed = True
        if self._home is None:
            return
        for run in self._runs:
            run.stop()
        with anyio.move_on_after(limit):
            await self._ledger.changed.until(self._is_empty)
        if not self._is_empty():
            self._stop()
        else:
            self._workers[0].finish()

    def _is_empty(self) -> bool:
        return not (self._ledger.live or self._runs or any(workers.running for workers in self._workers))

    def _stop(self, error: BaseException | None = None) -> None:
        """Ends all there is, at once: items that are left fail, with `error` as the cause if there is one."""
        self._closed = True
        self._broken = self._broken or error
        for run in self._runs:
            run.stop()
        for item in list(self._ledger.live):
            why = RuntimeClosedError(f"{self} was closed before the item was through")
            why.__cause__ = self._broken
            item.end("failed", why, for_all=True)
        for workers in self._workers:
            workers.stop()

    # --- what goes on ---

    def statistics(self) -> PipelineStatistics:
        """What is going on right now. From another thread the numbers may be a moment apart."""
        ledger, counts = self._ledger, self._ledger.counts
        return PipelineStatistics(
            submitted=ledger.submitted,
            rejected=ledger.rejected,
            ok=counts["ok"],
            failed=counts["failed"],
            cancelled=counts["cancelled"],
            timed_out=counts["timed_out"],
            waiting=counts["waiting"],
            running=counts["running"],
            stages=tuple(workers.statistics() for workers in self._workers),
        )

    def __str__(self) -> str:
        return self._label

    def __repr__(self) -> str:
        state = ", closed" if self._closed else "" if self._tasks is not None else ", not entered"
        return f"<{self}{state}>"
