# SPDX-License-Identifier: Apache-2.0
"""What a pipeline tells of itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PipelineStatistics", "StageStatistics"]


@dataclass(frozen=True)
class StageStatistics:
    """One stage. What the stage before is done with: `waiting + running + done + failed + cancelled` of this one.

    Attributes:
        name: What messages call it.
        waiting: Items that are queued for it, or for a place in its queue.
        running: Items that are in its function. An item that nobody waits for any more counts until the function ends.
        done: Items that it has handed on.
        failed: Items for which its function has raised.
        skipped: Those of the failed that `on_error="skip"` has left out.
        cancelled: Items that were given up while they waited for it, or were in it.
        busy_seconds: Time its function has taken, of all workers together; calls that go on do not count yet.
    """

    name: str
    waiting: int
    running: int
    done: int
    failed: int
    skipped: int
    cancelled: int
    busy_seconds: float


@dataclass(frozen=True)
class PipelineStatistics:
    """A snapshot. `submitted = ok + failed + cancelled + timed_out + waiting + running`, exactly, at any moment.

    Attributes:
        submitted: Items that were taken from a source, or given to a call.
        rejected: Calls and maps that were refused because the pipeline was closed; not in `submitted`.
        ok: Items that are through, whether or not somebody has taken the result.
        failed: Items for which a stage has raised, skipped ones included, or that were left when closing took too long,
            or the block was left by an exception or cancelled.
        cancelled: Items that nobody waited for any more.
        timed_out: Items whose call has raised `DeadlineError`.
        waiting: Items between stages.
        running: Items in the function of a stage.
        stages: Each stage, in order.
    """

    submitted: int
    rejected: int
    ok: int
    failed: int
    cancelled: int
    timed_out: int
    waiting: int
    running: int
    stages: tuple[StageStatistics, ...]
