# SPDX-License-Identifier: Apache-2.0
"""What a stage is: a function, and how it is run."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Generic, Literal, Protocol, TypeVar, overload

import anyio
import anyio.to_thread

from aioascend._arguments import whole
from aioascend._deadlines import checkpoint_if_late
from aioascend.stream import Stream

__all__ = ["Stage", "StreamMaker", "StreamLender"]

In = TypeVar("In")
Out = TypeVar("Out")


class StreamMaker(Protocol):
    """What makes streams, as a `Device` does."""

    def create_stream(self) -> AbstractAsyncContextManager[Stream]: ...


class StreamLender(Protocol):
    """What lends streams, as a `StreamPool` does."""

    def acquire(self) -> AbstractAsyncContextManager[Stream]: ...


class Stage(Generic[In, Out]):
    """A function of a pipeline, and how it is run. A stage can be in several pipelines.

    Args:
        function: Called with an item; what it returns goes to the next stage. An `async def`, or whatever returns
            something to be awaited, such as a `Model`.
        concurrency: Workers, that is, how many items are in the function at the same time.
        queue_limit: How many items may wait in front of it; what comes before has to wait when they are so many.
        streams: The function is called with an item and a stream. From a `Device`, each worker has a stream of its own;
            from a pool, each call borrows one, and calls take turns as the pool has it.
        thread: `function` is an ordinary one, and is called in a worker thread. That cannot be stopped: when nobody
            waits for the item any more, the worker is busy until the function returns, and what it returns is dropped.
            When the pipeline is stopped the thread is left to itself.
        name: What messages and statistics call it; by default the name of the function.

    Attributes:
        function: What is called.
        name: What messages and statistics call it.
        concurrency: Workers.
        queue_limit: How many items may wait in front of it.
        thread: Whether the function is called in worker threads.

    Raises:
        TypeError, ValueError: an argument that makes no sense, or a function that cannot be a stage.
    """

    @overload
    def __init__(
        self: Stage[In, Out],
        function: Callable[[In], Awaitable[Out]],
        *,
        concurrency: int = 1,
        queue_limit: int = 2,
        thread: Literal[False] = False,
        name: str | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: Stage[In, Out],
        function: Callable[[In, Stream], Awaitable[Out]],
        *,
        streams: StreamMaker | StreamLender,
        concurrency: int = 1,
        queue_limit: int = 2,
        thread: Literal[False] = False,
        name: str | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: Stage[In, Out],
        function: Callable[[In], Out],
        *,
        thread: Literal[True],
        concurrency: int = 1,
        queue_limit: int = 2,
        name: str | None = None,
    ) -> None: ...

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        concurrency: int = 1,
        queue_limit: int = 2,
        streams: StreamMaker | StreamLender | None = None,
        thread: bool = False,
        name: str | None = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"a stage is a function, not {function!r}")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be text, not {name!r}")
        self.function = function
        self.name = name or str(
            getattr(function, "__name__", None) or getattr(function, "name", None) or type(function).__name__
        )
        self.concurrency = whole("concurrency", concurrency, 1, 10_000, "a number of workers")
        self.queue_limit = whole("queue_limit", queue_limit, 0, 1_000_000, "a number of items")
        self.thread = bool(thread)
        self._streams = streams
        self._check()

    def _check(self) -> None:
        if inspect.isasyncgenfunction(self.function) or inspect.isgeneratorfunction(self.function):
            raise TypeError(
                f"stage {self.name!r} is a generator, and a stage makes one result of one item; return a list, or give "
                "what yields to map() of another pipeline (docs/pipelines.md)"
            )
        if self.thread and inspect.iscoroutinefunction(self.function):
            raise TypeError(f"stage {self.name!r} is an async def, which runs in no thread: leave out thread=True")
        if self.thread and self._streams is not None:
            raise ValueError(f"stage {self.name!r} runs in threads, where no stream can be awaited: leave out streams")
        if self._streams is not None and not (self._makes_streams or hasattr(self._streams, "acquire")):
            raise TypeError(f"streams must be a Device or a pool of streams, not {self._streams!r}")

    @property
    def _makes_streams(self) -> bool:
        return hasattr(self._streams, "create_stream")

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[Callable[[In], Awaitable[Out]]]:
        """What one worker calls with each item."""
        if self._streams is None:
            yield self._in_thread() if self.thread else self._call
        elif not self._makes_streams:
            yield self._with_borrowed
        else:
            async with self._with_own() as call:
                yield call

    def _in_thread(self) -> Callable[[In], Awaitable[Out]]:
        limiter = anyio.CapacityLimiter(1)
        return lambda item: anyio.to_thread.run_sync(self._return, item, limiter=limiter, abandon_on_cancel=True)

    def _return(self, item: In) -> Out:
        returned: Out = self.function(item)
        if inspect.isawaitable(returned):
            if inspect.iscoroutine(returned):
                returned.close()
            raise TypeError(
                f"stage {self.name!r} has returned {type(returned).__name__}, which has to be awaited, and a thread "
                "cannot: leave out thread=True"
            )
        return returned

    async def _call(self, *arguments: Any) -> Out:
        returned = self.function(*arguments)
        if not inspect.isawaitable(returned):
            raise TypeError(
                f"stage {self.name!r} has returned {type(returned).__name__}, which cannot be awaited: "
                "write it as an async def, or make it Stage(..., thread=True)"
            )
        result: Out = await returned
        return result

    async def _with_borrowed(self, item: In) -> Out:
        async with self._streams.acquire() as stream:  # type: ignore[union-attr]
            await checkpoint_if_late()
            return await self._call(item, stream)

    @asynccontextmanager
    async def _with_own(self) -> AsyncIterator[Callable[[In], Awaitable[Out]]]:
        create: Callable[[], AbstractAsyncContextManager[Stream]] = self._streams.create_stream  # type: ignore[union-attr]
        async with AsyncExitStack() as stack:
            stream = await stack.enter_async_context(create())

            async def call(item: In) -> Out:
                nonlocal stream
                if stream.closed:  # its device was reset
                    await stack.aclose()
                    stream = await stack.enter_async_context(create())
                    await checkpoint_if_late()
                return await self._call(item, stream)

            yield call

    def __repr__(self) -> str:
        return f"<Stage {self.name}, {self.concurrency} at a time>"


def as_stage(given: Stage[Any, Any] | Callable[[Any], Awaitable[Any]]) -> Stage[Any, Any]:
    return given if isinstance(given, Stage) else Stage(given)
