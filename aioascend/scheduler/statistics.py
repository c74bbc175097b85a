# SPDX-License-Identifier: Apache-2.0
"""What a scheduler tells of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["SchedulerStatistics", "UnitStatistics"]


@dataclass(frozen=True)
class UnitStatistics:
    """One unit.

    Attributes:
        state: "ok"; "recovering", while `recover` is at it; or "failed".
        error: Why it is out of service, None unless it is.
        running: Calls under way on it.
        abandoned: Slots that are taken by work on the device whose caller has gone.
        ok: Calls that have succeeded on it.
        failed: Calls that have failed on it, those that were run again elsewhere included.
        service_seconds: What it takes for a call when it is busy, as of late; None before the first has succeeded.
        busy_seconds: Time in which it had at least one call.
        busy_rate: Share of the time since the scheduler was entered in which it had. For the rate between two
            snapshots take the difference of `busy_seconds`.
    """

    state: Literal["ok", "recovering", "failed"]
    error: Exception | None
    running: int
    abandoned: int
    ok: int
    failed: int
    service_seconds: float | None
    busy_seconds: float
    busy_rate: float


@dataclass(frozen=True)
class SchedulerStatistics:
    """A snapshot. At any moment submitted = ok + failed + cancelled + timed_out + waiting + running; other threads than
    that of the scheduler's loop may see a request between two of them.

    Attributes:
        submitted: Requests that were taken.
        ok: Those that have a result.
        failed: Those that have raised an error.
        cancelled: Those whose caller was cancelled, or whose scopes' deadline passed.
        timed_out: Those that have raised `DeadlineError`.
        waiting: Those that no unit has begun with.
        running: Those that a unit is at.
        rejected: Requests that were refused with `QueueFullError`; not in `submitted`.
        retried: How often a request was given to a unit again.
        oldest_wait: Seconds since the oldest of those waiting was made, 0 when there is none.
        units: The units, in the order of `Scheduler.units`.
    """

    submitted: int
    ok: int
    failed: int
    cancelled: int
    timed_out: int
    waiting: int
    running: int
    rejected: int
    retried: int
    oldest_wait: float
    units: tuple[UnitStatistics, ...]
