# SPDX-License-Identifier: Apache-2.0
"""The sides of the cancellation matrix: what is awaited, the state it is in, and how the wait is ended."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np

import aioascend as aa
from aioascend.testing import Simulator

FLIGHT_LIMIT = 4
SIZE = 64
WRITTEN = 9
PAST = float("-inf")
AN_HOUR_S = 3600.0


class Array(np.ndarray):
    """An array that a weak reference can be made to."""


class Scene:
    """A copy into pageable memory that somebody waits for, on a stream of its own.

    Attributes:
        library: "asyncio" or "trio".
        base: What the destination is a view of.
        got: What the awaiter got: the name of an exception, or "nothing".
        waiting: Whether it waits.
        end: Ends the wait; set by the way.
        end_at_resolve: Whether to end it when the operation is resolved, before the task that awaits it can go on.
    """

    def __init__(self, sim: Simulator, library: str, stream: aa.Stream, model: aa.Model) -> None:
        self.sim = sim
        self.library = library
        self.stream = stream
        self.model = model
        self.buffer: aa.DeviceBuffer | None = stream.device.empty(SIZE, "uint8")
        self.base = np.zeros(SIZE, "uint8")
        self.target: Any = self.base.view(Array)
        self.operation: aa.Operation | None = None
        self.tasks = 0
        self.got = ""
        self.waiting = False
        self.end: Callable[[], object] = lambda: None
        self.end_at_resolve = False

    async def prepare(self) -> None:
        """Once before, for the pools to have what it takes: what waits for memory is queued on the host."""
        assert self.buffer is not None
        self.stream.memset(self.buffer, WRITTEN)
        await self.stream.memcpy(np.empty(SIZE, "uint8"), self.buffer)
        self.tasks = 3
        if self.stream is self.model.stream:
            await self.model(np.zeros(SIZE, "uint8"))
            self.tasks += 4

    def copy(self) -> aa.Operation:
        assert self.buffer is not None
        return self.stream.memcpy(self.target, self.buffer)

    async def wait(self, submit: Callable[[Scene], Awaitable[object]]) -> None:
        try:
            awaitable = submit(self)
            if self.end_at_resolve and self.operation is not None:
                self.operation.add_waiter(lambda _: self.end())
            self.waiting = True
            await awaitable
        except BaseException as error:
            self.got = type(error).__name__
            raise
        self.got = "nothing"


# --- what is awaited; the operation under test is the last of its stream ---


def operation(scene: Scene) -> Awaitable[object]:
    scene.operation = scene.copy()
    scene.tasks += 2  # and the report
    return scene.operation


def event(scene: Scene) -> Awaitable[object]:
    scene.copy()
    scene.tasks += 3
    return scene.stream.record()


def stream(scene: Scene) -> Awaitable[object]:
    scene.copy()
    scene.tasks += 2
    return scene.stream


def model_call(scene: Scene) -> Awaitable[object]:
    scene.tasks += 4
    return scene.model(np.ones(SIZE, "uint8"))


KINDS = (operation, event, stream, model_call)
REACHED = (operation, model_call)  # by a cancel under asyncio


# --- the states of docs/cancellation.md ---


class State:
    """before: the work is submitted. reached: somebody waits; ends the wait. let_go: nobody waits any more."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.scene, self.sim, self.folder = scene, scene.sim, folder

    def before(self) -> None:
        raise NotImplementedError

    def reached(self) -> None:
        self.scene.end()

    def let_go(self) -> None:
        self.sim.release(self.scene.stream)


class QueuedOnTheDevice(State):
    def before(self) -> None:
        self.sim.hold(self.scene.stream)

    def reached(self) -> None:
        assert self.scene.stream.in_flight
        assert not self.scene.stream.queued
        self.scene.end()


class QueuedOnTheHost(State):
    def before(self) -> None:
        self.sim.hold(self.scene.stream)
        buffer = self.scene.buffer
        assert buffer is not None
        for _ in range(FLIGHT_LIMIT):
            self.scene.stream.memset(buffer, WRITTEN)

    def reached(self) -> None:
        assert self.scene.stream.queued
        self.scene.end()


class Running(State):
    def before(self) -> None:
        profile = self.folder / "slow.toml"
        profile.write_text(f'name = "slow"\ncopy_latency_us = {AN_HOUR_S * 1e6:.0f}\n', encoding="utf-8")
        self.sim.set_profile(profile)

    def let_go(self) -> None:
        self.sim.virtual_time()


class ReportOnItsWay(State):
    def before(self) -> None:
        self.sim.hold_reports()

    def reached(self) -> None:
        self.sim.wait_tasks(self.scene.stream, self.scene.tasks)
        self.scene.end()

    def let_go(self) -> None:
        self.sim.release_reports()


class Resolved(State):
    """The wait is ended when the operation has been resolved, and before the task goes on."""

    def before(self) -> None:
        self.sim.hold(self.scene.stream)
        self.scene.end_at_resolve = self.scene.library == "asyncio"

    def reached(self) -> None:
        if self.scene.library == "trio":  # where the task has been told to go on by then
            self.scene.stream.join().add_waiter(lambda _: self.scene.end())
        self.sim.release(self.scene.stream)

    def let_go(self) -> None:
        pass


STATES: dict[str, type[State]] = {
    "queued on the host": QueuedOnTheHost,
    "queued on the device": QueuedOnTheDevice,
    "running": Running,
    "done, report on its way": ReportOnItsWay,
    "resolved, task not yet resumed": Resolved,
}


# --- ways to end a wait; each says what became of it ---

Wait = Callable[[], Awaitable[None]]


def failed(error: Exception) -> str:
    """An ExceptionGroup, which Python 3.10 does not have, of what made the group fail and nothing else."""
    causes = [type(cause) for cause in getattr(error, "exceptions", ())]
    return "failed" if causes == [LookupError] else repr(error)


async def cancel_task(scene: Scene, wait: Wait) -> str:
    async def work() -> None:
        await wait()

    def end() -> None:
        assert task.cancel()

    task = asyncio.get_running_loop().create_task(work())
    scene.end = end
    await asyncio.wait([task])
    return "cancelled" if task.cancelled() else "returned"


async def asyncio_timeout(scene: Scene, wait: Wait) -> str:
    try:
        async with asyncio.timeout(AN_HOUR_S) as timeout:
            scene.end = lambda: timeout.reschedule(PAST)
            await wait()
    except TimeoutError:
        return "timed out"
    return "returned"


async def asyncio_group(scene: Scene, wait: Wait) -> str:
    failing = asyncio.Event()
    scene.end = failing.set

    async def fail() -> None:
        await failing.wait()
        raise LookupError

    async def work() -> None:
        await wait()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            group.create_task(fail())
    except Exception as error:
        return failed(error)
    return "returned"


async def anyio_scope(scene: Scene, wait: Wait) -> str:
    with anyio.CancelScope() as scope:
        scene.end = scope.cancel
        await wait()
    return "cancelled" if scope.cancelled_caught else "returned"


async def move_on_after(scene: Scene, wait: Wait) -> str:
    with anyio.move_on_after(AN_HOUR_S) as scope:
        scene.end = lambda: setattr(scope, "deadline", PAST)
        await wait()
    return "cancelled" if scope.cancelled_caught else "returned"


async def fail_after(scene: Scene, wait: Wait) -> str:
    try:
        with anyio.fail_after(AN_HOUR_S) as scope:
            scene.end = lambda: setattr(scope, "deadline", PAST)
            await wait()
    except TimeoutError:
        return "timed out"
    return "returned"


async def anyio_group(scene: Scene, wait: Wait) -> str:
    failing = anyio.Event()
    scene.end = failing.set

    async def fail() -> None:
        await failing.wait()
        raise LookupError

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            group.start_soon(fail)
    except Exception as error:
        return failed(error)
    return "returned"


async def trio_scope(scene: Scene, wait: Wait) -> str:
    import trio

    with trio.CancelScope() as scope:
        scene.end = scope.cancel
        await wait()
    return "cancelled" if scope.cancelled_caught else "returned"


async def trio_nursery(scene: Scene, wait: Wait) -> str:
    import trio

    failing = trio.Event()
    scene.end = failing.set

    async def fail() -> None:
        await failing.wait()
        raise LookupError

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(fail)
    except Exception as error:
        return failed(error)
    return "returned"


# way -> what becomes of a wait that it ends
EVERYWHERE = {
    anyio_scope: "cancelled",
    move_on_after: "cancelled",
    fail_after: "timed out",
    anyio_group: "failed",
}
IN_ASYNCIO = {cancel_task: "cancelled"}
if sys.version_info >= (3, 11):
    IN_ASYNCIO |= {asyncio_timeout: "timed out", asyncio_group: "failed"}
IN_TRIO = {trio_scope: "cancelled", trio_nursery: "failed"}
NOT_AT_ONCE = (anyio_group, asyncio_group, trio_nursery)  # a task has to run before they end anything
