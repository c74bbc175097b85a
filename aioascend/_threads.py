# SPDX-License-Identifier: Apache-2.0
"""Blocking ACL calls, off the event loop, without losing what they made when the waiter is cancelled."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import anyio.to_thread

from aioascend import _native

T = TypeVar("T")

PATIENCE_S = 2.0  # how long the exit of the process waits for calls of the library


class _Threads:
    """Runs calls in threads that do not keep the process, a limited number at the same time.

    The threads of a `ThreadPoolExecutor`, and those of anyio under asyncio, are joined before the interpreter exits:
    a load that takes a minute, or a driver that does not answer, would keep the process. The former also refuse
    calls once the main thread has ended, although loops in other threads go on.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._reset()
        os.register_at_fork(after_in_child=self._reset)  # the threads stay with the parent

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], object]] = deque()
        self._threads = 0
        self._calls = 0
        self._numbers = itertools.count()

    def start(self, call: Callable[[], object], *, now: bool) -> None:
        """Run it in one of the threads, as soon as one is free; or now, however many there are."""
        with self._changed:
            if self._threads >= self._limit and not now:
                self._waiting.append(call)
                return
            self._threads += 1
        thread = threading.Thread(target=self._run, args=(call,), name=f"aioascend_{next(self._numbers)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the process may start no more threads
            with self._changed:
                self._threads -= 1
            raise

    def _run(self, call: Callable[[], object] | None) -> None:
        while call is not None:
            call()
            with self._changed:
                call = self._waiting.popleft() if self._waiting else None
                if call is None:
                    self._threads -= 1

    @contextlib.contextmanager
    def call(self) -> Generator[None]:
        """Around a call of the library, in whatever thread."""
        with self._changed:
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def leave(self) -> None:
        """Lets calls end, if they do so soon: the library would be taken down around them."""
        with self._changed:
            self._changed.wait_for(lambda: self._calls == 0, PATIENCE_S)


_threads = _Threads(32)
atexit.register(_threads.leave)


async def _in_thread(call: Callable[[], T], now: bool) -> T:
    # The thread lets go of everything before the loop hears of it: what it has closed may be expected to be gone. And
    # the future holds a list that its waiter empties, for the loop holds the future as long as the waiter runs.
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[T]] = loop.create_future()
    given = [(call, future)]
    ended: list[tuple[asyncio.Future[list[T]], Callable[[Any], None], object]] = []

    def run() -> None:
        call, future = given.pop()
        try:
            value = call()
        except BaseException as error:
            ended.append((future, future.set_exception, error))
        else:
            ended.append((future, future.set_result, [value]))
            del value
        del call, future
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(deliver)

    def deliver() -> None:
        future, settle, outcome = ended.pop()
        if not future.done():  # not cancelled meanwhile
            settle(outcome)

    _threads.start(run, now=now)
    return (await future).pop()


async def run_blocking(call: Callable[[], T], undo: Callable[[T], object] | None = None, *, now: bool = False) -> T:
    """Run `call` in a worker thread, one of a limited number; `now`: although others may all be in calls that hang.

    The call cannot be stopped. When the waiter is cancelled, `undo` is given what the call made, in a thread, as soon
    as it is there; without `undo` the call just ends on its own.
    """
    lock = threading.Lock()
    made: list[T] = []
    abandoned = False

    def in_thread() -> T:
        with _threads.call():
            value = call()
        with lock:
            made.append(value)
            left = abandoned
        if left and undo is not None:
            undo(value)
        return value

    try:
        bridge = _native.running_bridge()
        if bridge is not None and bridge.token is None:
            return await _in_thread(in_thread, now)
        limiter = anyio.CapacityLimiter(1) if now else None
        return await anyio.to_thread.run_sync(in_thread, abandon_on_cancel=True, limiter=limiter)
    except BaseException:
        with lock:
            abandoned = True
            late = list(made)
        for value in late:
            if undo is not None and not sys.is_finalizing():
                threading.Thread(target=undo, args=(value,), name="aioascend-undo", daemon=True).start()
        raise
