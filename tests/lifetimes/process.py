# SPDX-License-Identifier: Apache-2.0
"""One process of the endurance runs: `python -m lifetimes.process WAY SEED` gets into a state and ends in a way.

What it does follows from its arguments alone. It prints the state first, so that it can be repeated on its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import multiprocessing
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import anyio

import aioascend as aa
from aioascend import _closing, _native
from lifetimes.states import BYTES, STATES, Spawn, World

EXIT_CODE = 3
CHILD_CODE = 5
_tasks: list[asyncio.Task[None]] = []


def _spawn_in_asyncio(start: Callable[[], Awaitable[object]]) -> None:
    async def run() -> None:
        with contextlib.suppress(aa.RuntimeClosedError):  # a block that is left closes the device under it
            await start()

    _tasks.append(asyncio.get_running_loop().create_task(run()))


def _spawn_in_trio(start: Callable[[], Awaitable[object]]) -> None:
    import trio

    async def run() -> None:
        with contextlib.suppress(aa.RuntimeClosedError):
            await start()

    trio.lowlevel.spawn_system_task(run)


def run_loop(library: str, main: Callable[[], Awaitable[None]]) -> None:
    options = {"use_uvloop": library == "uvloop"} if library != "trio" else {}
    anyio.run(main, backend="trio" if library == "trio" else "asyncio", backend_options=options)


class Process:
    """The state and the loop that the seed says."""

    def __init__(self, way: str, seed: str) -> None:
        self.chance = random.Random(f"{way} {seed}")
        self.library = self.chance.choice(["asyncio", "uvloop", "trio"])
        self.state = self.chance.choice(list(STATES))
        spawn: Spawn = _spawn_in_trio if self.library == "trio" else _spawn_in_asyncio
        self.world = World(self.chance, spawn, for_ever=way in ("exit", "interrupt"))
        self.inside_trio = False
        _closing.GRACE_S = 0.05

    def describe(self, *more: object) -> None:
        print(self.library, self.state, *more, flush=True)

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        run_loop(self.library, main)

    async def get_going(self) -> None:
        await self.world.open()
        await STATES[self.state](self.world)

    def go_on(self) -> None:
        """Uses, in a new loop, what the first one left, and closes it."""

        async def second() -> None:
            world = self.world
            world.sim.reset()
            try:
                await world.stream
            except aa.AclError:
                assert self.state == "untold"
            await world.stream.memset(world.buffer, 7)
            await world.stream.memcpy(world.target, world.buffer)
            assert (world.target == 7).all()
            await world.npu.close()

        self.run(second)
        self.world.kept.clear()
        _tasks.clear()
        gc.collect()
        _native.forget_closed_loops()
        if self.state != "two_loops":  # whose other loop still runs, in a thread of its own
            assert _native.ticket_counts()["live"] == 0


# --- the ways ---


def leave(process: Process) -> None:
    """The interpreter exits with work in flight."""
    how = process.chance.choice(["return", "in a block", "sys.exit", "sys.exit later", "exception"])
    process.describe(how)

    async def main() -> None:
        await process.get_going()
        if how == "sys.exit":
            sys.exit(EXIT_CODE)
        if how == "exception":
            raise LookupError("on purpose")
        if how == "in a block":
            async with process.world.npu:
                sys.exit(EXIT_CODE)

    process.run(main)
    if how == "sys.exit later":
        sys.exit(EXIT_CODE)


def interrupt(process: Process) -> None:
    """Ctrl-C, sent from outside at some moment."""
    how = process.chance.choice(["sleep", "work", "block"])
    process.describe(how)
    world = process.world

    async def work() -> NoReturn:
        async with world.npu.create_stream() as stream:
            while True:
                await stream.memset(world.buffer, 1)
                if process.library == "trio":
                    await stream.record()
                else:
                    await asyncio.gather(*(stream.memset(world.buffer, value) for value in range(10)))

    async def main() -> None:
        await process.get_going()
        print("ready", flush=True)
        if how == "work":
            await work()
        elif how == "block":
            async with world.npu, world.stream:
                await anyio.sleep_forever()
        await anyio.sleep_forever()

    with contextlib.suppress(KeyboardInterrupt):  # the second one, right here
        try:
            process.run(main)
        except BaseException as error:
            if not _interrupted(error):  # a second Ctrl-C while the loop is closed makes that fail in its own way
                raise
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("interrupted", flush=True)


def _interrupted(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def close_loop(process: Process) -> None:
    """A loop is closed with work in flight, and another one goes on."""
    process.describe()
    process.run(process.get_going)
    process.go_on()
    print("done", flush=True)


def fork(process: Process) -> None:
    """A child is made by fork with work in flight; both end as they should."""
    how = process.chance.choice(["os._exit", "sys.exit", "multiprocessing"])
    where = process.chance.choice(["loop", "between", "thread"])
    if how == "sys.exit" and where != "between":
        where = "between"  # a child that closes the loop it has inherited takes it from the parent, too
    process.describe(how, where)
    warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
    codes: list[int | None] = []
    make = {"os._exit": _fork_and_leave, "sys.exit": _fork_and_exit, "multiprocessing": _fork_a_worker}[how]

    async def main() -> None:
        await process.get_going()
        if where == "loop":
            process.inside_trio = process.library == "trio"
            codes.append(make(process))
        elif where == "thread":
            thread = threading.Thread(target=lambda: codes.append(make(process)))
            thread.start()
            thread.join()

    process.run(main)
    if where == "between":
        codes.append(make(process))
    assert codes == [CHILD_CODE], codes
    process.go_on()
    print("done", flush=True)


def _in_child(process: Process) -> None:
    """Everything is refused, nothing hangs, and what is collected does no harm."""
    world = process.world
    refused: dict[str, Callable[[], object]] = {
        "memset": lambda: world.stream.memset(world.buffer, 1),
        "record": lambda: world.stream.record(),
        "empty": lambda: world.npu.empty(BYTES, "uint8"),
        "statistics": lambda: world.npu.statistics(),
        "queued": lambda: world.stream.queued,
        "backend_info": lambda: aa.backend_info("sim"),
    }
    for name, use in refused.items():
        try:
            use()
        except aa.ForkError:
            continue
        raise AssertionError(f"{name} is not refused")
    if not process.inside_trio:  # whose run the child is still in
        asyncio.run(_with_loop(world))
    world.kept.clear()
    del world.stream, world.npu, world.buffer
    gc.collect()


async def _with_loop(world: World) -> None:
    with contextlib.suppress(aa.ForkError):
        await world.npu.memory_info()
        raise AssertionError("memory_info is not refused")
    with contextlib.suppress(aa.ForkError):
        await aa.open_device(0, backend="sim")
        raise AssertionError("open_device is not refused")
    with contextlib.suppress(aa.ForkError):  # it passes if all was done before
        await world.stream
    await world.npu.close()


def _fork_and_leave(process: Process) -> int | None:
    pid = os.fork()
    if pid == 0:
        try:
            _in_child(process)
            os._exit(CHILD_CODE)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork_and_exit(process: Process) -> int | None:
    pid = os.fork()
    if pid == 0:
        _in_child(process)
        sys.exit(CHILD_CODE)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _work_in_worker(process: Process) -> None:
    _in_child(process)
    sys.exit(CHILD_CODE)


def _fork_a_worker(process: Process) -> int | None:
    worker: Any = multiprocessing.get_context("fork").Process(target=_work_in_worker, args=(process,))
    worker.start()
    worker.join()
    return worker.exitcode


WAYS: dict[str, Callable[[Process], None]] = {"exit": leave, "interrupt": interrupt, "loop": close_loop, "fork": fork}


if __name__ == "__main__":
    faulthandler.enable(all_threads=True)  # whoever watches aborts a process that hangs
    signal.signal(signal.SIGINT, signal.default_int_handler)
    PROCESS = Process(sys.argv[1], sys.argv[2])  # kept until the end: an open device that is dropped is warned of
    WAYS[sys.argv[1]](PROCESS)
