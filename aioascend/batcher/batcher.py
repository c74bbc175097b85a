# SPDX-License-Identifier: Apache-2.0
"""Batchers as their users see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from aioascend._arguments import seconds, whole
from aioascend._background import Background
from aioascend._deadlines import HomeLoop, check_priority, checkpoint_if_late, limit_of
from aioascend.batcher.engine import Engine
from aioascend.batcher.statistics import BatcherStatistics
from aioascend.batcher.targets import MOST, FunctionTarget, ModelTarget, Target, sizes_of
from aioascend.errors import RuntimeClosedError
from aioascend.model import Model

if TYPE_CHECKING:
    from typing_extensions import Self, TypedDict, Unpack
    from typing_extensions import TypeVar as TypeVarWithDefault

    T = TypeVarWithDefault("T", default=Any)
    R = TypeVarWithDefault("R", default=Any)

    class _Options(TypedDict, total=False):
        max_batch: int | None
        max_delay: float
        sizes: Sequence[int] | None
        bucket: Callable[[Any], Hashable] | Sequence[int] | None
        concurrency: int
        queue_limit: int
        overflow: Literal["wait", "reject"]
        ageing: float
        isolate: bool
        name: str | None
else:
    T = TypeVar("T")
    R = TypeVar("R")

__all__ = ["Batcher"]


class Batcher(Generic[T, R]):
    """Runs requests that come close together as one batch.

        async with aa.Batcher(model, max_batch=8, max_delay=0.005) as batcher:
            label = await batcher(image)  # from many tasks; image has no batch axis

    A request leaves at once when nothing is under way. While something is, requests gather until a batch is full or the
    oldest of its bucket has waited for `max_delay`.

    Guaranteed: each caller gets the row of its own item, or an error; the queue is bounded; a request whose deadline
    passes in the queue is never submitted; a cancelled caller is free at once, and its row, if it is under way already,
    is dropped. Not guaranteed: which requests share a batch, nor that a batch begins before a later one of another
    bucket. It belongs to the event loop in which it was entered.

    Args:
        target: A model, whose inputs and outputs have the batch as their first axis; or `async def f(items)`, which
            returns a sequence with a result for each item. A result that is an exception is raised by that caller only.
        max_batch: Requests in a batch at most; by default the largest allowed size.
        max_delay: Seconds for which a request waits for others while something is under way; 0 for not at all.
        sizes: Batch sizes that are allowed; for a model by default what it is compiled for. A smaller batch is filled
            up with its last item, and nobody gets those rows.
        bucket: Only items of one bucket share a batch. A function of the item that returns what tells buckets apart,
            such as `by_shape`; or a list of lengths, to the next of which the first axis of an item is padded with
            zeros (of a model's inputs: those of open length). Inputs of different shapes never share a batch.
        concurrency: Batches under way at the same time. With 2, the device has the next one when one is done.
        queue_limit: Requests that wait at most.
        overflow: What a full queue does: "wait" lets callers wait for a place, in their order; "reject" raises
            `QueueFullError`.
        ageing: Seconds of waiting that weigh as much as one step of priority.
        collate: Makes of a list of items what the target is given, in place of stacking them; for a model an array, or
            a tuple or dict of them. Items are not checked then. It gets the padded batch.
        split: Makes of the target's output as many results as its second argument says, padding included.
        isolate: When a batch fails with an error that puts an input at fault, run its members again, one by one, so
            that the others do not suffer: `AclError`s whose `retry` is "caller", `ValueError`, `TypeError`, and
            whatever `collate` and `split` raise. Otherwise, as for all other errors, every member gets the error.
        name: What messages call it.

    Raises:
        TypeError, ValueError: an argument makes no sense, or does not fit the model; the message names it.
    """

    @overload
    def __init__(self, target: Callable[[list[T]], Awaitable[Sequence[R]]], **options: Unpack[_Options]) -> None: ...

    @overload
    def __init__(
        self,
        target: Model | Callable[[Any], Awaitable[Any]],
        *,
        collate: Callable[[list[T]], Any] | None = None,
        split: Callable[[Any, int], Sequence[R]] | None = None,
        **options: Unpack[_Options],
    ) -> None: ...

    def __init__(
        self,
        target: Model | Callable[[Any], Awaitable[Any]],
        *,
        max_batch: int | None = None,
        max_delay: float = 0.005,
        sizes: Sequence[int] | None = None,
        bucket: Callable[[Any], Hashable] | Sequence[int] | None = None,
        concurrency: int = 2,
        queue_limit: int = 1024,
        overflow: Literal["wait", "reject"] = "wait",
        ageing: float = 1.0,
        collate: Callable[[list[T]], Any] | None = None,
        split: Callable[[Any, int], Sequence[R]] | None = None,
        isolate: bool = True,
        name: str | None = None,
    ) -> None:
        if not isinstance(target, Model) and not callable(target):
            raise TypeError(f"a batcher calls a Model or an async function, not {target!r}")
        if overflow not in ("wait", "reject"):
            raise ValueError(f"overflow must be 'wait' or 'reject', not {overflow!r}")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be text, not {name!r}")
        self.name = name or _name_of(target)
        allowed, most = sizes_of(target, self.name, sizes, max_batch)
        self._target: Target
        if isinstance(target, Model):
            self._target = ModelTarget(target, self.name, allowed, bucket, collate, split)
        else:
            self._target = FunctionTarget(target, self.name, allowed, bucket, collate, split)
        self._concurrency = whole("concurrency", concurrency, 1, MOST, "a number of batches")
        self._engine = Engine(
            self._target,
            max_batch=most,
            max_delay=seconds("max_delay", max_delay, zero=True),
            limit=whole("queue_limit", queue_limit, 1, MOST, "a number of requests"),
            rejects=overflow == "reject",
            ageing=seconds("ageing", ageing),
            isolate=bool(isolate),
        )
        self._home: HomeLoop | None = None
        self._group: Background

    async def __call__(
        self,
        /,
        *inputs: T,
        priority: int = 0,
        timeout: float | None = None,
        **named: T,
    ) -> R:
        """The result for one item, run in a batch with others.

        Args:
            *inputs: The item. For a model its inputs without the batch axis, in the model's order, or a dict of them;
                arrays are to be left alone until the call returns.
            priority: Lower ones first. A request that has waited for `ageing` seconds more than another goes before it
                although its priority is higher by one.
            timeout: Seconds after which it is given up. The deadline of the caller's scopes (`anyio.fail_after`,
                trio's) counts as well; asyncio's timeouts cancel when they run out, and are not known before.
            **named: Inputs of a model, by name.

        Returns:
            The row: for a model the output without its batch axis, a view into the batch's output, or a tuple of them.

        Raises:
            TypeError, ValueError: the item does not fit the model, or an argument makes no sense; nothing was queued.
            QueueFullError: the queue is full, with `overflow="reject"`.
            DeadlineError: `timeout` has passed.
            RuntimeClosedError: the batcher is closed, or was left by an exception.
            RuntimeError: the batcher has not been entered, or by another event loop.
            Exception: whatever the call has raised, or its row is.
        """
        await checkpoint_if_late()
        self._check_usable()
        priority, limit = check_priority(priority), limit_of(timeout)
        item, bucket = self._target.admit(inputs, named)
        result: R = await self._engine.submit(item, bucket, priority, limit)
        return result

    def _check_usable(self) -> None:
        if self._engine.closing:
            raise RuntimeClosedError(f"{self!r} is closed") from self._engine.broken
        if self._home is None:
            raise RuntimeError(f"{self!r} has not been entered: async with aioascend.Batcher(...) as batcher")
        self._home.check(repr(self))

    def statistics(self) -> BatcherStatistics:
        """What has happened so far, and what is going on right now."""
        return self._engine.statistics()

    @property
    def closed(self) -> bool:
        """Whether it takes no more requests."""
        return self._engine.closing

    async def __aenter__(self) -> Self:
        if self._home is not None or self.closed:
            raise RuntimeError(f"{self!r} has been entered before, or closed; make another one")
        self._group = Background()
        await self._group.__aenter__()
        self._home = HomeLoop()
        self._engine.open(self._concurrency, self._home.now)
        for number in range(self._concurrency):
            self._group.start_soon(self._engine.work, name=f"{self.name}, batches {number}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._engine.stop()
        else:
            self._engine.break_off(self._engine.left(error))
            self._group.cancel()
        await self._group.__aexit__(None, None, None)  # what leaves the block goes on as it is, not in a group

    async def close(self) -> None:
        """Take no more requests, and wait until those that were taken in have ended. May be called again.

        The end of the block does that, too. Leaving it by an exception does not wait: requests that wait or are under
        way raise `RuntimeClosedError`, and what the device has been given goes on.
        """
        if self._home is None:
            self._engine.closing = True
            return
        self._home.check(repr(self))
        self._engine.stop()
        await self._engine.ended.wait()

    def __repr__(self) -> str:
        return f"<Batcher {self.name}: {self._engine.waiting} waiting, {self._engine.running} running>"


def _name_of(target: object) -> str:
    if isinstance(target, Model):
        return target.name
    return getattr(target, "__qualname__", type(target).__qualname__)
