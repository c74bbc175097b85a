# SPDX-License-Identifier: Apache-2.0
"""What a queue tells of itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["InferQueueStatistics"]


@dataclass(frozen=True)
class InferQueueStatistics:
    """A snapshot. At any moment submitted = ok + failed + cancelled + timed_out + waiting + running.

    Attributes:
        submitted: Requests that were taken.
        ok: Those that have a result.
        failed: Those whose handler has raised.
        cancelled: Those that were cancelled, or given up when the queue was closed.
        timed_out: Those that were not done in time.
        waiting: Those that no worker has begun with, those that wait for a place in the queue included.
        running: Those that a worker is at.
        rejected: Requests that were refused with `QueueFullError`; not in `submitted`.
        kept: Results that nobody has taken or waits for.
        dropped: Results that were forgotten before anybody took them.
        oldest_wait: Seconds since the oldest of those waiting was submitted, 0 when there is none.
    """

    submitted: int
    ok: int
    failed: int
    cancelled: int
    timed_out: int
    waiting: int
    running: int
    rejected: int
    kept: int
    dropped: int
    oldest_wait: float
