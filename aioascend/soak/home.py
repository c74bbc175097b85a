# SPDX-License-Identifier: Apache-2.0
"""A stream as a lane uses it: buffers of the lane's own, what must be in them, and the calls that submit to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np

from aioascend import AclError, DependencyError, Stream
from aioascend._native import DeviceBuffer, Event, Operation, PinnedBuffer
from aioascend.soak import contents
from aioascend.soak.contents import BUFFER_BYTES, LARGE_BYTES, PATTERNS, TAGS, UNTOUCHED, Content
from aioascend.soak.ledger import Link, Read, Session, Submission, seq_of
from aioascend.soak.plan import SLOTS, Act

if TYPE_CHECKING:
    from aioascend.soak.lane import Lane
    from aioascend.soak.models import SharedModel

__all__ = ["Home"]


class Home:
    """One stream of a lane. No two homes share a buffer, so that a buffer's contents follow from the lane's order."""

    def __init__(self, lane: Lane, stream: Stream, session: Session, model: SharedModel, pinned: PinnedBuffer) -> None:
        self.lane = lane
        self.stream = stream
        self.session = session
        self.model = model
        self.buffers = [lane.npu.empty(BUFFER_BYTES, "uint8") for _ in range(SLOTS)]
        self.contents: list[Content | None] = [None] * SLOTS
        self.unresolved: deque[Submission] = deque()
        self._large: tuple[DeviceBuffer, Content | None] | None = None
        self._total = lane.npu.empty(4, "uint8")
        self._total_content: Content | None = None
        self._event: Event | None = None
        self._pinned = pinned
        self._latest_pinned: Submission | None = None

    def act(self, act: Act) -> Submission | None:
        """Do it; None when nothing was submitted."""
        return ACTS[act.what](self, act)

    def submit(
        self, kind: str, nbytes: int, call: Callable[[], Operation | Event], read: Read | None = None
    ) -> Submission | None:
        """Make the call and note what it submitted; None when it raised."""
        ledger, place = self.lane.ledger, self.lane.place
        before = ledger.now(place)
        place.operations += 1
        try:
            made = call()
        except DependencyError as error:  # of a wait for an event behind a failure
            # What was recorded in front of an abort stays discarded, although somebody has been told.
            since = 0 if kind == "event_wait" else before
            ledger.tell(error, before, ledger.now(place), since=since)
            place.note(error)
            return None
        except AclError as error:
            ledger.refuse(place, kind, error, before)
            return None
        submission = Submission(self.session, seq_of(made), kind, nbytes, before, ledger.now(place), made, read)
        self.session.submissions.append(submission)
        self.unresolved.append(submission)
        return submission

    def renew(self, slot: int) -> None:
        """Take another buffer: who still uses the old one cannot be told."""
        self.contents[slot] = None
        self.buffers[slot] = self.lane.npu.empty(BUFFER_BYTES, "uint8")

    def wait_for(self, source: Home, again: bool) -> Submission | None:
        """Let this stream wait for what was submitted to another, by an event that is new or recorded again."""
        event = source._event if again else None
        record = source.submit("event_record", 0, lambda: source.stream.record(event))
        if record is None:
            return None
        source._event = recorded = cast("Event", record.made)
        wait = self.submit("event_wait", 0, lambda: self.stream.wait(recorded))
        if wait is not None:
            self.lane.ledger.links.append(Link(source.session, record, self.session, wait, wait.before))
        return wait

    # --- writing ---

    def _write(self, act: Act) -> Submission | None:
        data = contents.pattern(act.tag)
        return self._write_slot(act, "memcpy_h2d", data, lambda to: self.stream.memcpy(to, data[: to.nbytes]))

    def _pinned_write(self, act: Act) -> Submission | None:
        row = act.tag % PATTERNS
        source = self.lane.patterns[row]
        data = contents.pattern(row)
        return self._write_slot(act, "memcpy_h2d", data, lambda to: self.stream.memcpy(to, source[: to.nbytes]))

    def _fill(self, act: Act) -> Submission | None:
        value = act.tag % 251
        return self._write_slot(act, "memset", contents.fill(value), lambda to: self.stream.memset(to, value))

    def _fresh_buffer(self, act: Act) -> Submission | None:
        self.renew(act.slot)
        return self._write(act)

    def _write_slot(
        self, act: Act, kind: str, data: bytes, call: Callable[[DeviceBuffer], Operation]
    ) -> Submission | None:
        size = TAGS + act.tag
        target = self.buffers[act.slot][:size]
        submission = self.submit(kind, size, lambda: call(target))
        if submission is not None:
            self.contents[act.slot] = Content(data, submission)
        return submission

    def _large_write(self, act: Act) -> Submission | None:
        if self._large is None or act.tag % 8 == 0:
            self._large = (self.lane.npu.empty(LARGE_BYTES, "uint8"), None)
        target, data = self._large[0], contents.large(act.tag)
        submission = self.submit("memcpy_h2d", LARGE_BYTES, lambda: self.stream.memcpy(target, data))
        if submission is not None:
            self._large = (target, Content(data, submission))
        return submission

    # --- on the device ---

    def _copy(self, act: Act) -> Submission | None:
        if act.slot == act.other:
            return self._fill(act)
        size = TAGS + act.tag
        target, source = self.buffers[act.slot][:size], self.buffers[act.other][:size]
        submission = self.submit("memcpy_d2d", size, lambda: self.stream.memcpy(target, source))
        if submission is not None:
            self.contents[act.slot] = copied(self.contents[act.other], submission)
        return submission

    def _run(self, act: Act) -> Submission | None:
        if act.slot == act.other:
            return self._fill(act)
        model = self.lane.shared if self.lane.shared and act.tag % 4 == 0 else self.model
        inputs, outputs = (
            [self.buffers[act.other][:TAGS]],
            [self.buffers[act.slot][:TAGS], self._total.view(1, "int32")],
        )
        model.link(self.session)
        submission = self.submit("execute", 0, lambda: self.stream.execute(model.model, inputs, outputs))
        if submission is not None:
            content = self.contents[act.other]
            self.contents[act.slot] = copied(content, submission)
            self._total_content = content and Content(contents.sum_of(content.data), submission, content)
        return submission

    # --- reading ---

    def _read(self, act: Act) -> Submission | None:
        if act.tag % 16 == 0 and self._total_content is not None:
            return self._read_from(self._total, self._total_content)
        return self._read_from(self.buffers[act.slot][: act.tag + 1], self.contents[act.slot])

    def _large_read(self, act: Act) -> Submission | None:
        return self._large_write(act) if self._large is None else self._read_from(*self._large)

    def _read_from(self, source: DeviceBuffer, content: Content | None) -> Submission | None:
        destination = np.full(source.nbytes, UNTOUCHED, np.uint8)
        read = Read(destination, content, pinned=False)
        return self.submit("memcpy_d2h", source.nbytes, lambda: self.stream.memcpy(destination, source), read)

    def _pinned_read(self, act: Act) -> Submission | None:
        latest = self._latest_pinned
        if latest is not None and latest.read is not None:
            if not latest.made.done():
                return self._read(act)
            latest.read.destination = latest.read.destination.copy()  # as it is, for the audit
        target = self._pinned[: act.tag + 1]
        source = self.buffers[act.slot][: act.tag + 1]
        read = Read(target.array, self.contents[act.slot], pinned=True)
        submission = self.submit("memcpy_d2h", target.nbytes, lambda: self.stream.memcpy(target, source), read)
        self._latest_pinned = submission
        return submission


def copied(content: Content | None, by: Submission, fences: tuple[Submission, ...] = ()) -> Content | None:
    """The same in another buffer."""
    return None if content is None else Content(content.data, by, content, fences)


ACTS: dict[str, Callable[[Home, Act], Submission | None]] = {
    "write": Home._write,
    "pinned write": Home._pinned_write,
    "fill": Home._fill,
    "copy": Home._copy,
    "run": Home._run,
    "read": Home._read,
    "pinned read": Home._pinned_read,
    "large write": Home._large_write,
    "large read": Home._large_read,
    "fresh buffer": Home._fresh_buffer,
}
