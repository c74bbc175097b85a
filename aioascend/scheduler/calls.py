# SPDX-License-Identifier: Apache-2.0
"""Requests from their beginning to their end, in the tasks of those who make them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import anyio
import anyio.abc
import anyio.lowlevel

from aioascend._background import Background
from aioascend._cancels import is_cancelled, stray
from aioascend._deadlines import HomeLoop, checkpoint_if_late
from aioascend.errors import AclError, DeadlineError, RuntimeClosedError, fresh
from aioascend.scheduler.dispatch import Dispatch
from aioascend.scheduler.requests import Request
from aioascend.scheduler.units import SchedulerUnit, work_on

if TYPE_CHECKING:
    from aioascend._native import Operation

__all__ = ["Calls"]

U = TypeVar("U")
R = TypeVar("R")
Recover = Callable[[U], Awaitable["U | None"]]


class Calls(Generic[U]):
    """What goes on in a scheduler while it is open.

    Attributes:
        state: "new", "open", "draining" when it takes no more requests, "closed" when it is left.
    """

    state: Literal["new", "open", "draining", "closed"] = "new"
    _home: HomeLoop
    _drained: anyio.Event
    _group: Background

    def __init__(self, dispatch: Dispatch[U], recover: Recover[U] | None, pause: float) -> None:
        self._dispatch = dispatch
        self._pause = pause
        if recover is not None:
            self._recover = recover
            dispatch.recover = self._start_recovery

    # --- life cycle ---

    async def open(self) -> None:
        if self.state != "new":
            raise RuntimeError("the scheduler has been entered before, or closed; make another one")
        self._home = HomeLoop()
        self._dispatch.open(self._home.now)
        self._drained = anyio.Event()
        self._group = Background()
        await self._group.__aenter__()
        self.state = "open"
        self._group.start_soon(self._watch_block)

    def check(self, *, draining: bool = False) -> None:
        """That it is open, or with `draining` not left yet, and that this is its loop."""
        if self.state == "new":
            raise RuntimeError("the scheduler has not been entered: async with aioascend.Scheduler(...) as scheduler")
        if self.state == "closed":
            raise RuntimeClosedError("the scheduler is closed")
        self._home.check("the scheduler")
        if self.state == "draining" and not draining:
            raise RuntimeClosedError("the scheduler is closing and takes no more requests")

    async def drain(self) -> None:
        """Take no more requests, and wait for those that were taken."""
        if self.state == "new":
            self.state = "closed"
        if self.state == "closed":
            return
        self._home.check("the scheduler")
        self.state = "draining"
        self._look_if_drained()
        await self._drained.wait()

    async def leave(self) -> None:
        """The end. Requests that wait are refused, those that run are left alone."""
        self._end_all("the scheduler is closed: its block has been left")
        self._group.cancel()
        # Without an error: the group is an inner affair, and would wrap it in a group of exceptions.
        await self._group.__aexit__(None, None, None)

    async def _watch_block(self) -> None:
        """When the block is cancelled, what goes on here is too, while shielded parts of it may go on."""
        try:
            await anyio.sleep_forever()
        finally:
            self._end_all("the scheduler is closed: its block has been cancelled")

    def _end_all(self, why: str) -> None:
        if self.state != "closed":
            self.state = "closed"
            self._drained.set()
            self._dispatch.refuse(RuntimeClosedError(why))

    def _look_if_drained(self) -> None:
        if self.state == "draining" and self._dispatch.idle:
            self._drained.set()

    # --- requests ---

    async def run(self, request: Request, call: Callable[[U], Awaitable[R]], limit: float) -> R:
        """Until there is a result, within `limit` seconds."""
        self._dispatch.enter(request)
        outcome = "failed"
        try:
            with anyio.move_on_after(limit):
                result = await self._serve(request, call)
                outcome = "ok"
                return result
            outcome = "timed_out"
            raise DeadlineError(
                "a request of the scheduler", self._home.now() - request.made, started=request.calls > 0
            )
        except anyio.get_cancelled_exc_class():
            outcome = "cancelled"
            raise
        finally:
            self._end(request, outcome)

    async def _serve(self, request: Request, call: Callable[[U], Awaitable[R]]) -> R:
        while True:
            unit: SchedulerUnit[U] = request.unit or await self._wait(request)
            if unit.state != "ok" and self.state != "closed":  # it has gone before its caller came to it
                self._dispatch.put_back(request, unit)
                continue
            began = self._home.now()
            try:
                result = await _answer(call, request.begin(unit, began))
            except Exception as error:
                unit.count_failed(self._home.now())
                if not self._runs_again(request, unit, error):
                    raise
                await checkpoint_if_late()
            else:
                unit.count_ok(began, self._home.now())
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
            self._dispatch.take_out(unit, error)
        if retry == "elsewhere":
            request.tried |= {(unit.index, request.lives)}
        possible = request.retries > 0 and self.state != "closed" and self._dispatch.possible(request)
        if retry == "caller" or not possible:
            return False
        self._dispatch.run_again(request, unit)
        return True

    def _end(self, request: Request, outcome: str) -> None:
        unit: SchedulerUnit[U] | None = request.unit
        given_up = outcome in ("cancelled", "timed_out") and request.began is not None and self.state != "closed"
        work = work_on(request.callee) if given_up else []
        if unit is None or not work:
            self._dispatch.leave(request, outcome)
        else:
            self._dispatch.abandon(unit, outcome)
            self._group.start_soon(self._settle, request, unit, work)
        self._look_if_drained()

    async def _settle(self, request: Request, unit: SchedulerUnit[U], work: Sequence[Operation]) -> None:
        """Waits until the device is past what was abandoned: the slot is taken until then."""
        try:
            for operation in work:
                with contextlib.suppress(Exception):
                    await operation
        finally:
            self._dispatch.settled(request, unit)

    # --- units ---

    def restore(self, unit: SchedulerUnit[U]) -> None:
        """It works again, if it does not already, and nobody sees to that."""
        if unit.state == "failed":
            self._dispatch.come_back(unit)

    def _start_recovery(self, unit: SchedulerUnit[U]) -> None:
        """Bring it back, in a task of its own."""
        if self.state != "closed":
            unit.state = "recovering"
            self._group.start_soon(self._bring_back, unit)

    async def _bring_back(self, unit: SchedulerUnit[U]) -> None:
        lives = unit.lives
        try:
            await anyio.lowlevel.checkpoint()  # whoever has found it out may be in the middle of something
            while unit.lives == lives:  # or else it has been restored by hand
                unit.state = "recovering"
                try:
                    await self._recover_once(unit)
                except Exception as error:
                    self._dispatch.has_failed(unit, error)
                    await anyio.sleep(self._pause)
        finally:
            if unit.lives == lives:  # the block is at its end
                self._dispatch.has_failed(unit, RuntimeClosedError("the scheduler was closed before its unit was back"))

    async def _recover_once(self, unit: SchedulerUnit[U]) -> None:
        try:
            made = await self._recover(unit.unit)
        except anyio.get_cancelled_exc_class() as cancel:
            if is_cancelled(in_doubt=False):
                raise
            raise stray("the recovery of a unit", cancel) from cancel
        if made is not None:
            unit.unit = made
        trouble = unit.trouble()
        if trouble is not None:
            raise trouble
        self._dispatch.come_back(unit)


async def _answer(call: Callable[[Any], Awaitable[R]], callee: object) -> R:
    """That of the call. A cancel that comes out of it and is not the caller's is its failure."""
    try:
        answer = call(callee)
        if not inspect.isawaitable(answer):
            raise TypeError(f"a call of a scheduler must be async, and {call!r} has returned {type(answer).__name__}")
        return await answer
    except anyio.get_cancelled_exc_class() as cancel:
        if is_cancelled():
            raise
        raise stray("a call of the scheduler", cancel) from cancel
