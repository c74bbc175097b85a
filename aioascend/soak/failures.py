# SPDX-License-Identifier: Apache-2.0
"""The failures of a round: where each began, what it reaches, and when somebody was told of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from aioascend import AclError
from aioascend._native import Operation
from aioascend.soak.aborts import Aborts, is_abort
from aioascend.soak.ledger import NEVER, Ledger, Link, Session, Submission, is_loss, original

__all__ = ["Failure", "Failures"]

_WHERE = re.compile(r"(\w+) #(\d+) of stream (\d+)")


class Failure:
    """One failure. Those who were told of it have exceptions that say the same; they need not be one object.

    Attributes:
        error: One of the exceptions.
        seq: Of the operation that failed, in its stream; None where that is not known.
        session: That stream; None when it is none that the ledger knows.
        begun: The tick before that operation was submitted, where that is known.
        earliest: Nobody was told before this tick,
        latest: somebody was before this one.
        told_by_await: How often somebody was told,
        told_by_handler: and how often an exception handler was called.
    """

    def __init__(self, error: AclError, seq: int | None, session: Session | None) -> None:
        self.error = error
        self.seq = seq
        self.session = session
        self.begun = 0
        self.earliest = self.latest = NEVER
        self.told_by_await = self.told_by_handler = 0
        # Streams that it reaches: everything behind this place, for all that is known and for sure.
        self.possible: dict[Session, int] = {}
        self.certain: dict[Session, int] = {}
        self.possible_from_tick: dict[Session, int] = {}

    def __str__(self) -> str:
        return f"{self.error} (told between ticks {self.earliest} and {self.latest})"

    def may_reach(self, submission: Submission) -> bool:
        """Whether an operation may have run behind it."""
        session = submission.session
        behind = submission.seq == 0 or submission.seq > self.possible.get(session, NEVER)
        if session not in self.possible or not behind:
            behind = submission.after > self.possible_from_tick.get(session, NEVER)
        return behind and submission.before < self.latest

    def must_reach(self, submission: Submission) -> bool:
        """Whether an operation is behind it for sure, and was submitted before anybody was told."""
        behind = submission.seq > self.certain.get(submission.session, NEVER)
        return behind and submission.after < self.earliest


class Failures:
    """All failures of a round that have a place in a stream, which the loss of the device and aborts have not."""

    def __init__(self, ledger: Ledger, aborts: Aborts) -> None:
        self._ledger = ledger
        self._aborts = aborts
        self._all: dict[tuple[str, int, Session | None], Failure] = {}
        self._by_session: dict[Session, list[Failure]] = defaultdict(list)
        self._sessions: dict[int, list[Session]] = defaultdict(list)
        self._places: dict[tuple[Session, int | None], Submission] = {}
        for session in ledger.sessions:
            self._sessions[session.id].append(session)
            self._places.update(((session, submission.seq), submission) for submission in session.submissions)
        for telling in ledger.tellings:
            if is_loss(telling.failure) or is_abort(telling.failure):
                continue
            failure = self.of(telling.failure, telling.latest)
            failure.earliest = min(failure.earliest, telling.earliest)
            failure.latest = min(failure.latest, telling.latest)
            failure.told_by_handler += telling.handler
            failure.told_by_await += not telling.handler

    def of(self, error: AclError, tick: int) -> Failure:
        """The failure that an error comes from, which was there at this tick."""
        cause = original(error)
        found = _WHERE.match(cause.where)
        kind, seq = (found[1], int(found[2])) if found else ("", None)
        session = self._session(int(found[3]), tick, kind, seq) if found else None
        key = (cause.where, cause.code, session)
        if key not in self._all:
            self._all[key] = Failure(cause, seq, session)
        return self._all[key]

    def _session(self, stream_id: int, tick: int, kind: str, seq: int | None) -> Session | None:
        """Ids are used again: the latest stream with this one, in which that operation can have failed."""
        opened = [session for session in self._sessions[stream_id] if session.opened <= tick]
        can_be = [session for session in opened if self._may_have_failed(session, kind, seq)]
        found = can_be or opened
        return found[-1] if found else None

    def _may_have_failed(self, session: Session, kind: str, seq: int | None) -> bool:
        submission = self._places.get((session, seq))
        if submission is None:
            return True
        made = submission.made
        succeeded = isinstance(made, Operation) and made.done() and not made.cancelled() and made.exception() is None
        return kind in submission.kind and not succeeded

    def all(self) -> Iterable[Failure]:
        """All of them."""
        return self._all.values()

    def add(self, error: AclError, submission: Submission) -> None:
        """An operation has ended with this error."""
        if is_loss(error) or is_abort(error):
            return
        failure = self.of(error, submission.after)
        if failure.session is submission.session and failure.seq == submission.seq:
            failure.begun = submission.before

    def trace(self) -> None:
        """Find out what each reaches."""
        for session in self._ledger.sessions:
            session.submissions.sort(key=lambda one: one.seq)
        links = sorted(self._ledger.links, key=lambda link: link.tick)
        for failure in self._all.values():
            if failure.seq is None or failure.session is None:
                continue
            failure.possible[failure.session] = failure.certain[failure.session] = failure.seq
            for link in links:
                _follow(failure, link)
        for link in links:
            self._follow_for_sure(link)
        for failure in self._all.values():
            for session in failure.certain:
                self._by_session[session].append(failure)

    def _follow_for_sure(self, link: Link) -> None:
        record, wait = link.record, link.wait
        if record is None or wait is None or not wait.seq:
            return
        # With several failures about, the record or the wait may have been kept back on account of another one.
        reaching = [failure for failure in self._all.values() if failure.may_reach(record) or failure.may_reach(wait)]
        if (
            len(reaching) == 1
            and reaching[0].must_reach(record)
            and not self._aborts.between(record.before, reaching[0].earliest)
        ):
            certain = reaching[0].certain
            certain[link.target] = min(certain.get(link.target, NEVER), wait.seq - 1)

    def certain(self, submission: Submission) -> Iterator[Failure]:
        """Those that an operation is behind for sure, and nobody had been told of when it was submitted."""
        for failure in self._by_session.get(submission.session, ()):
            if failure.must_reach(submission):
                yield failure

    def told_between(self, writer: Submission, reader: Submission) -> bool:
        """Whether somebody may have been told of a failure that reaches their stream, between two operations."""
        return self._aborts.between(writer.before, reader.after) or any(
            failure.latest >= writer.before and failure.earliest <= reader.after
            for failure in self._all.values()
            if writer.session in failure.possible or writer.session in failure.possible_from_tick
        )


def _follow(failure: Failure, link: Link) -> None:
    source, target, record, wait = link.source, link.target, link.record, link.wait
    if link.tick < failure.begun:
        return
    if record is None or wait is None:
        if link.tick < failure.latest and (source in failure.possible or source in failure.possible_from_tick):
            failure.possible_from_tick.setdefault(target, link.tick)
        return
    itself = failure.session is record.session and failure.seq == record.seq  # it was never recorded
    if itself or failure.may_reach(record):
        failure.possible[target] = min(failure.possible.get(target, NEVER), wait.seq - 1)
