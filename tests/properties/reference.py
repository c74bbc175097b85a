# SPDX-License-Identifier: Apache-2.0
"""Streams, events, failures and memory as the documentation has them, a task after the other, without any device.

It knows what an operation must come to and what a buffer must contain. Where the documentation leaves it open, as with
what ran behind a failure, a byte is UNKNOWN.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

UNKNOWN = -1

Outcome = Literal["pending", "ok", "failed", "dependent", "lost"]


@dataclass(eq=False, repr=False)
class Memory:
    """Device or pinned memory, and who has touched it last on each stream."""

    bytes: np.ndarray[Any, Any]
    touched: dict[Stream, int] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Part:
    memory: Memory
    begin: int
    end: int

    @property
    def bytes(self) -> np.ndarray[Any, Any]:
        return self.memory.bytes[self.begin : self.end]


@dataclass(eq=False, repr=False)
class Failure:
    operation: Operation
    told_at: dict[Stream, int] | None = None  # the last operation of each stream when somebody was told

    def reaches_on(self, stream: Stream, seq: int) -> bool:
        return self.told_at is None or seq <= self.told_at.get(stream, 0)


@dataclass(eq=False, repr=False)
class Operation:
    stream: Stream
    seq: int
    kind: str  # as the simulator calls its task
    name: str  # as errors call it
    on_host: bool = False  # refused because of a failure that was known: the device has never seen it
    dst: Part | None = None
    src: Part | np.ndarray[Any, Any] | int = 0
    record: Operation | None = None  # of a wait
    order: dict[Stream, int] = field(default_factory=dict)  # what is behind it on each stream
    outcome: Outcome = "pending"
    failure: Failure | None = None  # its own
    reached_by: set[Failure] = field(default_factory=set)  # once it has an outcome
    result: np.ndarray[Any, Any] | None = None  # of a copy to the host: what it has read


@dataclass(eq=False, repr=False)
class Stream:
    operations: list[Operation] = field(default_factory=list)
    pending: deque[Operation] = field(default_factory=deque)
    failures: list[Failure] = field(default_factory=list)
    order: dict[Stream, int] = field(default_factory=dict)
    fault: list[Any] | None = None  # [kind, how many of that kind until it strikes]
    held: bool = False
    done: int = 0  # the host knows that the device is past this one


class Reference:
    def __init__(self) -> None:
        self.streams: list[Stream] = []

    # --- what is done ---

    def submit(self, stream: Stream, kind: str, name: str, **facts: Any) -> Operation:
        operation = Operation(stream, len(stream.operations) + 1, kind, name, **facts)
        if operation.on_host:
            operation.record = None  # a wait that was refused holds up nothing
        if operation.record is not None:
            for other, seq in operation.record.order.items():
                stream.order[other] = max(stream.order.get(other, 0), seq)
        stream.order[stream] = operation.seq
        operation.order = dict(stream.order)
        stream.operations.append(operation)
        if operation.on_host:
            self._run(operation)
        else:
            stream.pending.append(operation)
        for part in (operation.dst, operation.src):
            if isinstance(part, Part):
                part.memory.touched[stream] = operation.seq
        return operation

    def tell(self, failure: Failure) -> None:
        if failure.told_at is None:
            failure.told_at = {stream: len(stream.operations) for stream in self.streams}

    def see(self, operation: Operation) -> None:
        """The host has been resumed by it, so what was ordered before it is over."""
        if not operation.on_host:
            for stream, seq in operation.order.items():
                stream.done = max(stream.done, seq)

    # --- what the device does ---

    def advance(self) -> None:
        """Every stream runs as far as it can."""
        moved = True
        while moved:
            moved = False
            for stream in self.streams:
                while stream.pending and not stream.held and not self._waits(stream.pending[0]):
                    self._run(stream.pending.popleft())
                    moved = True

    def pass_waits(self, last: Operation) -> None:
        """To wait for an event that has happened is no task, so it may be over although the stream is held."""
        pending = last.stream.pending
        while last.outcome == "pending":
            assert pending[0].record is not None, f"{last.name} is done, but {pending[0].name} is held"
            assert not self._waits(pending[0])
            self._run(pending.popleft())

    def _waits(self, operation: Operation) -> bool:
        return operation.record is not None and operation.record.outcome == "pending"

    def _run(self, operation: Operation) -> None:
        struck = not operation.on_host and self._strikes(operation)
        operation.reached_by = self.reaching(operation)
        if operation.reached_by:
            operation.outcome = "dependent"
            if operation.dst is not None and not operation.on_host:
                operation.dst.bytes[:] = UNKNOWN
        elif struck:
            operation.outcome = "failed"
            operation.failure = Failure(operation)
            operation.stream.failures.append(operation.failure)
        else:
            operation.outcome = "ok"
            content = operation.src.bytes if isinstance(operation.src, Part) else operation.src
            if operation.dst is not None:
                operation.dst.bytes[:] = content
            elif isinstance(operation.src, Part):
                operation.result = operation.src.bytes.copy()

    def _strikes(self, operation: Operation) -> bool:
        fault = operation.stream.fault
        if fault is None or fault[0] != operation.kind:
            return False
        fault[1] -= 1
        if fault[1] == 0:
            operation.stream.fault = None
        return bool(fault[1] == 0)

    # --- what follows ---

    def reaching(self, operation: Operation) -> set[Failure]:
        """The failures that it runs behind, and of which nobody had been told when it was submitted."""
        if operation.outcome != "pending":
            return operation.reached_by
        found = self.failed_before(operation) | self.failed_elsewhere(operation)
        return {failure for failure in found if failure.reaches_on(operation.stream, operation.seq)}

    def failed_before(self, operation: Operation) -> set[Failure]:
        return {failure for failure in operation.stream.failures if failure.operation.seq < operation.seq}

    def failed_elsewhere(self, operation: Operation) -> set[Failure]:
        """On streams that it, or what is in front of it, has waited for."""
        found: set[Failure] = set()
        for wait in operation.stream.operations[: operation.seq]:
            if wait.record is not None:
                found |= self.reaching(wait.record)
        return found

    def untold_on(self, stream: Stream) -> set[Failure]:
        """What goes to the exception handler when the stream is closed."""
        found = set(stream.failures)
        for operation in stream.operations:
            found |= self.reaching(operation)
        return {failure for failure in found if failure.told_at is None}

    def unordered(self, stream: Stream, parts: list[Part]) -> set[Stream]:
        """The streams that may use these at the same time."""
        return {
            other
            for part in parts
            for other, seq in part.memory.touched.items()
            if other is not stream and stream.order.get(other, 0) < seq and other.done < seq
        }
