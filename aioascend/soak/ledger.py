# SPDX-License-Identifier: Apache-2.0
"""What was submitted in a round, who was told what, and when: what the audit goes by."""

from __future__ import annotations

import itertools
import re
import threading
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from aioascend import AclError, AioascendError, DependencyError, DeviceLostError, ReportLostError, Stream
from aioascend._native import Event, Operation
from aioascend.soak.contents import UNTOUCHED, Content

__all__ = [
    "CANCELLED",
    "NEVER",
    "Abort",
    "Ledger",
    "Link",
    "Place",
    "Read",
    "Refusal",
    "Session",
    "Submission",
    "Telling",
    "is_loss",
    "name_of",
    "original",
    "seq_of",
]


class _Cancelled:
    """The outcome of an await that was cancelled."""

    def __repr__(self) -> str:
        return "cancelled"


CANCELLED = _Cancelled()
NEVER = 1 << 62
"""A tick that does not come."""
Outcome = AclError | _Cancelled | None


@dataclass(eq=False)
class Session:
    """A stream from its creation to its end; the ids of streams are used again.

    Attributes:
        id: What the library calls it.
        opened: The tick when it was there.
        tracked: Whether everything on it is noted here; not so for what a call of a model submits by itself.
    """

    id: int
    opened: int
    tracked: bool
    submissions: list[Submission] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Read:
    """A copy to the host: where to, and what must arrive there.

    Attributes:
        destination: An array; in pinned memory that is used again, what was there in time.
        content: What the source contains; None where nobody can tell.
        pinned: Whether the device writes there itself.
    """

    destination: NDArray[np.uint8]
    content: Content | None
    pinned: bool

    def right(self) -> bool:
        """Whether the content has arrived."""
        return self.content is None or self.destination.tobytes() == self.content.data[: self.destination.nbytes]

    def untouched(self) -> bool:
        """Whether nothing has been written there."""
        return bool((self.destination == UNTOUCHED).all())


@dataclass(slots=True, eq=False)
class Submission:
    """One operation.

    Attributes:
        session: Its stream.
        seq: Its place there; 0 when it failed before it got one.
        kind: Of its task, as the simulator calls it.
        nbytes: What its task copies or sets.
        before: The tick before it was submitted, and
        after: the one behind.
        made: What the submit returned.
        read: For a copy to the host, what must come of it.
        abandoned: Whether it, or a wait for it, was cancelled.
        outcomes: What those who awaited it got.
        known: The tick when somebody had got that; from then on nothing happens to it any more.
    """

    session: Session
    seq: int
    kind: str
    nbytes: int
    before: int
    after: int
    made: Operation | Event
    read: Read | None = None
    abandoned: bool = False
    outcomes: list[Outcome] = field(default_factory=list)
    known: int = NEVER

    def __str__(self) -> str:
        return f"{self.kind} #{self.seq} of stream {self.session.id} ({self.nbytes} bytes)"


@dataclass(slots=True, eq=False)
class Link:
    """A wait: from there on a stream depends on another one.

    Attributes:
        source: The stream that is waited for,
        record: up to this submission, or, where the runtime itself waits, up to any.
        target: The stream that waits,
        wait: from this submission on, or, where the runtime itself waits, from any behind
        tick: this tick.
    """

    source: Session
    record: Submission | None
    target: Session
    wait: Submission | None
    tick: int


@dataclass(slots=True, eq=False)
class Telling:
    """Somebody was told of a failure, after the tick `earliest` and before `latest`.

    Attributes:
        since: What has failed was submitted after this tick.
        handler: It was an exception handler, as nobody else had been told.
    """

    failure: AclError
    earliest: int
    latest: int
    since: int
    handler: bool


@dataclass(slots=True, eq=False)
class Refusal:
    """A call that raised, between two ticks, so that nothing was submitted."""

    what: str
    error: AioascendError | ValueError
    before: int
    after: int


@dataclass(slots=True, eq=False)
class Abort:
    """A stream was aborted, between two ticks; the second one is not known when the wait for it was cancelled."""

    session: Session
    begun: int
    ended: int = NEVER


def name_of(outcome: Outcome) -> str:
    """What an outcome is counted as."""
    return "success" if outcome is None else "cancelled" if outcome is CANCELLED else type(outcome).__name__


class Place:
    """A thread with an event loop, and what is counted there. It does nothing between two of its ticks."""

    def __init__(self) -> None:
        self.last = 0
        self.operations = 0
        self.waiting = 0
        self.outcomes: Counter[str] = Counter()
        self.cancelled: Counter[str] = Counter()

    def note(self, outcome: Outcome) -> None:
        """Count an outcome."""
        self.outcomes[name_of(outcome)] += 1


class Ledger:
    """Of one round. Filled from several threads, by operations that are atomic in Python.

    Attributes:
        tick: Orders what is done in different threads.
        problems: What was wrong, in sentences.
        lost: Whether the device was lost,
        back: and from which tick on the lanes have it again.
        memory_ran_out: Whether there was none for a while.
    """

    def __init__(self) -> None:
        self.tick = itertools.count(1).__next__
        self.places: dict[int, Place] = {}
        self.sessions: list[Session] = []
        self.links: list[Link] = []
        self.tellings: list[Telling] = []
        self.refusals: list[Refusal] = []
        self.aborts: list[Abort] = []
        self.problems: list[str] = []
        self.lost = False
        self.back = NEVER
        self.memory_ran_out = False

    def place(self) -> Place:
        """That of the calling thread."""
        return self.places.setdefault(threading.get_ident(), Place())

    def open(self, stream: Stream, *, tracked: bool = True) -> Session:
        """Begin to note what is submitted to a stream."""
        session = Session(stream.id, self.tick(), tracked)
        self.sessions.append(session)
        return session

    def now(self, place: Place) -> int:
        """The next tick."""
        place.last = tick = self.tick()
        return tick

    def tell(self, error: AclError, earliest: int, latest: int, *, since: int = 0, handler: bool = False) -> None:
        """An await, a call or a handler got this error; nobody had, before `earliest`, in the same way."""
        if not isinstance(error, ReportLostError):
            self.tellings.append(Telling(original(error), earliest, latest, since, handler))

    def refuse(self, place: Place, what: str, error: AioascendError | ValueError, before: int) -> None:
        """A call that was made after the tick `before` has raised this."""
        self.refusals.append(Refusal(what, error, before, self.now(place)))
        place.outcomes["refused"] += 1

    def abort(self, session: Session) -> Abort:
        """A stream is about to be aborted."""
        abort = Abort(session, self.tick())
        self.aborts.append(abort)
        return abort

    @property
    def gone(self) -> bool:
        """Whether the device is lost, and has not come back."""
        return self.lost and self.back == NEVER

    def problem(self, text: str) -> None:
        """Something is wrong."""
        self.problems.append(text)


def original(error: AclError) -> AclError:
    """The failure that an error comes from."""
    if isinstance(error, DependencyError) and isinstance(error.__cause__, AclError):
        return error.__cause__
    return error


def is_loss(error: AclError) -> bool:
    """Whether the loss of the device is behind it."""
    return isinstance(original(error), DeviceLostError)


def seq_of(made: Operation | Event) -> int:
    """The place of an operation, or of an event's latest record, in its stream; 0 when it has none."""
    found = _SEQ.match(repr(made))
    return int(found[1]) if found else 0


_SEQ = re.compile(r"<(?:Operation|Event of) \w+ #(\d+)")
