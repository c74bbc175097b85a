# SPDX-License-Identifier: Apache-2.0
"""One source on its way through a pipeline."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, Literal, NoReturn

import anyio
import anyio.lowlevel

from aioascend._closing import GRACE_S
from aioascend._debug import add_note
from aioascend._signals import Signal
from aioascend.errors import RuntimeClosedError
from aioascend.pipeline.items import Item, Ledger, Owner, told
from aioascend.pipeline.workers import Workers

OnError = Literal["raise", "skip", "collect"]
Source = AsyncIterable[Any] | Iterable[Any]

_logger = logging.getLogger("aioascend.pipeline")


class Run(Owner):
    """Feeds a source into the first stage, and keeps results until they are asked for.

    An item counts against `limit` from before it is taken from the source until its result is. So there is always room
    for a result, no worker ever waits for whoever takes them, and maps do not hold up each other.
    """

    def __init__(
        self, ledger: Ledger, first: Workers, source: Source, *, ordered: bool, on_error: OnError, limit: int
    ) -> None:
        self._source: Source | None = source
        self._pull = puller(source)
        self._ledger = ledger
        self._first = first
        self._ordered = ordered
        self._on_error = on_error
        self._limit = limit
        self._count = 0  # items taken from the source
        self._due = 0  # index of the item whose result comes next, where that is not just any
        self._live: dict[int, Item] = {}
        self._ended: dict[int, Item] = {}
        self._arrived = Signal()
        self._freed = Signal()
        self._pulling: anyio.CancelScope | None = None
        self._stopped = False  # nothing more is taken from the source
        self._fed = False  # and nothing more comes from there
        self._failure: Exception | None = None  # which ends it, after the results
        self.feeding = False  # set by whoever starts the task
        self.over = False

    # --- the results ---

    async def next(self) -> Item:
        """The next item that is through, or has failed if failures are collected."""
        while True:
            await self._arrived.until(self._has_next)
            if self.over:
                raise StopAsyncIteration
            item = self._take()
            if item is None:
                raise_free_of_cycles(self._failure or StopAsyncIteration())
            self._freed.notify()
            if item.error is None or (self._on_error == "collect" and not item.for_all):
                return item
            if item.for_all or self._on_error == "raise":
                error, item = item.error, None
                raise_free_of_cycles(error)

    def _has_next(self) -> bool:
        if self.over or (self._fed and not self._live and not self._ended):
            return True
        return self._due in self._ended if self._ordered else bool(self._ended)

    def _take(self) -> Item | None:
        if not self._ended:
            return None
        index = self._due if self._ordered else next(iter(self._ended))
        self._due = index + 1
        return self._ended.pop(index)

    def give_up(self) -> None:
        """Nobody wants its results any more."""
        if self.over:
            return
        self.over = True
        self.stop()
        for item in list(self._live.values()):
            item.end("cancelled")
        self._ended.clear()
        self._arrived.notify()

    async def left(self) -> None:
        """Waits until no stage works on an item of it, and the source has been let go."""
        await self._ledger.changed.until(lambda: not self.inside and not self.feeding)

    # --- the items ---

    def drops_failures(self) -> bool:
        return self._on_error == "skip"

    def ended(self, item: Item) -> None:
        index = item.index or 0
        del self._live[index]
        if self.over or item.state == "cancelled":
            return
        self._ended[index] = item
        if item.error is not None and (item.for_all or self._on_error == "raise"):
            self.stop()
            for other in [other for other in self._live.values() if not self._ordered or (other.index or 0) > index]:
                other.end("cancelled")
        self._arrived.notify()

    # --- the source ---

    def stop(self) -> None:
        """Nothing more is taken from the source; what has been goes its way."""
        self._stopped = True
        if self._pulling is not None:
            self._pulling.cancel()

    async def feed(self) -> None:
        """Takes items from the source as long as it has any, and there is room."""
        self._failure = RuntimeClosedError("the pipeline was closed before all of the source was taken")
        try:
            await self._feed()
        except StopAsyncIteration:
            self._failure = None
        except BaseException as error:
            failure = told(error, "the source")
            add_note(failure, f"from the source, after {self._count} items")
            self._failure = failure
        finally:
            try:
                await self.let_go()
            finally:
                self._fed, self.feeding = True, False
                self._arrived.notify()
                self._ledger.changed.notify()

    async def _feed(self) -> None:
        while not self._stopped:
            with anyio.CancelScope() as self._pulling:
                await self._freed.until(lambda: len(self._live) + len(self._ended) < self._limit)
                await anyio.lowlevel.checkpoint()  # not every source has one
                value = await self._pull()
            if self._pulling.cancelled_caught:
                return
            source = value if self._on_error == "collect" else None
            item = Item(self._ledger, self, value, index=self._count, source=source)
            self._live[self._count] = item
            self._count += 1
            del value, source
            await self._first.put(item)

    async def let_go(self) -> None:
        """Closes an async generator, for nobody else could; of anything else the reference goes."""
        source, self._source = self._source, None
        self._pull = _nothing
        if not inspect.isasyncgen(source):
            return
        try:
            with anyio.move_on_after(GRACE_S, shield=True):
                await source.aclose()
        except BaseException as error:
            failure = told(error, "the end of the source")
            if self.over or self._failure is not None:
                _logger.error("closing the source of a map failed", exc_info=failure)
            else:
                self._failure = failure


def raise_free_of_cycles(error: BaseException) -> NoReturn:
    """Raises it so that no frame in its traceback refers to it."""
    try:
        raise error
    finally:
        del error


def puller(source: Source) -> Callable[[], Awaitable[Any]]:
    """What takes the next item from a source; `StopAsyncIteration` where there is none."""
    if isinstance(source, AsyncIterable):
        return source.__aiter__().__anext__
    if not isinstance(source, Iterable):
        raise TypeError(f"map takes an iterable or an async iterable, not {source!r}")
    items = iter(source)

    async def pull() -> Any:
        for item in items:
            return item
        raise StopAsyncIteration

    return pull


async def _nothing() -> Any:
    raise StopAsyncIteration
