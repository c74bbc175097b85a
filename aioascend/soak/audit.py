# SPDX-License-Identifier: Apache-2.0
"""Whether everybody was told the truth: a round's ledger, held against what the simulator knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aioascend import AclError, ArgumentError, DependencyError, DeviceLostError, ReportLostError
from aioascend._native import Operation
from aioascend.soak.aborts import Aborts, is_abort
from aioascend.soak.contents import LARGE_BYTES, Content
from aioascend.soak.failures import Failure, Failures
from aioascend.soak.faults import LOST_CODES, Injector
from aioascend.soak.ledger import CANCELLED, NEVER, Ledger, Outcome, Refusal, Submission, is_loss, name_of, original
from aioascend.testing import TaskRecord

__all__ = ["audit"]

NOT_STARTED = "It was not started."
NO_MEMORY_CODE = 207001


def audit(ledger: Ledger, injector: Injector, failed: Sequence[TaskRecord]) -> Counter[str]:
    """Judge a round that is over.

    Args:
        ledger: What was done; what is wrong is noted there.
        injector: The faults that were asked for.
        failed: The tasks that have failed on the device.

    Returns:
        What became of the operations, by class of the error.
    """
    return _Audit(ledger, injector, failed).run()


class _Audit:
    def __init__(self, ledger: Ledger, injector: Injector, failed: Sequence[TaskRecord]) -> None:
        self.ledger = ledger
        self.injector = injector
        self.failed = failed
        self.codes = {code for codes in injector.refusals.values() for code in codes}
        if ledger.memory_ran_out:
            self.codes.add(NO_MEMORY_CODE)
        self.ends: dict[Submission, Outcome] = {}
        self.aborts = Aborts(ledger)
        self.failures = Failures(ledger, self.aborts)

    def run(self) -> Counter[str]:
        for session in self.ledger.sessions:
            for submission in session.submissions:
                self._take_in(submission)
        self._check_awaits()
        self.failures.trace()
        for submission, end in self.ends.items():
            self._check_outcome(submission, end)
        for failure in self.failures.all():
            self._check_failure(failure)
        for record in self.failed:
            self._check_task(record)
        for refusal in self.ledger.refusals:
            if not self._is_explained(refusal):
                self._wrong(f"{refusal.what} was refused, which nothing explains: {refusal.error!r}")
        for problem in self.aborts.problems(self.ends):
            self._wrong(problem)
        return Counter(name_of(end) for end in self.ends.values())

    def _wrong(self, text: str) -> None:
        self.ledger.problem(text)

    def _is_explained(self, refusal: Refusal) -> bool:
        error = refusal.error
        if not isinstance(error, AclError) or isinstance(error, ArgumentError):
            # By the runtime, and by the simulator: what the device had before it was reset is not there any more.
            return self.ledger.lost and refusal.before < self.ledger.back
        if isinstance(error, DeviceLostError):
            return self._lost(error, refusal.before)
        if is_abort(error):
            return self.aborts.between(refusal.before, refusal.after)
        return error.code in self.codes

    def _lost(self, error: AclError, tick: int) -> bool:
        """Whether the device was lost for who did something at this tick."""
        return self.ledger.lost and tick < self.ledger.back and error.code in LOST_CODES

    def _take_in(self, submission: Submission) -> None:
        operation = submission.made
        if not isinstance(operation, Operation):
            return  # an event tells only those who await it
        end: Outcome
        if not operation.done():
            self._wrong(f"{submission} was never resolved")
            return
        if operation.cancelled():
            end = CANCELLED
        else:
            error = operation.exception()
            if error is not None and not isinstance(error, AclError):
                self._wrong(f"{submission} raised {error!r}, which is not documented")
                return
            end = error
        self.ends[submission] = end
        if isinstance(end, AclError) and not isinstance(end, ReportLostError):
            self.failures.add(end, submission)

    def _check_awaits(self) -> None:
        for place in self.ledger.places.values():
            if place.waiting:
                self._wrong(f"{place.waiting} awaits have not ended")
        for submission, end in self.ends.items():
            for outcome in submission.outcomes:
                if outcome is not end and not (outcome is CANCELLED and submission.abandoned):
                    self._wrong(f"an await of {submission} got {outcome!r}, the operation ended with {end!r}")
            if end is CANCELLED and not submission.abandoned:
                self._wrong(f"{submission} was cancelled by nobody")

    # --- outcomes ---

    def _check_outcome(self, submission: Submission, end: Outcome) -> None:
        if end is None:
            for failure in self.failures.certain(submission):
                self._wrong(f"{submission} succeeded behind a failure that nobody had been told of: {failure}")
            self._check_content(submission)
            return
        if isinstance(end, AclError) and is_loss(end):
            if not self._lost(original(end), submission.before):
                self._wrong(f"{submission} lost a device that was there: {end}")
        elif isinstance(end, AclError) and is_abort(end):
            if not self.aborts.may_reach(end, submission):
                self._wrong(f"{submission} is said to have been aborted, or to be behind that, and cannot be: {end}")
        elif isinstance(end, DependencyError):
            failure = self.failures.of(end, submission.after)
            if not failure.may_reach(submission):
                when = f"submitted between ticks {submission.before} and {submission.after}"
                self._wrong(f"{submission}, {when}, ran behind a failure that does not reach it, as it says: {failure}")
        elif isinstance(end, ReportLostError):
            if not self.injector.dropped:
                self._wrong(f"{submission} lost its report, although none was dropped")
        elif isinstance(end, AclError):
            self._check_own_failure(submission, end)
        read = submission.read
        if read is not None and not read.pinned and read.destination.nbytes != LARGE_BYTES and not read.untouched():
            self._wrong(f"{submission} ended with {end!r}, and has written to its destination all the same")

    def _check_own_failure(self, submission: Submission, error: AclError) -> None:
        failure = self.failures.of(error, submission.after)
        if failure.seq != submission.seq or failure.session is not submission.session:
            self._wrong(f"{submission} raised the failure of another operation: {error}")
        if NOT_STARTED not in error.detail and not any(
            _is_task_of(record, submission) and record.code == error.code for record in self.failed
        ):
            self._wrong(f"{submission} failed, but no such task did: {error}")

    def _check_content(self, submission: Submission) -> None:
        read = submission.read
        if read is None or read.content is None or not self._certain(read.content, submission):
            return
        if not read.right():
            got, want = read.destination.tobytes(), read.content.data
            at = next(index for index, byte in enumerate(got) if byte != want[index])
            self._wrong(f"{submission} succeeded with wrong bytes: {got[at]:#x} in place of {want[at]:#x} at {at}")

    def _certain(self, content: Content | None, reader: Submission) -> bool:
        """Whether all that led to a content has run, so that it must be there."""
        while content is not None:
            for submission in (content.writer, *content.fences):
                end = self.ends.get(submission)
                if end is CANCELLED and submission.session is reader.session:
                    # It has run, unless it failed, or was kept back behind a failure, and somebody was told of that.
                    if self.failures.told_between(submission, reader):
                        return False
                elif submission not in self.ends or end is not None:
                    return False
            content = content.source
        return True

    # --- failures ---

    def _check_failure(self, failure: Failure) -> None:
        error = failure.error
        if failure.told_by_handler > 1 or (failure.told_by_handler and failure.told_by_await):
            self._wrong(f"an exception handler was called with a failure that somebody had been told of: {failure}")
        if not failure.told_by_handler and not failure.told_by_await:
            self._wrong(f"nobody was told of a failure: {failure}")
        if failure.seq is None:
            self._wrong(f"a failure was not traced to an operation: {failure}")
        elif NOT_STARTED in error.detail:
            if error.code not in self.codes:
                self._wrong(f"an operation was not started, which nothing explains: {failure}")
        elif failure.session is None:
            self._wrong(f"a failure is of a stream that there was not: {failure}")
        elif not any(record.code == error.code and record.stream_id == failure.session.id for record in self.failed):
            self._wrong(f"no task has failed like this: {failure}")

    def _check_task(self, record: TaskRecord) -> None:
        """A task that has failed must have come up."""
        sessions = [session for session in self.ledger.sessions if session.id == record.stream_id]
        candidates = [
            submission
            for session in sessions
            for submission in session.submissions
            if _is_task_of(record, submission) and self.ends.get(submission, CANCELLED) is not None
        ]
        if candidates:
            if len(candidates) == 1 and self.ends.get(candidates[0]) is CANCELLED:
                self._check_cancelled(candidates[0], record)
        elif all(session.tracked for session in sessions) and record.kind not in ("event_record", "event_wait"):
            self._wrong(f"a task has failed on the device, and no operation with it: {record}")

    def _check_cancelled(self, submission: Submission, record: TaskRecord) -> None:
        """The failure of a cancelled operation is not lost: it is told all the same, unless another one covers it."""
        told = any(
            failure.session is submission.session and failure.seq == submission.seq for failure in self.failures.all()
        )
        covered = any(failure.may_reach(submission) for failure in self.failures.all())
        covered = covered or self.aborts.between(submission.before, NEVER)
        if not told and not covered and not self.ledger.lost:
            self._wrong(f"{submission} was cancelled and has failed with {record.code}, which nobody was told")


def _is_task_of(record: TaskRecord, submission: Submission) -> bool:
    return (
        record.nbytes == submission.nbytes
        and record.kind == submission.kind
        and record.stream_id == submission.session.id
    )
