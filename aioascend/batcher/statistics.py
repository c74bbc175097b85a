# SPDX-License-Identifier: Apache-2.0
"""What a batcher tells of itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BatcherStatistics"]


@dataclass(frozen=True)
class BatcherStatistics:
    """A snapshot. At any moment submitted = ok + failed + cancelled + timed_out + waiting + running.

    Attributes:
        submitted: Requests that were taken in.
        ok: Those that got their answer.
        failed: Those that got an error, of the call or of the row.
        cancelled: Those whose caller was cancelled first, by a scope's deadline as well.
        timed_out: Those whose `timeout` passed first.
        waiting: Those in the queue, or waiting for a place in it.
        running: Those in a batch that is under way, whose caller still waits.
        rejected: Requests that a full queue refused; they are in none of the above.
        batches: Batches that were built.
        rows: Requests in them, those included whose caller was cancelled later.
        padded_rows: Rows that were added to reach an allowed size.
        isolated: Requests that were run again alone, since their batch had failed.
        full: Batches that left because they were full.
        delay: Batches that left because a request had waited for `max_delay`, or would have been late otherwise.
        idle: Batches that left because nothing was under way.
        close: Batches that left because the batcher was being closed.
        in_flight: Batches under way.
        oldest_wait: Seconds for which the oldest request of the queue has waited; 0 when it is empty.
    """

    submitted: int
    ok: int
    failed: int
    cancelled: int
    timed_out: int
    waiting: int
    running: int
    rejected: int
    batches: int
    rows: int
    padded_rows: int
    isolated: int
    full: int
    delay: int
    idle: int
    close: int
    in_flight: int
    oldest_wait: float

    @property
    def mean_batch(self) -> float:
        """Requests per batch; 0 before the first one."""
        return self.rows / self.batches if self.batches else 0.0
