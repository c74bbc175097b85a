# SPDX-License-Identifier: Apache-2.0
"""One round: the device is opened, all lanes do their share, everything is closed, and the ledger is audited."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import numpy as np

import aioascend as aa
from aioascend._native import PinnedBuffer
from aioascend.device import DeviceContext
from aioascend.soak import contents
from aioascend.soak.contents import BUFFER_BYTES, PATTERNS
from aioascend.soak.faults import LOST_CODE, Injector
from aioascend.soak.home import Home
from aioascend.soak.lane import Lane
from aioascend.soak.ledger import Ledger, Session, is_loss
from aioascend.soak.models import SharedModel, load_model
from aioascend.soak.plan import THREAD_LANES, RoundPlan
from aioascend.testing import Simulator

__all__ = ["Round", "run_on"]

REPORT_TIMEOUT_S = 0.25
DEVICE = 0
UNTOLD = "an operation that nobody awaited has failed"

T = TypeVar("T")
Used = tuple[aa.Stream, Session]

PROFILES = {
    "instant": "",
    "brisk": "launch_overhead_us = 1\n",
    "busy": "launch_overhead_us = 2\ncopy_latency_us = 5\ncopy_engines = 2\ncallback_latency_us = 20\n",
}


def run_on(loop: str, main: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function on an event loop of this kind."""
    if loop == "trio":
        return anyio.run(main, backend="trio")
    return anyio.run(main, backend="asyncio", backend_options={"use_uvloop": loop == "uvloop"})


class Round:
    """A round in the making.

    Attributes:
        heartbeat: Changes as long as something moves.
        limiting: How many lanes have the memory limited.
        limit_undercut: Whether memory may have been found in spite of that, and be in a pool from then on: one of
            several lanes has lifted the limit, or an operation that found none was not waited for.
        loops: Those of asyncio that take part.
        loss_seconds: How long after the loss of the device all lanes had ended.
    """

    def __init__(self, loop: str, plan: RoundPlan, sim: Simulator) -> None:
        self.loop = loop
        self.plan = plan
        self.sim = sim
        self.ledger = Ledger()
        self.injector = Injector(sim)
        self.heartbeat = 0
        self.limiting = 0
        self.limit_undercut = False
        self.loss_seconds = 0.0
        self._lost_at = 0.0
        self._was_reset = False
        self._devices: list[aa.Device] = []
        self._steps = [iter(enumerate(steps)) for steps in plan.lanes]
        self.loops: list[asyncio.AbstractEventLoop] = []
        self._options: dict[str, Any] = {"flight_limit": plan.flight_limit, "report_timeout": REPORT_TIMEOUT_S}

    def lose_device(self) -> None:
        """From here on everything on the device fails."""
        self.ledger.lost = True
        self._lost_at = time.monotonic()
        self.injector.injected["lost device"] += 1
        self.sim.lose_device(DEVICE, LOST_CODE)

    async def reset_device(self) -> None:
        """Bring the lost device back, if that is planned, while others are still busy with what they had there."""
        if not self.plan.resets:
            return
        self.sim.restore_device(DEVICE)
        self.injector.injected["reset"] += 1
        async with anyio.create_task_group() as group:
            for npu in self._devices[: self.plan.resets]:
                group.start_soon(self._reset, npu)
        self._was_reset = True

    async def _reset(self, npu: aa.Device) -> None:
        with contextlib.suppress(aa.RuntimeClosedError):  # the thread may have ended, and closed its device
            await self._ask(npu.reset)

    async def run(self) -> None:
        """Do what is planned, and close everything."""
        self._set_up()
        with self._unraisable_noted(), self._unhandled_noted():
            async with self._open() as npu:
                await self._run_lanes(npu)
                if self._was_reset:  # on with the rest, on streams, models and buffers that are new
                    self.ledger.back = self.ledger.tick()
                    await self._run_lanes(npu)
                elif self.ledger.lost:
                    self.sim.restore_device(DEVICE)

    def _set_up(self) -> None:
        self.sim.reset()
        with tempfile.TemporaryDirectory(prefix="aioascend-soak-") as folder:
            path = Path(folder) / f"{self.plan.profile}.toml"
            text = f'name = "{self.plan.profile}"\nevent_limit = 65536\n{PROFILES[self.plan.profile]}'
            path.write_text(text, encoding="utf-8")
            self.sim.set_profile(path)
        self.injector.set_delivery(self.plan.lazy)
        self.sim.shuffle_reports(self.plan.shuffled)

    async def _run_lanes(self, npu: aa.Device) -> None:
        indices = range(len(self.plan.lanes) - THREAD_LANES)
        streams = [await self._ask(npu.create_stream) for _ in indices]
        used = [(stream, self.ledger.open(stream)) for stream in streams]
        shared = await self._ask(lambda: load_model(npu, self.ledger))
        patterns = await self._patterns(npu)
        lanes = [
            await self._lane(npu, index, (used[index], used[(index + 1) % len(used)]), patterns, shared)
            for index in indices
        ]
        self._devices = [npu]
        ready = threading.Event()
        thread = threading.Thread(target=self._run_thread, args=(used[0], ready), name="aioascend-soak")
        thread.start()
        await anyio.to_thread.run_sync(ready.wait)
        try:
            async with anyio.create_task_group() as group:
                for lane in lanes:
                    group.start_soon(lane.run, self._steps[lane.index])
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(thread.join)
        if self.ledger.gone:
            self.loss_seconds = time.monotonic() - self._lost_at
        async with anyio.create_task_group() as group:
            for stream in streams:
                group.start_soon(stream.close)

    def _run_thread(self, shared: Used, ready: threading.Event) -> None:
        """A thread with a loop of its own; it opens the device for itself and shares a stream with the others."""

        async def work(npu: aa.Device) -> None:
            stream = await self._ask(npu.create_stream)
            own = (stream, self.ledger.open(stream))
            patterns = await self._patterns(npu)
            indices = range(len(self.plan.lanes) - THREAD_LANES, len(self.plan.lanes))
            lanes = [await self._lane(npu, index, (own, shared), patterns, None) for index in indices]
            self._devices.append(npu)
            ready.set()
            async with anyio.create_task_group() as group:
                for lane in lanes:
                    group.start_soon(lane.run, self._steps[lane.index])

        async def main() -> None:
            with self._unhandled_noted():
                async with await self._ask(self._open) as npu:
                    await work(npu)

        try:
            run_on(self.loop, main)
        except Exception:
            self.ledger.problem(f"the thread ended by an exception\n{traceback.format_exc()}")
        finally:
            ready.set()

    async def _lane(
        self,
        npu: aa.Device,
        index: int,
        streams: tuple[Used, Used],
        patterns: PinnedBuffer,
        shared: SharedModel | None,
    ) -> Lane:
        lane = Lane(self, npu, self.ledger.place(), index, patterns, shared)
        lane.homes = (await self._home(lane, *streams[0]), await self._home(lane, *streams[1]))
        return lane

    async def _home(self, lane: Lane, stream: aa.Stream, session: Session) -> Home:
        model = await self._ask(lambda: load_model(lane.npu, self.ledger))
        pinned = await self._ask(lambda: lane.npu.pinned(BUFFER_BYTES, "uint8"))
        return Home(lane, stream, session, model, pinned)

    async def _patterns(self, npu: aa.Device) -> PinnedBuffer:
        pinned = await self._ask(lambda: npu.pinned((PATTERNS, BUFFER_BYTES), "uint8"))
        for row in range(PATTERNS):
            pinned.array[row] = np.frombuffer(contents.pattern(row), np.uint8)
        return pinned

    def _open(self) -> DeviceContext:
        return aa.open_device(DEVICE, backend="sim", **self._options)

    async def _ask(self, make: Callable[[], Awaitable[T]]) -> T:
        """Ask for something as often as need be: calls may still be due to fail, of what was done before a reset."""
        place = self.ledger.place()
        while True:
            before = self.ledger.now(place)
            try:
                return await make()
            except aa.AclError as error:
                self.ledger.refuse(place, "something to begin with", error, before)
                if is_loss(error):
                    raise

    @contextlib.contextmanager
    def _unhandled_noted(self) -> Iterator[None]:
        """What the exception handler of the running loop is given."""
        if self.loop == "trio":
            yield
            return
        loop = asyncio.get_running_loop()
        self.loops.append(loop)
        loop.set_exception_handler(lambda _, context: self.handled(context["message"], context.get("exception")))
        try:
            yield
        finally:
            loop.set_exception_handler(None)

    @contextlib.contextmanager
    def _unraisable_noted(self) -> Iterator[None]:
        """Where no asyncio loop runs, failures are told to sys.unraisablehook."""
        before = sys.unraisablehook
        sys.unraisablehook = lambda given: self.handled(given.err_msg or str(given.object), given.exc_value)
        try:
            yield
        finally:
            sys.unraisablehook = before

    def handled(self, message: str, error: BaseException | None) -> None:
        """An exception handler was called."""
        if message != UNTOLD or not isinstance(error, aa.AclError):
            self.ledger.problem(f"an exception handler was called: {message}: {error!r}")
            return
        place = self.ledger.places.get(threading.get_ident())
        now = self.ledger.tick()
        self.ledger.tell(error, place.last if place else 0, now, handler=True)
