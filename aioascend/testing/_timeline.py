# SPDX-License-Identifier: Apache-2.0
"""What ran when, and on which unit of the device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["TaskRecord", "UnitOverlap", "unit_overlap"]


@dataclass(frozen=True)
class TaskRecord:
    """A task that has finished on a simulated device.

    Times are nanoseconds on the simulated clock, the one of `Simulator.now`; only differences mean anything.

    Attributes:
        task_id: Counts the tasks of a stream, from the one the library gives (aclrtGetThreadLastTaskId).
        stream_id: Id of the stream (aclrtStreamGetId); -1 for synchronous calls, which belong to none.
        device: Index of the device.
        kind: One of `TASK_KINDS`.
        name: The model's name for "execute", "" for other kinds.
        unit: What it occupied: "copy_in", "copy_out", "copy_device", "ai_core", "host" or "none".
        unit_index: Which AI Core; 0 for the other units.
        queued_ns: When it was submitted.
        start_ns: When it began to run.
        end_ns: When it was done.
        nbytes: Bytes copied or set; 0 for other kinds.
        code: 0, or the ACL code it failed with.
    """

    task_id: int
    stream_id: int
    device: int
    kind: str
    name: str
    unit: str
    unit_index: int
    queued_ns: int
    start_ns: int
    end_ns: int
    nbytes: int
    code: int

    @property
    def duration(self) -> float:
        """Seconds from start to end."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def waited(self) -> float:
        """Seconds from the submit to the start."""
        return (self.start_ns - self.queued_ns) / 1e9


@dataclass(frozen=True)
class UnitOverlap:
    """How much of a span of time the units of the devices worked, and how much of it at the same time.

    All shares are fractions of `span`, 0 to 1; they are 0 when nothing occupied a unit.

    Attributes:
        span: Seconds from the first start to the last end.
        busy: By name of the unit, the share in which at least one unit of that name worked.
        active: The share in which any unit worked.
        shared: The share in which two or more units worked at the same time.
    """

    span: float
    busy: dict[str, float]
    active: float
    shared: float


def unit_overlap(records: Iterable[TaskRecord]) -> UnitOverlap:
    """How well the units of the devices were kept busy, from a timeline.

    Units are the copy engines and each AI Core, of each device. Tasks that occupy none of them ("none",
    "host") and tasks that took no time, as under the profile "instant", do not count.
    """
    work = [record for record in records if record.unit not in ("none", "host") and record.end_ns > record.start_ns]
    if not work:
        return UnitOverlap(span=0.0, busy={}, active=0.0, shared=0.0)
    span = max(record.end_ns for record in work) - min(record.start_ns for record in work)
    active, shared = _time_with_units(work)
    busy = {
        unit: _time_with_units([record for record in work if record.unit == unit])[0] / span
        for unit in sorted({record.unit for record in work})
    }
    return UnitOverlap(span=span / 1e9, busy=busy, active=active / span, shared=shared / span)


def _time_with_units(work: Iterable[TaskRecord]) -> tuple[int, int]:
    """Nanoseconds in which at least one unit worked, and in which at least two did."""
    changes: list[tuple[int, int]] = []
    for record in work:
        changes += [(record.start_ns, 1), (record.end_ns, -1)]
    changes.sort()  # an end comes before a start at the same instant, so tasks that only touch do not overlap
    one = two = running = before = 0
    for now, change in changes:
        one += now - before if running >= 1 else 0
        two += now - before if running >= 2 else 0
        running, before = running + change, now
    return one, two
