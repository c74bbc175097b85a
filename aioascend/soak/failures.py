# SPDX-License-Identifier: Apache-2.0
"""The failures of a round: where each began, what it reaches, and when somebody was told of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from aioascend import AclError
from aioascend.soak.ledger import Ledger, Link, Session, Submission, original

__all__ = ["Failure", "Failures"]

NEVER = 1 << 62

_WHERE = re.compile(r"\w+ #(\d+) of stream (\d+)")


class Failure:
    """One failure, as several operations may have been told of it.

    Attributes:
        error: The exception, the same object for all.
        seq: Of the operation that failed, in its stream; None where that is not known.
        stream_id: Of that stream.
        session: That stream.
        begun: The tick before the operation was submitted, where that is known.
        earliest: Nobody was told before this tick,
        latest: somebody was before this one.
        told_by_await: How often somebody was told,
        told_by_handler: and how often an exception handler was called.
    """

    def __init__(self, error: AclError) -> None:
        self.error = error
        found = _WHERE.match(error.where)
        self.seq = int(found[1]) if found else None
        self.stream_id = int(found[2]) if found else error.stream
        self.session: Session | None = None
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
    """All failures of a round."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._all: dict[int, Failure] = {}
        self._by_session: dict[Session, list[Failure]] = defaultdict(list)
        for telling in ledger.tellings:
            failure = self.of(telling.failure)
            failure.earliest = min(failure.earliest, telling.earliest)
            failure.latest = min(failure.latest, telling.latest)
            failure.told_by_handler += telling.handler
            failure.told_by_await += not telling.handler

    def of(self, error: AclError) -> Failure:
        """The failure that an error comes from."""
        cause = original(error)
        if id(cause) not in self._all:
            self._all[id(cause)] = Failure(cause)
        return self._all[id(cause)]

    def all(self) -> Iterable[Failure]:
        """All of them."""
        return self._all.values()

    def add(self, error: AclError, submission: Submission) -> None:
        """An operation has ended with this error."""
        failure = self.of(error)
        if original(error) is error and submission.seq == failure.seq:
            failure.session, failure.begun = submission.session, submission.before

    def trace(self) -> None:
        """Find out what each reaches."""
        by_id: dict[int, list[Session]] = defaultdict(list)
        for session in self._ledger.sessions:
            session.submissions.sort(key=lambda one: one.seq)
            by_id[session.id].append(session)
        links = sorted(self._ledger.links, key=lambda link: link.tick)
        for failure in self._all.values():
            if failure.seq is None:
                continue
            # The operation may have been cancelled, or be none of ours: then any stream with the id may be meant.
            origins = [failure.session] if failure.session else by_id[failure.stream_id or 0]
            for session in origins:
                failure.possible[session] = failure.seq
            if failure.session:
                failure.certain[failure.session] = failure.seq
            elif len(origins) == 1:
                failure.session = origins[0]
                failure.certain[origins[0]] = failure.seq
            for link in links:
                _follow(failure, link)
            for session in failure.certain:
                self._by_session[session].append(failure)

    def certain(self, submission: Submission) -> Iterator[Failure]:
        """Those that an operation is behind for sure, and nobody had been told of when it was submitted."""
        for failure in self._by_session.get(submission.session, ()):
            if failure.must_reach(submission):
                yield failure

    def told_between(self, writer: Submission, reader: Submission) -> bool:
        """Whether somebody may have been told of a failure that reaches their stream, between two operations."""
        return any(
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
    if failure.may_reach(record):
        failure.possible[target] = min(failure.possible.get(target, NEVER), wait.seq - 1)
    if failure.must_reach(record) and wait.seq:
        failure.certain[target] = min(failure.certain.get(target, NEVER), wait.seq - 1)
