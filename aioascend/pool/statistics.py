# SPDX-License-Identifier: Apache-2.0
"""What a pool tells of itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StreamPoolStatistics"]


@dataclass(frozen=True)
class StreamPoolStatistics:
    """A snapshot. At any moment

    - `size = idle + held + draining`, and `created = size + replaced + retired`,
    - `submitted = acquired + waiting + timed_out + cancelled + failed`.

    Attributes:
        wanted: Streams that it may have at most.
        size: Streams that it has.
        idle: Streams that nobody uses.
        held: Streams that somebody has.
        draining: Streams that were given back with work in flight, and are kept until that is over.
        created: Streams that it has made so far.
        replaced: Those that it has thrown away, as they took no more work.
        retired: Those that it has closed, as they had not been used for long, or as it was closed itself.
        submitted: Calls of `acquire` so far.
        acquired: Those that got a stream.
        waiting: Those that wait for one.
        timed_out: Those that raised `DeadlineError`.
        cancelled: Those that were cancelled.
        failed: Those that raised anything else.
    """

    wanted: int
    size: int
    idle: int
    held: int
    draining: int
    created: int
    replaced: int
    retired: int
    submitted: int
    acquired: int
    waiting: int
    timed_out: int
    cancelled: int
    failed: int
