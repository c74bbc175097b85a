# SPDX-License-Identifier: Apache-2.0
"""A device, and what the reference says of it: each step is taken on both, and both have to come to the same."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np

import aioascend as aa
from aioascend import _native
from aioascend.testing import simulator
from properties.reference import UNKNOWN, Failure, Memory, Operation, Part, Reference, Stream

SIZES = [64, 96, 300 << 10]  # of device, pinned and device memory; the last one is staged by the worker
PINNED = 1
UNWRITTEN = 0x5A
LONG_ENOUGH = 20.0  # seconds after which an await is taken to hang

Place = tuple[int, int, int]  # which memory, offset, length


class Handle:
    """A stream, an operation or an event, and what stands for it in the reference."""

    def __init__(self, real: Any, mirror: Any, target: np.ndarray[Any, Any] | None = None) -> None:
        self.real = real
        self.mirror = mirror
        self.target = target  # of a copy to the host
        self.cancelled = False


class World:
    def __init__(self, reference: Reference, profile: Path | None) -> None:
        self.sim = simulator("sim")
        self.sim.reset()
        self.sim.strict()
        if profile is not None:
            self.sim.set_profile(profile)
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._report)
        self.reported: list[BaseException] = []
        self.reference = reference
        self.streams: list[Handle] = []  # those that are open
        self.npu = self.run(self._open())

    async def _open(self) -> aa.Device:
        # Few operations in flight, so that the host-side queue has its share.
        npu = await aa.open_device(0, backend="sim", flight_limit=6, report_timeout=0.3)
        self.memories = [Memory(np.full(size, UNKNOWN, "int16")) for size in SIZES]
        self.buffers = [npu.empty(SIZES[0], "uint8"), await npu.pinned(SIZES[1], "uint8"), npu.empty(SIZES[2], "uint8")]
        for buffer in self.buffers:
            assert buffer.address  # it is there, so that only what is meant to be waits on the host
        return npu

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.reported.append(context.get("exception") or AssertionError(context["message"]))

    def close(self) -> None:
        try:
            for stream in self.streams:
                self.release(stream)
            self.check_memories()
            for stream in list(self.streams):
                self.close_stream(stream)
        finally:
            self.sim.reset()
            self.run(self.npu.close())
            self.loop.close()
        del self.npu, self.buffers
        _native.forget_closed_loops()
        assert _native.ticket_counts()["live"] == 0

    # --- the loop ---

    def run(self, awaitable: Awaitable[Any]) -> Any:
        async def bounded() -> Any:
            task = asyncio.ensure_future(awaitable)
            await asyncio.wait([task], timeout=LONG_ENOUGH)
            assert task.done(), f"never done: {task}"
            return task.result()

        return self.loop.run_until_complete(bounded())

    def call(self, function: Callable[[], Any]) -> tuple[Any, str]:
        """In the loop, as what is submitted belongs to the one that runs. Also how the result looked at that moment."""

        async def calling() -> tuple[Any, str]:
            result = function()
            return result, repr(result)

        result: tuple[Any, str] = self.loop.run_until_complete(calling())
        return result

    def outcomes(self, make: Callable[[], list[Any]]) -> list[Any]:
        """What awaiting several at once comes to."""

        async def gathering() -> list[Any]:
            return await asyncio.gather(*make(), return_exceptions=True)

        outcomes: list[Any] = self.run(gathering())
        return outcomes

    # --- streams ---

    def create_stream(self) -> Handle:
        async def create() -> aa.Stream:
            return await self.npu.create_stream()

        mirror = Stream()
        self.reference.streams.append(mirror)
        stream = Handle(self.run(create()), mirror)
        self.streams.append(stream)
        return stream

    def hold(self, stream: Handle) -> None:
        if self.quiet(stream):
            stream.mirror.held = True
            self.sim.hold(stream.real)

    def release(self, stream: Handle) -> None:
        if stream.mirror.held:
            stream.mirror.held = False
            self.sim.release(stream.real)
            self.reference.advance()

    def quiet(self, stream: Handle) -> bool:
        """Whether the device is past everything in the stream; waits for that without being told of failures."""

        async def drain() -> None:
            await stream.real._drained()

        self.reference.advance()
        if stream.mirror.pending or stream.mirror.held:
            return False
        self.run(drain())
        stream.mirror.done = len(stream.mirror.operations)
        return True

    def close_stream(self, stream: Handle) -> None:
        self.reference.advance()
        assert not stream.mirror.pending
        self.streams.remove(stream)
        self.reported.clear()
        self.run(stream.real.close())
        untold = self.reference.untold_on(stream.mirror)
        told = [self.identify(error, untold) for error in self.reported]
        assert len(set(told)) == len(told), f"reported more than once: {self.reported}"
        own = {failure for failure in untold if failure.operation.stream is stream.mirror}
        assert own <= set(told), "a failure of the stream was not reported when it was closed"
        for failure in told:
            self.reference.tell(failure)
        for operation in stream.mirror.operations:
            reached = self.reference.reaching(operation)
            assert not reached or any(failure.told_at is not None for failure in reached)
        stream.mirror.done = len(stream.mirror.operations)

    # --- submitting ---

    def part(self, place: Place, on_device: bool = False) -> tuple[Part, Any]:
        which, offset, length = place
        if on_device and which == PINNED:
            which = 0
        if which == 2 and offset % 4 == 0:  # enough of it for the worker
            length = SIZES[which] - offset - length
        return Part(self.memories[which], offset, offset + length), self.buffers[which][offset : offset + length]

    def in_order(self, stream: Handle, parts: list[Part]) -> bool:
        """Waits, on the device, for the other streams that use these. False when a failure comes in between."""
        for other in self.reference.unordered(stream.mirror, parts):
            handle = next(handle for handle in self.streams if handle.mirror is other)
            if self.wait(stream, self.record(handle)) is None:
                return False
        return True

    def submit(
        self,
        stream: Handle,
        kind: str,
        submit: Callable[[], Any],
        target: np.ndarray[Any, Any] | None = None,
        **facts: Any,
    ) -> Handle:
        self.reference.advance()
        operation, shown = self.call(submit)
        mirror = self.reference.submit(stream.mirror, kind, **self._described(shown), **facts)
        if mirror.on_host:
            assert self.reference.reaching(mirror), f"refused for no failure: {operation}"
        return Handle(operation, mirror, target)

    def record(self, stream: Handle, event: aa.Event | None = None) -> Handle:
        return self.submit(stream, "event_record", lambda: stream.real.record(event))

    def wait(self, stream: Handle, event: Handle) -> Handle | None:
        """None when it is refused because the event is behind a failure; then somebody has been told of that."""
        self.reference.advance()
        reached = self.reference.reaching(event.mirror)
        try:
            operation = self.submit(stream, "event_wait", lambda: stream.real.wait(event.real), record=event.mirror)
        except aa.DependencyError as error:
            self.reference.tell(self.identify(error.__cause__, reached))
            return None
        told = [failure for failure in reached if failure.told_at is not None]
        assert not told, f"waits for an event behind {told[0].operation.name}, of which it is known that it failed"
        return operation

    def _described(self, shown: str) -> dict[str, Any]:
        name = re.match(r"<Operation (\w+ #\d+ of stream \d+) pending|<Event of (\w+ #\d+ of stream \d+)>", shown)
        return {"name": (name[1] or name[2]) if name else "", "on_host": name is None}

    # --- what comes of it ---

    def can_be_awaited(self, operation: Handle) -> bool:
        """Whether a report behind everything that is in the stream now would come."""
        self.reference.advance()
        done = bool(operation.real.done())
        if done and not operation.cancelled and operation.mirror.outcome == "pending":
            self.reference.pass_waits(operation.mirror)
        return done or not operation.mirror.stream.pending

    def check(self, operation: Handle, error: BaseException | None) -> None:
        mirror = operation.mirror
        if operation.cancelled:
            assert isinstance(error, asyncio.CancelledError), repr(error)
            self._check_unwritten(operation)
            return
        self.check_outcome(mirror, error)
        if mirror.outcome == "ok" and operation.target is not None:
            self._check_bytes(operation.target, mirror.result)
        else:
            self._check_unwritten(operation)
        self.reference.see(mirror)

    def check_outcome(self, mirror: Operation, error: BaseException | None) -> None:
        seen = f"{mirror.name}, {mirror.outcome}: {error!r}"
        if mirror.outcome == "ok":
            assert error is None, seen
        elif mirror.outcome == "failed":
            assert isinstance(error, aa.AclError), seen
            assert not isinstance(error, aa.DependencyError), seen
            assert self.identify(error, {mirror.failure}) is mirror.failure
            self.reference.tell(mirror.failure)
        elif mirror.outcome == "lost":
            assert isinstance(error, aa.ReportLostError), seen
        else:
            assert mirror.outcome == "dependent", seen
            assert isinstance(error, aa.DependencyError), seen
            self.reference.tell(self.identify(error.__cause__, self.reference.reaching(mirror)))

    def identify(self, error: BaseException | None, among: set[Any]) -> Failure:
        assert isinstance(error, aa.AclError), repr(error)
        found: list[Failure] = [failure for failure in among if failure.operation.name == error.where]
        assert found, f"{error.where} is not what it ran behind: {[failure.operation.name for failure in among]}"
        return min(found, key=lambda failure: failure.told_at is not None)

    def check_memories(self) -> None:
        for stream in self.streams:
            assert self.quiet(stream)
        reader = self.create_stream()
        for memory, buffer in zip(self.memories, self.buffers, strict=True):
            target = np.zeros(buffer.nbytes, "uint8")
            if isinstance(buffer, aa.PinnedBuffer):
                target[:] = buffer.array
            else:
                self.run(reader.real.memcpy(target, buffer))
            self._check_bytes(target, memory.bytes)

    def _check_bytes(self, got: np.ndarray[Any, Any], expected: Any) -> None:
        known = expected != UNKNOWN
        np.testing.assert_array_equal(got[known], expected[known])

    def _check_unwritten(self, operation: Handle) -> None:
        target = operation.target
        # The worker may have begun to write a large one when it was cancelled.
        if target is not None and not (operation.cancelled and len(target) > 256 << 10):
            assert (target == UNWRITTEN).all(), f"{operation.mirror.name} has written its destination"
