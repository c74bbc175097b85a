# SPDX-License-Identifier: Apache-2.0
"""Requests from their beginning to their end, in the tasks of those who make them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import Generic, Literal, TypeVar

import anyio
import anyio.abc
import anyio.lowlevel

from aioascend._deadlines import checkpoint_if_late
from aioascend.errors import AclError, DeadlineError, RuntimeClosedError, fresh
from aioascend.scheduler.dispatch import Dispatch
from aioascend.scheduler.requests import Request
from aioascend.scheduler.units import SchedulerUnit
from aioascend.stream import Stream

__all__ = ["Calls"]

U = TypeVar("U")
R = TypeVar("R")
Recover = Callable[[U], Awaitable["U | None"]]

_NOT_OPEN = {
    "new": "the scheduler is not open yet; use it inside its async with block",
    "draining": "the scheduler is closing and takes no more requests",
    "closed": "the scheduler is closed",
}


class Calls(Generic[U]):
    """What goes on in a scheduler while it is open.

    Attributes:
        dispatch: Who gets which unit; there once it is open.
        state: "new", "open", "draining" when it takes no more requests, "closed" when it is left.
    """

    dispatch: Dispatch[U]
    state: Literal["new", "open", "draining", "closed"] = "new"

    # --- life cycle ---

    async def open(self, dispatch: Dispatch[U]) -> None:
        if self.state != "new":
            raise RuntimeClosedError("a scheduler can be entered once; make another one")
        self.dispatch = dispatch
        self._drained = anyio.Event()
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self.state = "open"

    def check(self, *states: str) -> None:
        """That it is in one of these states."""
        if self.state not in states:
            raise RuntimeClosedError(_NOT_OPEN[self.state])

    async def drain(self) -> None:
        """Take no more requests, and wait for those that were taken."""
        if self.state == "new":
            self.state = "closed"
        if self.state == "open":
            self.state = "draining"
            self._look_if_drained()
        if self.state == "draining":
            await self._drained.wait()

    async def leave(self) -> None:
        """The end. Requests that wait are refused, those that run are left alone."""
        self.state = "closed"
        self._drained.set()
        self.dispatch.refuse(RuntimeClosedError(_NOT_OPEN["closed"]))
        self._group.cancel_scope.cancel()
        # Without an error: the group is an inner affair, and would wrap it in a group of exceptions.
        await self._group.__aexit__(None, None, None)

    def _look_if_drained(self) -> None:
        if self.state == "draining" and self.dispatch.idle:
            self._drained.set()

    # --- requests ---

    async def run(self, request: Request, call: Callable[[U], Awaitable[R]], limit: float, *, wait: bool) -> R:
        """Until there is a result, within `limit` seconds."""
        await checkpoint_if_late()
        self.dispatch.enter(request, wait=wait)
        outcome = "failed"
        try:
            if limit == math.inf:
                result = await self._serve(request, call)
                outcome = "ok"
                return result
            with anyio.move_on_after(limit):
                result = await self._serve(request, call)
                outcome = "ok"
                return result
            outcome = "timed_out"
            waited = anyio.current_time() - request.made
            raise DeadlineError("a request of the scheduler", waited, started=request.calls > 0)
        except anyio.get_cancelled_exc_class():
            outcome = "cancelled"
            raise
        finally:
            self._end(request, outcome)

    async def _serve(self, request: Request, call: Callable[[U], Awaitable[R]]) -> R:
        while True:
            unit: SchedulerUnit[U] = request.unit or await self._wait(request)
            began = request.began = anyio.current_time()
            request.calls += 1
            try:
                result = await call(unit.unit)
            except Exception as error:
                unit.count_failed(anyio.current_time())
                if not self._runs_again(request, unit, error):
                    raise
            else:
                unit.count_ok(began, anyio.current_time())
                return result

    async def _wait(self, request: Request) -> SchedulerUnit[U]:
        if request.error is None:
            request.woken = anyio.Event()
            await request.woken.wait()
            await checkpoint_if_late()
        if request.unit is None:
            error = request.error or RuntimeError("a request of the scheduler was woken for nothing")
            raise fresh(error) from error
        return request.unit

    def _runs_again(self, request: Request, unit: SchedulerUnit[U], error: Exception) -> bool:
        """What a failure means for the unit, and whether the request goes back into the queue for it."""
        same = unit.lives == request.lives  # or else the unit has been brought back meanwhile
        retry = error.retry if isinstance(error, AclError) else "caller"
        if isinstance(error, RuntimeClosedError) and (not same or unit.trouble() is not None):
            retry = "gone"
        if retry == "gone" and same:
            self.dispatch.take_out(unit, error)
        if retry == "elsewhere":
            request.tried |= {unit.index}
        possible = request.retries > 0 and self.state != "closed" and self.dispatch.possible(request)
        if retry == "caller" or not possible:
            return False
        self.dispatch.run_again(request, unit)
        return True

    def _end(self, request: Request, outcome: str) -> None:
        unit: SchedulerUnit[U] | None = request.unit
        given_up = outcome in ("cancelled", "timed_out") and request.began is not None and self.state != "closed"
        stream = unit.stream if unit is not None and given_up else None
        if unit is None or stream is None:
            self.dispatch.leave(request, outcome)
        else:
            self.dispatch.abandon(request, unit, outcome)
            self._group.start_soon(self._settle, request, unit, stream)
        self._look_if_drained()

    async def _settle(self, request: Request, unit: SchedulerUnit[U], stream: Stream) -> None:
        """Waits until the device is past what was abandoned: the slot is taken until then."""
        try:
            with contextlib.suppress(Exception):
                await stream.join()
        finally:
            self.dispatch.settled(request, unit)

    # --- units ---

    def start_recovery(self, unit: SchedulerUnit[U], recover: Recover[U], pause: float) -> None:
        """Bring it back, in a task of its own."""
        if self.state != "closed":
            self._group.start_soon(self._bring_back, unit, recover, pause)

    async def _bring_back(self, unit: SchedulerUnit[U], recover: Recover[U], pause: float) -> None:
        lives = unit.lives
        while unit.lives == lives:  # or else it has been restored by hand
            unit.state = "recovering"
            try:
                fresh = await recover(unit.unit)
            except Exception as error:
                self.dispatch.has_failed(unit, error)
                await anyio.sleep(pause)
            else:
                self.dispatch.come_back(unit, fresh)
