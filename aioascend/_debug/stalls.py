# SPDX-License-Identifier: Apache-2.0
"""Says why a stream stands still while somebody awaits it: what it waits for, on which stream, and so on."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from aioascend._debug.settings import settings
from aioascend._debug.stacks import Stack, logger, shown
from aioascend._debug.watchers import Watcher


@dataclass(frozen=True)
class Task:
    """An operation that is not done yet, as a report names it."""

    name: str  # such as "execute #8 (detect.om)"
    stack: Stack | None  # where it was submitted


@dataclass(frozen=True)
class Wait:
    """A wait that the device has, for a record of another stream."""

    seq: int
    source: int  # the key of that stream,
    source_seq: int  # and where in it the record is
    over: bool  # the device is past the record


@dataclass(frozen=True)
class StreamState:
    """A stream at one moment. Positions are numbers of operations, from 1; `tasks` has those not done by position.

    Attributes:
        key: Tells streams apart; ids may be unknown.
        retired: Everything up to here is done.
        issued: Everything up to here was given to the device; what is behind waits on the host.
        wanted: Somebody waits for everything up to here.
        idle: The device has nothing of it left to do.
        held: Why the first operation on the host waits there: "", "full", "launch", "record", "model", "memory" or
            "worker".
        held_for: Its stream and position, when that is a record.
    """

    key: int
    id: int
    foreign: bool
    retired: int
    issued: int
    wanted: int
    idle: bool
    held: str
    held_for: tuple[int, int]
    waits: tuple[Wait, ...] = ()
    tasks: dict[int, Task] = field(default_factory=dict)


States = dict[int, StreamState]


class Device(Protocol):
    def _stream_states(self) -> list[StreamState] | None:
        """Its streams as they are now; None once it is closed."""


def watch_stalls(device: Device) -> None:
    """Watch the streams of a device until it is closed or gone."""
    StallWatcher(device).start()


class StallWatcher(Watcher):
    def __init__(self, device: Device) -> None:
        super().__init__("aioascend-stall-watch")
        self._device = weakref.ref(device)
        self._since: dict[int, tuple[tuple[int, int], float]] = {}  # key -> where it was, and since when
        self._told: dict[int, tuple[int, int]] = {}  # key -> where it was when it was reported

    def run(self) -> None:
        while not self.ending.wait(min(settings.stall / 4, 1.0)):
            device = self._device()
            found = None if device is None else device._stream_states()
            del device
            if found is None:
                return
            states = {state.key: state for state in found}
            for report in self.look(states, time.monotonic()):
                logger.warning("%s", report)

    def look(self, states: States, now: float) -> Iterator[str]:
        """Reports of streams that stand still; one for all that stand still for the same reason."""
        stalled = []
        since, told = self._since, self._told
        self._since, self._told = {}, {}
        for key, state in states.items():
            if state.wanted <= state.retired:
                continue
            place = (state.retired, state.issued)
            before = since.get(key)
            self._since[key] = before if before is not None and before[0] == place else (place, now)
            if told.get(key) == place:
                self._told[key] = place
            elif now - self._since[key][1] >= settings.stall:
                stalled.append(state)
        chains = [(state, list(chain(states, state))) for state in stalled]
        for state, links in chains:
            self._told[state.key] = (state.retired, state.issued)
            behind = any(state.key in [key for key, _ in others[1:]] for _, others in chains)
            if not behind:
                lines = "\n".join(text for _, text in links)
                seconds = now - self._since[state.key][1]
                yield f"{_name(state)} is awaited and has made no progress for {seconds:.3g} s:\n{lines}"


def chain(states: States, state: StreamState) -> Iterator[tuple[int, str]]:
    """Key of a stream and what holds it up, from the one that stands still to the one that is to blame."""
    following: tuple[int, int] | None = (state.key, state.wanted)
    while following is not None:
        key, upto = following
        following = None
        there = states.get(key)
        if there is None:
            yield key, "a stream that is closed"
        elif there.retired < upto:
            text, following = _obstacle(states, there, upto)
            yield key, text
    if state.held in ("memory", "worker") and state.issued == state.retired:
        for there in states.values():  # the device has one worker
            if there.held == "launch":
                held_up = "is being launched, and the worker waits in that call"
                yield there.key, _describe(there, there.issued + 1, held_up)


def _obstacle(states: States, state: StreamState, upto: int) -> tuple[str, tuple[int, int] | None]:
    """What keeps this stream from getting to `upto`, and what that in turn waits for."""
    for wait in state.waits:
        if not wait.over and wait.seq <= upto:
            target = f"waits on the device for {_task(states, wait.source, wait.source_seq)}"
            if wait.seq > state.retired + 1:
                target += f", unless it is {_count(wait.seq - state.retired - 1)} before it that the device is still at"
            return _describe(state, wait.seq, target), (wait.source, wait.source_seq)
    if state.retired < state.issued and not (state.idle and upto > state.issued):
        what = "is done, but its report has not come" if state.idle else "is the first that the device has not reported"
        if state.foreign:
            what += "; what else its owner runs on this stream is not known"
        return _describe(state, state.retired + 1, what), None
    reasons = {
        "full": "waits on the host: the device has as many of this stream as it may",
        "launch": "is being launched: the worker waits in that call, as for room in the queue of the device",
        "model": "waits on the host: a run that learns the sizes of outputs comes before it",
        "memory": "waits on the host: its memory has not been allocated yet",
        "worker": "waits on the host: the worker has not come to it yet",
    }
    if state.held == "record":
        target = f"waits on the host: {_task(states, *state.held_for)} waits on the host itself"
        return _describe(state, state.issued + 1, target), state.held_for
    return _describe(state, state.issued + 1, reasons.get(state.held, "is on its way")), None


def _count(operations: int) -> str:
    return "the operation" if operations == 1 else f"one of the {operations} operations"


def _name(state: StreamState) -> str:
    return f"stream {state.id}" if state.id >= 0 else f"a stream without id ({state.key:#x})"


def _task(states: States, key: int, seq: int) -> str:
    state = states.get(key)
    if state is None:
        return f"record #{seq} of a stream that is closed"
    task = state.tasks.get(seq)
    return f"{task.name if task is not None else f'record #{seq}'} of {_name(state)}"


def _describe(state: StreamState, seq: int, what: str) -> str:
    task = state.tasks.get(seq)
    if task is None:
        return f"{_name(state)}: operation #{seq} {what}"
    submitted = f"; submitted at\n{shown(task.stack)}" if task.stack else ""
    return f"{_name(state)}: {task.name} {what}{submitted}"
