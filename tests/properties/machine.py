# SPDX-License-Identifier: Apache-2.0
"""Random programs on random streams, each step beside the reference: what differs is a bug of one of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    precondition,
    rule,
)
from properties.reference import UNKNOWN, Failure, Memory, Operation, Part, Reference, Stream

import aioascend as aa
from aioascend import _native
from aioascend.testing import simulator

SIZES = [64, 96, 300 << 10]  # the last one is staged by the worker
CODES = [507011, 507015, 507018, 507899]
KINDS = ["memset", "memcpy_h2d", "memcpy_d2h", "memcpy_d2d"]
UNWRITTEN = 0x5A
LONG_ENOUGH = 2.0
LIVE = ("streams", "events", "device_blocks", "host_blocks", "tasks")

places = st.tuples(st.integers(0, 2), st.integers(0, 31), st.integers(1, 32))  # which memory, offset, length
seeds = st.integers(0, 2**16)


class Handle:
    """A stream, an operation or an event, and what stands for it in the reference."""

    def __init__(self, real: Any, mirror: Any, target: np.ndarray[Any, Any] | None = None) -> None:
        self.real = real
        self.mirror = mirror
        self.target = target  # of a copy to the host
        self.cancelled = False


NOTHING = Handle(None, None)  # of a step that was not taken. Whether it is may depend on what has come to be known by then


class Machine(RuleBasedStateMachine):
    streams = Bundle("streams")
    operations = Bundle("operations")
    events = Bundle("events")

    reference_type: type[Reference] = Reference
    profile: Path | None = None  # of the simulated device; None: nothing takes time

    def __init__(self) -> None:
        super().__init__()
        self.sim = simulator("sim")
        self.sim.reset()
        self.sim.strict()
        if self.profile is not None:
            self.sim.set_profile(self.profile)
        self.before = {what: self.sim.live(what) for what in LIVE}
        self.loop = asyncio.new_event_loop()
        self.reported: list[BaseException] = []
        self.loop.set_exception_handler(lambda loop, context: self.reported.append(context.get("exception") or AssertionError(context["message"])))
        self.reference = self.reference_type()
        self.open_streams: list[Handle] = []
        self.codes = 0
        self.dropped = False
        self.npu = self.run(self._open())

    async def _open(self) -> aa.Device:
        # Few operations in flight, so that the host-side queue has its share.
        npu = await aa.open_device(0, backend="sim", flight_limit=6, report_timeout=0.05)
        self.memories = [Memory(np.full(size, UNKNOWN, "int16")) for size in SIZES]
        self.buffers = [npu.empty(SIZES[0], "uint8"), await npu.pinned(SIZES[1], "uint8"), npu.empty(SIZES[2], "uint8")]
        for buffer in self.buffers:
            assert buffer.address  # it is there, so that only what is meant to be waits on the host
        return npu

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

    # --- streams ---

    @initialize(target=streams, delivery=st.sampled_from(["eager", "lazy"]), count=st.integers(1, 3))
    def begin(self, delivery: Any, count: int) -> Any:
        self.sim.set_exception_delivery(delivery)
        return multiple(*(self.new_stream() for _ in range(count)))

    @precondition(lambda self: len(self.open_streams) < 4)
    @rule(target=streams)
    def create(self) -> Any:
        return self.new_stream()

    def new_stream(self) -> Handle:
        mirror = Stream()
        self.reference.streams.append(mirror)
        stream = Handle(self.run(self._create()), mirror)
        self.open_streams.append(stream)
        return stream

    async def _create(self) -> aa.Stream:
        return await self.npu.create_stream()

    @rule(stream=streams)
    def hold(self, stream: Handle) -> None:
        if self.quiet(stream):
            stream.mirror.held = True
            self.sim.hold(stream.real)

    @rule(stream=streams)
    def release(self, stream: Handle) -> None:
        if stream.mirror.held:
            stream.mirror.held = False
            self.sim.release(stream.real)
            self.reference.advance()

    @rule(stream=streams, kind=st.sampled_from(KINDS), nth=st.integers(1, 3))
    def arm_fault(self, stream: Handle, kind: str, nth: int) -> None:
        # Tasks of a held stream have not started, those of another one are over: either way it is known which is next.
        if stream.mirror.fault is None and (stream.mirror.held or self.quiet(stream)):
            stream.mirror.fault = [kind, nth]
            self.codes += 1
            self.sim.fail_task(nth, CODES[self.codes % len(CODES)], stream=stream.real, kind=kind)

    @rule(target=operations, stream=streams, place=places)
    def fail(self, stream: Handle, place: Any) -> Any:
        self.arm_fault(stream, "memset", 1)
        return self.memset(stream, place, 1)

    def quiet(self, stream: Handle) -> bool:
        """Whether the device is past everything in the stream; waits for that without being told of failures."""
        self.reference.advance()
        if stream.mirror.pending or stream.mirror.held:
            return False
        self.run(self._drain(stream))
        stream.mirror.done = len(stream.mirror.operations)
        return True

    async def _drain(self, stream: Handle) -> None:
        await stream.real._drained()

    @rule(stream=consumes(streams))
    def close(self, stream: Handle) -> None:
        self.release_all()
        self.close_stream(stream)

    def close_stream(self, stream: Handle) -> None:
        self.reference.advance()
        assert not stream.mirror.pending
        self.open_streams.remove(stream)
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

    def release_all(self) -> None:
        for stream in self.open_streams:
            self.release(stream)

    # --- submitting ---

    @rule(target=operations, stream=streams, place=places, value=st.integers(0, 255))
    def memset(self, stream: Handle, place: Any, value: int) -> Any:
        part, view = self.part(place, on_device=True)
        if not self.in_order(stream, [part]):
            return NOTHING
        return self.submit(stream, "memset", lambda: stream.real.memset(view, value), dst=part, src=value)

    @rule(target=operations, stream=streams, place=places, seed=seeds)
    def copy_in(self, stream: Handle, place: Any, seed: int) -> Any:
        part, view = self.part(place, on_device=True)
        if not self.in_order(stream, [part]):
            return NOTHING
        source = np.random.default_rng(seed).integers(0, 256, part.end - part.begin, "uint8")
        return self.submit(stream, "memcpy_h2d", lambda: stream.real.memcpy(view, source), dst=part, src=source)

    @rule(target=operations, stream=streams, place=places)
    def copy_out(self, stream: Handle, place: Any) -> Any:
        part, view = self.part(place, on_device=True)
        if not self.in_order(stream, [part]):
            return NOTHING
        target = np.full(part.end - part.begin, UNWRITTEN, "uint8")
        return self.submit(stream, "memcpy_d2h", lambda: stream.real.memcpy(target, view), src=part, target=target)

    @rule(target=operations, stream=streams, places=st.tuples(places, places))
    def copy_between(self, stream: Handle, places: Any) -> Any:
        (dst_memory, dst_at, length), (src_memory, src_at, _) = places
        if dst_memory == src_memory:
            dst_memory = (src_memory + 1) % 3
        dst, dst_view = self.part((dst_memory, dst_at, length))
        src, src_view = self.part((src_memory, src_at, length))
        length = min(dst.end - dst.begin, src.end - src.begin)
        dst.end, src.end = dst.begin + length, src.begin + length
        if not self.in_order(stream, [dst, src]):
            return NOTHING
        kind = {1: "memcpy_d2h" if dst_memory == 1 else "memcpy_h2d"}.get(
            1 if 1 in (dst_memory, src_memory) else 0, "memcpy_d2d"
        )
        return self.submit(
            stream, kind, lambda: stream.real.memcpy(dst_view[:length], src_view[:length]), dst=dst, src=src
        )

    def part(self, place: tuple[int, int, int], on_device: bool = False) -> tuple[Part, Any]:
        which, offset, length = place
        if on_device and which == 1:
            which = 0
        if which == 2 and offset % 4 == 0:  # enough of it for the worker
            offset, length = offset, SIZES[2] - offset - length
        return Part(self.memories[which], offset, offset + length), self.buffers[which][offset : offset + length]

    def in_order(self, stream: Handle, parts: list[Part]) -> bool:
        """Waits, on the device, for the other streams that use these."""
        for other in self.reference.unordered(stream.mirror, parts):
            handle = next(handle for handle in self.open_streams if handle.mirror is other)
            if self.wait_for(stream, self.record_on(handle)) is None:
                return False
        return True

    def submit(
        self, stream: Handle, kind: str, submit: Callable[[], Any], target: np.ndarray[Any, Any] | None = None, **facts: Any
    ) -> Handle:
        self.reference.advance()
        operation, shown = self.call(submit)
        mirror = self.reference.submit(stream.mirror, kind, **self.described(shown), **facts)
        if mirror.on_host:
            assert self.reference.reaching(mirror), f"refused for no failure: {operation}"
        return Handle(operation, mirror, target)

    def described(self, shown: str) -> dict[str, Any]:
        name = re.match(r"<Operation (\w+ #\d+ of stream \d+) pending|<Event of (\w+ #\d+ of stream \d+)>", shown)
        return {"name": (name[1] or name[2]) if name else "", "on_host": name is None}

    @rule(target=events, stream=streams)
    def record(self, stream: Handle) -> Any:
        return self.record_on(stream)

    @rule(target=events, stream=streams, event=consumes(events))
    def record_again(self, stream: Handle, event: Handle) -> Any:
        return self.record_on(stream, event.real)

    def record_on(self, stream: Handle, event: Any = None) -> Handle:
        self.reference.advance()
        event, shown = self.call(lambda: stream.real.record(event))
        return Handle(event, self.reference.submit(stream.mirror, "event_record", **self.described(shown)))

    @rule(target=operations, source=streams, stream=streams)
    def hand_over(self, source: Handle, stream: Handle) -> Any:
        return self.wait_for(stream, self.record_on(source)) or NOTHING

    @rule(target=operations, stream=streams, event=events)
    def wait(self, stream: Handle, event: Handle) -> Any:
        return self.wait_for(stream, event) or NOTHING

    def wait_for(self, stream: Handle, event: Handle) -> Handle | None:
        self.reference.advance()
        record = event.mirror
        reached = self.reference.reaching(record)
        try:
            operation, shown = self.call(lambda: stream.real.wait(event.real))
        except aa.DependencyError as error:
            self.reference.tell(self.identify(error.__cause__, reached))
            return None
        told = [failure for failure in reached if failure.told_at is not None]
        assert not told, f"waits for an event behind {told[0].operation.name}, of which it is known that it failed"
        mirror = self.reference.submit(stream.mirror, "event_wait", **self.described(shown), record=record)
        if mirror.on_host:
            assert self.reference.reaching(mirror)
        return Handle(operation, mirror)

    # --- what comes of it ---

    @rule(operation=operations)
    def await_one(self, operation: Handle) -> None:
        if self.can_be_awaited(operation):
            [error] = self.run(self._gather([operation.real]))
            self.check(operation, error)

    @rule(stream=streams, more=st.lists(operations, max_size=4))
    def await_several(self, stream: Handle, more: list[Handle]) -> None:
        chosen = [operation for operation in dict.fromkeys(more) if self.can_be_awaited(operation)]
        errors = self.run(self._gather([operation.real for operation in chosen]))
        for operation, error in zip(chosen, errors, strict=True):
            self.check(operation, error)

    async def _gather(self, awaitables: list[Any]) -> list[BaseException | None]:
        return await asyncio.gather(*awaitables, return_exceptions=True)

    def can_be_awaited(self, operation: Handle) -> bool:
        """Whether a report behind everything that is in the stream now would come."""
        if operation is NOTHING:
            return False
        self.reference.advance()
        return bool(operation.real.done()) or not operation.mirror.stream.pending

    def check(self, operation: Handle, error: BaseException | None) -> None:
        mirror = operation.mirror
        if operation.cancelled:
            assert isinstance(error, asyncio.CancelledError), repr(error)
            self.check_unwritten(operation)
            return
        self.check_outcome(mirror, error)
        if mirror.outcome == "ok" and operation.target is not None:
            self.check_bytes(operation.target, mirror.result)
        else:
            self.check_unwritten(operation)
        self.reference.see(mirror)

    def check_outcome(self, mirror: Operation, error: BaseException | None) -> None:
        if mirror.outcome == "ok":
            assert error is None, f"{mirror.name}: {error!r}"
        elif mirror.outcome == "failed":
            assert isinstance(error, aa.AclError), f"{mirror.name}: {error!r}"
            assert not isinstance(error, aa.DependencyError), f"{mirror.name}: {error!r}"
            assert self.identify(error, {mirror.failure}) is mirror.failure
            self.reference.tell(mirror.failure)
        elif mirror.outcome == "lost":
            assert isinstance(error, aa.ReportLostError), f"{mirror.name}: {error!r}"
        else:
            assert mirror.outcome == "dependent"
            assert isinstance(error, aa.DependencyError), f"{mirror.name} ran behind a failure: {error!r}"
            self.reference.tell(self.identify(error.__cause__, self.reference.reaching(mirror)))

    def identify(self, error: BaseException | None, among: set[Any]) -> Failure:
        assert isinstance(error, aa.AclError), repr(error)
        found = [failure for failure in among if failure is not None and failure.operation.name == error.where]
        assert found, f"{error.where} is not what it ran behind: {[failure.operation.name for failure in among]}"
        return min(found, key=lambda failure: failure.told_at is not None)

    def check_bytes(self, got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
        known = expected != UNKNOWN
        np.testing.assert_array_equal(got[known], expected[known])

    def check_unwritten(self, operation: Handle) -> None:
        target = operation.target
        # The worker may have begun to write a large one when it was cancelled.
        if target is not None and not (operation.cancelled and len(target) > 256 << 10):
            assert (target == UNWRITTEN).all(), f"{operation.mirror.name} has written its destination"

    @rule(operation=operations)
    def cancel(self, operation: Handle) -> None:
        if operation is NOTHING:
            return
        done = operation.real.done()
        cancelled, _ = self.call(operation.real.cancel)
        assert cancelled is not done
        operation.cancelled = operation.cancelled or not done

    @rule(operation=operations)
    def await_with_no_time(self, operation: Handle) -> None:
        if operation is not NOTHING and not operation.real.done():
            [error] = self.run(self._gather([asyncio.wait_for(operation.real, 0)]))
            operation.cancelled = operation.real.cancelled()
            if operation.cancelled:
                assert isinstance(error, (TimeoutError, asyncio.TimeoutError)), repr(error)
            else:  # it was done in time
                self.reference.advance()
                self.check(operation, error)

    @rule(event=events)
    def await_event(self, event: Handle) -> None:
        self.reference.advance()
        if not event.mirror.stream.pending:
            [error] = self.run(self._gather([event.real]))
            self.check_outcome(event.mirror, error)
            self.reference.see(event.mirror)
            assert event.real.done()

    @rule(event=events)
    def event_done(self, event: Handle) -> None:
        self.reference.advance()
        if event.real.done() and not event.mirror.on_host:
            assert event.mirror.outcome != "pending", "an event that is still to be recorded is called done"

    @rule(stream=streams)
    def await_stream(self, stream: Handle) -> None:
        self.reference.advance()
        issued = [operation for operation in stream.mirror.operations if not operation.on_host]
        if not stream.mirror.pending and issued:
            [error] = self.run(self._join(stream))
            if error is not None or issued[-1].outcome == "ok":  # it says nothing of one that was cancelled
                self.check_outcome(issued[-1], error)
            self.reference.see(issued[-1])

    async def _join(self, stream: Handle) -> list[BaseException | None]:
        return await self._gather([stream.real.join()])

    # --- what goes wrong around it ---

    @precondition(lambda self: not self.dropped)
    @rule(stream=streams, seldom=st.integers(0, 9))
    def lose_report(self, stream: Handle, seldom: int) -> None:
        if seldom != 9 or not self.quiet(stream) or self.reference.untold_on(stream.mirror) or stream.mirror.fault:
            return
        self.dropped = True
        self.sim.drop_callback(stream=stream.real)
        for _ in range(20):  # one that was retired before it was awaited needs no report, so none is lost
            operation = self.submit(stream, "memset", lambda: stream.real.memset(self.buffers[0][:0], 0))
            [error] = self.run(self._gather([operation.real]))
            if isinstance(error, aa.ReportLostError):
                self.reference.advance()
                operation.mirror.outcome = "lost"
                break
            assert error is None, repr(error)
        else:
            raise AssertionError("no report was lost")

    @rule(stream=streams, code=st.sampled_from([207001, 507899]))
    def refuse_launch(self, stream: Handle, code: int) -> None:
        if stream.mirror.held or not self.quiet(stream) or self.reference.untold_on(stream.mirror):
            return
        self.sim.fail_call("aclrtMemsetAsync", code=code)
        try:
            self.call(lambda: stream.real.memset(self.buffers[0], 0))
        except aa.AclError as error:
            assert error.code == code  # noqa: PT017
        else:
            raise AssertionError("a refused launch did not raise")

    # --- the end ---

    def teardown(self) -> None:
        try:
            self.release_all()
            self.check_memories()
            for stream in list(self.open_streams):
                self.close_stream(stream)
        finally:
            self.sim.reset()
            self.run(self.npu.close())
            self.loop.close()
        del self.npu, self.buffers, self.open_streams, stream
        _native.forget_closed_loops()
        assert _native.ticket_counts()["live"] == 0

    def check_memories(self) -> None:
        for stream in self.open_streams:
            assert self.quiet(stream)
        reader = self.new_stream()
        for memory, buffer in zip(self.memories, self.buffers, strict=True):
            target = np.zeros(buffer.nbytes, "uint8")
            if isinstance(buffer, aa.PinnedBuffer):
                target = buffer.array.copy()
            else:
                self.run(reader.real.memcpy(target, buffer))
            self.check_bytes(target, memory.bytes)
