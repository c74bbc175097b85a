# SPDX-License-Identifier: Apache-2.0
"""The aborts of a round: what may have been discarded by them, and whether somebody was told, as often as need be."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping

from aioascend import AclError, DependencyError, TaskError
from aioascend.soak.ledger import CANCELLED, NEVER, Abort, Ledger, Link, Outcome, Session, Submission, Telling, original

__all__ = ["Aborts", "is_abort"]

ABORT_CODE = 107023


def is_abort(error: AclError) -> bool:
    """Whether an abort is behind it. Its stream is the one that was aborted."""
    return original(error).code == ABORT_CODE


class Aborts:
    """All aborts of a round."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._reached = {abort: self._reached_by(abort) for abort in ledger.aborts}

    def between(self, begin: int, end: int) -> bool:
        """Whether one may have been under way between two ticks."""
        return any(abort.begun < end and abort.ended > begin for abort in self._ledger.aborts)

    def may_reach(self, error: AclError, submission: Submission) -> bool:
        """Whether an operation may have ended with this error on account of an abort."""
        stream = original(error).stream
        for abort in self._ledger.aborts:
            if abort.session.id != stream or abort.begun > submission.known:
                continue
            if isinstance(error, DependencyError):
                reached = submission.session in self._reached[abort]
            else:
                reached = submission.session is abort.session and submission.before < abort.ended
            if reached and not _is_over(submission, abort):
                return True
        return False

    def problems(self, ends: Mapping[Submission, Outcome]) -> Iterator[str]:
        """What is wrong with what was told, in sentences."""
        tellings: dict[Session, list[Telling]] = defaultdict(list)
        aborted: dict[Session, list[Submission]] = defaultdict(list)
        for telling in self._ledger.tellings:
            if not is_abort(telling.failure):
                continue
            aborts = self._of(telling.failure, telling.latest)
            if aborts:
                tellings[aborts[-1].session].append(telling)
            else:
                yield f"somebody was told of an abort that there was not: {telling.failure}"
        for session, told in tellings.items():
            yield from self._told_again(session, told)
        for submission, end in ends.items():
            if isinstance(end, TaskError) and is_abort(end):
                aborted[submission.session].append(submission)
        for session, discarded in aborted.items():
            discarded.sort(key=lambda one: one.seq)
            yield from _succeeded_behind(session, discarded, ends, tellings[session])
            if not any(telling.latest > discarded[-1].before for telling in tellings[session]):
                yield f"{discarded[-1]} was aborted, and nobody was told"

    def _told_again(self, session: Session, tellings: list[Telling]) -> Iterator[str]:
        """Who has submitted something when the others had been told is not told of the same failure once more."""
        failures = told = 0
        for telling in sorted(tellings, key=lambda telling: telling.latest):
            if telling.handler or telling.since > told:
                failures += 1
                told = telling.latest
            # One of its stream, and one of each that is aborted with it; they are told separately.
            if failures > sum(len(self._reached[abort]) for abort in self._of(telling.failure, telling.latest)):
                yield f"somebody was told once more that stream {session.id} was aborted: {telling.failure}"
                return

    def _of(self, cause: AclError, tick: int) -> list[Abort]:
        """Those of the stream that an error names, which somebody was told of at this tick."""
        aborts = [abort for abort in self._ledger.aborts if abort.session.id == cause.stream and abort.begun < tick]
        latest = max((abort.session.opened for abort in aborts), default=0)  # ids are used again
        return [abort for abort in aborts if abort.session.opened == latest]

    def _reached_by(self, abort: Abort) -> set[Session]:
        """The streams that may wait for the aborted one when that happens, or later, also through others."""
        over = {session: _newest_over(session, abort) for session in self._ledger.sessions}
        reached: set[Session] = set()
        found = {abort.session}
        links = [link for link in self._ledger.links if not _was_over(link, over[link.target])]
        while found:
            reached |= found
            found = {link.target for link in links if link.source in reached} - reached
        return reached


def _newest_over(session: Session, abort: Abort) -> Submission | None:
    """The last one of a stream that was known to be over when the abort began; so are those in front of it."""
    over = [one for one in session.submissions if one.seq and one.known <= abort.begun]
    return max(over, key=lambda one: one.seq, default=None)


def _is_over(submission: Submission, abort: Abort) -> bool:
    newest = _newest_over(submission.session, abort)
    return newest is not None and 0 < submission.seq <= newest.seq


def _was_over(link: Link, newest: Submission | None) -> bool:
    if newest is None:
        return False
    return link.tick < newest.before if link.wait is None else link.wait.seq <= newest.seq


def _succeeded_behind(
    session: Session, discarded: list[Submission], ends: Mapping[Submission, Outcome], tellings: list[Telling]
) -> Iterator[str]:
    """Nothing succeeds behind what was discarded, before somebody has been told of that."""
    places = [one.seq for one in discarded]
    for submission in session.submissions:
        at = bisect_left(places, submission.seq)
        if at == 0 or ends.get(submission, CANCELLED) is not None:
            continue
        last = discarded[at - 1]
        if submission.after < min((one.earliest for one in tellings if one.latest > last.before), default=NEVER):
            yield f"{submission} succeeded behind {last}, which was aborted, and nobody had been told of that"
