# SPDX-License-Identifier: Apache-2.0
"""The pool itself: streams go from hand to hand."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

import anyio

from aioascend import _debug, _native
from aioascend._arguments import seconds
from aioascend._background import Background
from aioascend._closing import GRACE_S
from aioascend._deadlines import HomeLoop, check_priority, checkpoint_if_late, limit_of
from aioascend._signals import Signal
from aioascend._threads import run_blocking
from aioascend._words import counted
from aioascend.device import Device
from aioascend.errors import AioascendError, DeadlineError, RuntimeClosedError, fresh
from aioascend.pool.queue import Queue, Request
from aioascend.pool.statistics import StreamPoolStatistics
from aioascend.pool.supply import Supply, bounds, bounds_for, logger
from aioascend.stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["StreamLease", "StreamPool"]

_NOBODY = object()


class StreamPool:
    """Streams of a device that many tasks share; each has one for itself, for the length of a block.

        async with aioascend.StreamPool(npu, size=8) as pool:
            async with pool.acquire(timeout=1.0) as stream:
                await stream.memcpy(dst, src)

    Streams are made when somebody waits for one, in the background, and used again, the most recent one first. A pool
    works inside its block only, and belongs to the event loop that has entered it.

    Guaranteed: a stream is held by one task at a time, and whoever gets it finds nothing in flight on it and no failure
    of others. An `acquire` that is cancelled or times out loses no stream. Streams that take no more work are replaced;
    after `Device.reset`, all of them. Not guaranteed: which stream you get.

    Args:
        device: Where the streams are.
        size: So many streams; or a pair, the fewest that are kept and the most; or None, for 1 to 8, and up to 16 where
            the device has so many AI cores (aclrtGetDeviceInfo) that two for each are more than 8.
        ageing: Seconds of waiting that make up for one step of priority.
        idle_timeout: Seconds after which a stream that was not needed is closed, down to the fewest that are kept.
            Looked at when somebody takes a stream or gives one back.

    Raises:
        TypeError, ValueError: an argument makes no sense; the message names it.
    """

    _tasks: Background
    _home: HomeLoop
    _supply: Supply

    def __init__(
        self,
        device: Device,
        size: int | tuple[int, int] | None = None,
        *,
        ageing: float = 1.0,
        idle_timeout: float = 60.0,
    ) -> None:
        if not isinstance(device, Device):
            raise TypeError(f"device must be a Device, which open_device returns, not {device!r}")
        self.device = device
        self._bounds = None if size is None else bounds(size)
        self._queue = Queue(seconds("ageing", ageing))
        self._idle_timeout = seconds("idle_timeout", idle_timeout)
        self._entered = False
        self._open = False
        self._closed = False
        self._emptied: anyio.Event | None = None
        self._idle: deque[tuple[Stream, float]] = deque()  # with when that began; the most recent one is the last
        self._held: dict[Stream, _debug.Stack | None] = {}  # with where they were acquired
        self._draining: dict[Stream, _native.Operation] = {}
        self._came_back = Signal()
        self._taking_back = anyio.CancelScope(shield=True)
        self._replaced = self._retired = 0
        self._submitted = self._acquired = self._waiting = self._timed_out = self._cancelled = self._failed = 0

    # --- life ---

    async def __aenter__(self) -> Self:
        if self._entered or self._closed:
            raise RuntimeError(f"{self!r} has been entered before, or closed; make another one")
        self.device._check_open()
        self._entered = True
        if self._bounds is None:
            self._bounds = bounds_for(await run_blocking(self.device._core.ai_cores))
        self._tasks = Background()
        await self._tasks.__aenter__()
        self._home = HomeLoop()
        self._supply = Supply(self.device, self._tasks, self, *self._bounds)
        self._tasks.start_soon(self._take_back)
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.close()
            else:
                self._closed = True
                self._refuse(RuntimeClosedError(f"{self!r}: its block was left by {error!r}"))
                with anyio.move_on_after(GRACE_S, shield=True):
                    await self.close()
        finally:
            self._let_go()
            self._taking_back.cancel()
            await self._tasks.__aexit__(None, None, None)  # an error of the block would come back in a group
            if self._emptied is not None:
                self._emptied.set()  # for others who wait for its end

    @property
    def closed(self) -> bool:
        """Whether it takes no more requests."""
        return self._closed

    async def close(self) -> None:
        """Take no more requests, serve those that wait, and close all streams when they have been given back.

        The end of the block does this. Streams that are held by then are named in the log "aioascend", in debug mode
        with where they were acquired. A block that is left by an exception refuses those that wait, and waits up to 5 s
        for what is held; then it is closed under whoever has it. May be called again.
        """
        self._closed = True
        if not self._open:
            return
        self._home.check(repr(self))
        if self._emptied is None:
            self._emptied = anyio.Event()
            self._name_held()
        self._look()
        await self._emptied.wait()

    def _look(self) -> None:
        """Whether a pool that is closed is done: streams that nobody needs are closed, then it is."""
        if self._queue:
            return
        self._supply.rest()
        if self._emptied is None or self._held or self._draining:
            return
        while self._idle:
            self._retire()
        if not self._supply.busy:
            self._emptied.set()

    def _name_held(self) -> None:
        if self._held:
            names = [
                repr(stream) if where is None else f"{stream!r}, acquired at\n{_debug.shown(where)}"
                for stream, where in self._held.items()
            ]
            held = counted(len(names), "stream")
            logger.warning("%s waits for %s that somebody holds:\n%s", repr(self), held, "\n".join(names))

    def _let_go(self) -> None:
        """Of what is left when nobody waits for it any longer. From here on the task group takes no new tasks but from
        its own, so nothing that comes back may start one."""
        self._refuse(RuntimeClosedError(f"{self!r}: nobody waits for it any longer"))
        for stream in (*self._held, *self._draining, *(stream for stream, _ in self._idle)):
            stream._close()
            stream._destroy_when_drained()
            self.device._forget_stream(stream)
            self._retired += 1
        self._held.clear()
        self._draining.clear()
        self._idle.clear()
        if self._supply.busy:
            self._tasks.cancel()

    # --- taking a stream ---

    def acquire(self, *, timeout: float | None = None, priority: int = 0) -> StreamLease:
        """A stream for oneself: `async with pool.acquire() as stream`. At the end of the block it goes back.

        Work that is in flight then, as it was cancelled or nobody has awaited it, goes on, and the stream is kept back
        until it is over. A failure that nobody has been told of goes to the exception handler of the loop.

        Args:
            timeout: Seconds to wait at most.
            priority: Lower numbers first, and equal ones in the order in which they came. A step counts as much as
                `ageing` seconds of waiting: whoever has waited that much longer than one of the next lower number goes
                first, so nobody waits for ever.

        Raises:
            TypeError, ValueError: `timeout` or `priority` is no such number.

        Raises (when entered):
            DeadlineError: there was none in time.
            ResourceError: the device has not a single stream left; with a few the pool makes do.
            DeviceLostError: the device is out of service.
            RuntimeClosedError: the pool or the device is closed.
            RuntimeError: the pool has not been entered, or by another event loop.
        """
        limit = limit_of(timeout)
        priority = check_priority(priority)
        return StreamLease(self, Request(limit, priority, _debug.here()))

    async def _take(self, request: Request) -> Stream:
        if not self._open and not self._closed:
            raise RuntimeError(f"{self!r} has not been entered: async with aioascend.StreamPool(...) as pool")
        if not self._closed:
            self._home.check(repr(self))
        await checkpoint_if_late()
        self._submitted += 1
        try:
            if self._closed:
                raise RuntimeClosedError(f"{self!r} takes no more requests")
            self.device._core.check("StreamPool.acquire")
        except AioascendError:
            self._failed += 1
            raise
        stream = self._take_idle(request) or await self._wait(request)
        self._acquired += 1
        return stream

    def _take_idle(self, request: Request) -> Stream | None:
        while self._idle:
            stream, _ = self._idle.pop()
            if not stream.closed:
                self._held[stream] = request.made_at
                stream._report_open()
                self._shrink()
                return stream
            self._replace(stream)
        return None

    async def _wait(self, request: Request) -> Stream:
        since = self._home.now()
        self._queue.join(request, since)
        self._waiting += 1
        self._supply.grow()
        try:
            with anyio.move_on_after(request.limit):
                await request.ready.wait()
        except BaseException:
            self._cancelled += 1
            self._end_waiting(request)
            if request.stream is not None:  # given in the same moment, so it goes to whoever is next
                self._give_back(request.stream)
            raise
        self._end_waiting(request)
        if request.stream is not None:
            return request.stream
        if request.error is not None:
            self._failed += 1
            raise fresh(request.error)  # others raise it, too
        self._timed_out += 1
        raise DeadlineError(f"acquiring a stream of {self!r}", self._home.now() - since, started=False)

    def _end_waiting(self, request: Request) -> None:
        self._waiting -= 1
        if not request.ready.is_set():
            self._queue.leave(request)
            self._look()

    # --- giving it back ---

    def _give_back(self, stream: Stream) -> None:
        """The only way back, whatever has happened. Does not wait."""
        if self._held.pop(stream, _NOBODY) is _NOBODY:
            return  # the pool has let go of it
        if not stream.closed:
            drained = stream._drained()
            if drained.add_waiter(self._end_draining):
                self._draining[stream] = drained
                return
        self._settle(stream)

    def _end_draining(self, _: _native.Operation) -> None:
        """In a callback of the loop, where no task can be started."""
        self._came_back.notify()

    def _at_rest(self) -> Stream | None:
        return next((stream for stream, drained in self._draining.items() if drained.done()), None)

    async def _take_back(self) -> None:
        """Takes streams back that are at rest at last; to the end of the block, also when that is cancelled."""
        with self._taking_back:
            while True:
                await self._came_back.until(self._at_rest)
                while (stream := self._at_rest()) is not None:
                    del self._draining[stream]
                    self._settle(stream)

    def _settle(self, stream: Stream) -> None:
        if self._queue:
            self._check_device()
        if stream.closed:
            self._replace(stream)
        else:
            self._offer(stream)
        self._look()

    def _check_device(self) -> None:
        """When it is out of service, nobody is given a stream of it."""
        try:
            self.device._core.check("StreamPool.acquire")
        except AioascendError as error:
            self._refuse(error)

    def _offer(self, stream: Stream) -> None:
        """It is there for whoever is next."""
        stream._report_open()
        request = self._queue.next()
        if request is not None:
            self._held[stream] = request.made_at
            request.end(stream)
        else:
            self._idle.append((stream, self._home.now()))
            self._shrink()

    # --- how many there are ---

    @property
    def size(self) -> int:
        """How many streams it has."""
        return len(self._idle) + len(self._held) + len(self._draining)

    def _lacks(self) -> bool:
        """Whether somebody waits for a stream."""
        return len(self._queue) != 0

    def _refuse(self, error: Exception) -> None:
        """There is none to be had for those who wait."""
        self._queue.refuse(error)

    def _replace(self, stream: Stream) -> None:
        self._replaced += 1
        self._supply.close(stream)

    def _retire(self) -> None:
        """The one that has been idle longest."""
        stream, _ = self._idle.popleft()
        self._retired += 1
        self._supply.close(stream)

    def _shrink(self) -> None:
        if self.size > self._supply.least:
            due = self._home.now() - self._idle_timeout
            while self._idle and self._idle[0][1] <= due and self.size > self._supply.least:
                self._retire()

    # --- looking at it ---

    def statistics(self) -> StreamPoolStatistics:
        """What is going on right now."""
        return StreamPoolStatistics(
            wanted=self._bounds[1] if self._bounds else 0,
            size=self.size,
            idle=len(self._idle),
            held=len(self._held),
            draining=len(self._draining),
            created=self._supply.created if self._open else 0,
            replaced=self._replaced,
            retired=self._retired,
            submitted=self._submitted,
            acquired=self._acquired,
            waiting=self._waiting,
            timed_out=self._timed_out,
            cancelled=self._cancelled,
            failed=self._failed,
        )

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.size} streams" if self._open else "not open"
        return f"<StreamPool on device {self.device.index}, {state}>"


class StreamLease:
    """A stream about to be taken from a pool: `async with` it. Made by `StreamPool.acquire`, for one block."""

    _stream: Stream

    def __init__(self, pool: StreamPool, request: Request) -> None:
        self._pool = pool
        self._request: Request | None = request

    async def __aenter__(self) -> Stream:
        request, self._request = self._request, None
        if request is None:
            raise RuntimeError("this acquire has had its block; call pool.acquire() for each")
        self._stream = await self._pool._take(request)
        return self._stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool._give_back(self._stream)
