# SPDX-License-Identifier: Apache-2.0
"""Random programs: what can be done with streams, operations and events, in any order, while things go wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, multiple, precondition, rule

import aioascend as aa
from properties.reference import Reference
from properties.world import PINNED, UNWRITTEN, Handle, Place, World

CODES = [507011, 507015, 507018, 507899]
KINDS = ["memset", "memcpy_h2d", "memcpy_d2h", "memcpy_d2d"]

places = st.tuples(st.integers(0, 2), st.integers(0, 31), st.integers(1, 32))

# Of a step that was not taken: whether it is may depend on what has come to be known by then.
NOTHING = Handle(None, None)


class Machine(RuleBasedStateMachine):
    streams = Bundle("streams")
    operations = Bundle("operations")
    events = Bundle("events")

    reference_type: type[Reference] = Reference
    profile: Path | None = None  # of the simulated device; None: nothing takes time

    def __init__(self) -> None:
        super().__init__()
        self.reference = self.reference_type()
        self.world = World(self.reference, self.profile)
        self.sim = self.world.sim
        self.faults = 0
        self.report_lost = False

    def teardown(self) -> None:
        self.world.close()

    # --- streams ---

    @initialize(target=streams, delivery=st.sampled_from(["eager", "lazy"]), count=st.integers(1, 3))
    def begin(self, delivery: Any, count: int) -> Any:
        self.sim.set_exception_delivery(delivery)
        self.lazy = delivery == "lazy"
        return multiple(*(self.world.create_stream() for _ in range(count)))

    @precondition(lambda self: len(self.world.streams) < 4)
    @rule(target=streams)
    def create(self) -> Any:
        return self.world.create_stream()

    @rule(stream=consumes(streams))
    def close(self, stream: Handle) -> None:
        for other in self.world.streams:
            self.world.release(other)
        self.world.close_stream(stream)

    @rule(stream=streams)
    def hold(self, stream: Handle) -> None:
        self.world.hold(stream)

    @rule(stream=streams)
    def release(self, stream: Handle) -> None:
        self.world.release(stream)

    # --- submitting ---

    @rule(target=operations, stream=streams, place=places, value=st.integers(0, 255))
    def memset(self, stream: Handle, place: Place, value: int) -> Any:
        part, view = self.world.part(place, on_device=True)
        if not self.world.in_order(stream, [part]):
            return NOTHING
        return self.world.submit(stream, "memset", lambda: stream.real.memset(view, value), dst=part, src=value)

    @rule(target=operations, stream=streams, place=places, seed=st.integers(0, 2**16))
    def copy_in(self, stream: Handle, place: Place, seed: int) -> Any:
        part, view = self.world.part(place, on_device=True)
        if not self.world.in_order(stream, [part]):
            return NOTHING
        source = np.random.default_rng(seed).integers(0, 256, part.end - part.begin, "uint8")
        return self.world.submit(stream, "memcpy_h2d", lambda: stream.real.memcpy(view, source), dst=part, src=source)

    @rule(target=operations, stream=streams, place=places)
    def copy_out(self, stream: Handle, place: Place) -> Any:
        part, view = self.world.part(place, on_device=True)
        if not self.world.in_order(stream, [part]):
            return NOTHING
        target = np.full(part.end - part.begin, UNWRITTEN, "uint8")
        return self.world.submit(stream, "memcpy_d2h", lambda: stream.real.memcpy(target, view), target, src=part)

    @rule(target=operations, stream=streams, places=st.tuples(places, places))
    def copy_between(self, stream: Handle, places: tuple[Place, Place]) -> Any:
        (to, at, length), (source, source_at, _) = places
        if to == source:
            to = (source + 1) % 3
        dst, dst_view = self.world.part((to, at, length))
        src, src_view = self.world.part((source, source_at, length))
        length = min(dst.end - dst.begin, src.end - src.begin)
        dst.end, src.end = dst.begin + length, src.begin + length
        if not self.world.in_order(stream, [dst, src]):
            return NOTHING
        kind = "memcpy_d2h" if to == PINNED else "memcpy_h2d" if source == PINNED else "memcpy_d2d"
        return self.world.submit(
            stream, kind, lambda: stream.real.memcpy(dst_view[:length], src_view[:length]), dst=dst, src=src
        )

    @rule(target=events, stream=streams)
    def record(self, stream: Handle) -> Any:
        return self.world.record(stream)

    @rule(target=events, stream=streams, event=consumes(events))
    def record_again(self, stream: Handle, event: Handle) -> Any:
        return self.world.record(stream, event.real)

    @rule(target=operations, stream=streams, event=events)
    def wait(self, stream: Handle, event: Handle) -> Any:
        return self.world.wait(stream, event) or NOTHING

    @rule(target=operations, source=streams, stream=streams)
    def hand_over(self, source: Handle, stream: Handle) -> Any:
        return self.world.wait(stream, self.world.record(source)) or NOTHING

    # --- awaiting and cancelling ---

    @rule(operation=operations)
    def await_one(self, operation: Handle) -> None:
        if operation is not NOTHING and self.world.can_be_awaited(operation):
            [error] = self.world.outcomes(lambda: [operation.real])
            self.world.check(operation, error)

    @rule(chosen=st.lists(operations, max_size=4))
    def await_several(self, chosen: list[Handle]) -> None:
        ready = [each for each in dict.fromkeys(chosen) if each is not NOTHING and self.world.can_be_awaited(each)]
        errors = self.world.outcomes(lambda: [operation.real for operation in ready])
        for operation, error in zip(ready, errors, strict=True):
            self.world.check(operation, error)

    @rule(event=events)
    def await_event(self, event: Handle) -> None:
        self.reference.advance()
        if not event.mirror.stream.pending:
            [error] = self.world.outcomes(lambda: [event.real])
            self.world.check_outcome(event.mirror, error)
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
            [error] = self.world.outcomes(lambda: [stream.real.join()])
            if error is not None or issued[-1].outcome == "ok":  # it says nothing of one that was cancelled
                self.world.check_outcome(issued[-1], error)
            self.reference.see(issued[-1])

    @rule(operation=operations)
    def cancel(self, operation: Handle) -> None:
        if operation is not NOTHING:
            done = operation.real.done()
            cancelled, _ = self.world.call(operation.real.cancel)
            assert cancelled is not done
            operation.cancelled = operation.cancelled or not done

    @rule(operation=operations)
    def await_with_no_time(self, operation: Handle) -> None:
        if operation is NOTHING or operation.real.done():
            return
        [error] = self.world.outcomes(lambda: [asyncio.wait_for(operation.real, 0)])
        operation.cancelled = operation.real.cancelled()
        if operation.cancelled:
            assert isinstance(error, (TimeoutError, asyncio.TimeoutError)), repr(error)
        else:  # it was done in time
            self.reference.advance()
            self.world.check(operation, error)

    # --- what goes wrong ---

    @rule(stream=streams, kind=st.sampled_from(KINDS), nth=st.integers(1, 3))
    def arm_fault(self, stream: Handle, kind: str, nth: int) -> None:
        # Of two failures that the library tells late, nobody knows which one was the first.
        if self.lazy and any(other.fault or self.reference.untold_on(other) for other in self.reference.streams):
            return
        # Tasks of a held stream have not started, those of another one are over: either way it is known which is next.
        if stream.mirror.fault is None and (stream.mirror.held or self.world.quiet(stream)):
            stream.mirror.fault = [kind, nth]
            self.faults += 1
            self.sim.fail_task(nth, CODES[self.faults % len(CODES)], stream=stream.real, kind=kind)

    @rule(target=operations, stream=streams, place=places)
    def fail(self, stream: Handle, place: Place) -> Any:
        self.arm_fault(stream, "memset", 1)
        return self.memset(stream, place, 1)

    @rule(stream=streams, seldom=st.integers(0, 9))  # it takes its time
    def lose_report(self, stream: Handle, seldom: int) -> None:
        if seldom != 9 or self.report_lost or not self.undisturbed(stream):
            return
        self.report_lost = True
        self.sim.drop_callback(stream=stream.real)
        nothing = self.world.buffers[0][:0]
        for _ in range(20):  # one that was retired before it was awaited needs no report, so none is lost
            operation = self.world.submit(stream, "memset", lambda: stream.real.memset(nothing, 0))
            [error] = self.world.outcomes(lambda operation=operation: [operation.real])  # type: ignore[misc]
            self.reference.advance()
            if isinstance(error, aa.ReportLostError):
                operation.mirror.outcome = "lost"
                return
            assert error is None, repr(error)
        raise AssertionError("no report was lost")

    @rule(stream=streams, code=st.sampled_from([207001, 507899]))
    def refuse_launch(self, stream: Handle, code: int) -> None:
        if self.undisturbed(stream):
            self.sim.fail_call("aclrtMemsetAsync", code=code)
            try:
                self.world.call(lambda: stream.real.memset(self.world.buffers[0], 0))
            except aa.AclError as error:
                assert error.code == code  # noqa: PT017
            else:
                raise AssertionError("a refused launch did not raise")

    def undisturbed(self, stream: Handle) -> bool:
        return self.world.quiet(stream) and not stream.mirror.fault and not self.reference.untold_on(stream.mirror)
