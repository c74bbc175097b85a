# SPDX-License-Identifier: Apache-2.0
"""What calls are spread over: slots, speed and state of one unit."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from aioascend._deadlines import recent_mean
from aioascend.device import Device
from aioascend.errors import RuntimeClosedError
from aioascend.model import Model
from aioascend.scheduler.statistics import UnitStatistics
from aioascend.stream import Stream

if TYPE_CHECKING:
    from aioascend._native import Operation

__all__ = ["SchedulerUnit", "work_on"]

U = TypeVar("U")


class SchedulerUnit(Generic[U]):
    """One unit, as a policy sees it. To be read, not changed.

    Attributes:
        index: Its place in `Scheduler.units`.
        unit: What is called.
        limit: How many calls it may have at the same time, the scheduler's `concurrency`.
        taken: How many it has.
        service_seconds: What it takes for a call when it is busy, as of late; None before the first has succeeded.
    """

    def __init__(self, index: int, unit: U, limit: int) -> None:
        self.index = index
        self.unit = unit
        self.limit = limit
        self.taken = 0
        self.service_seconds: float | None = None
        self.state: Literal["ok", "recovering", "failed"] = "ok"
        self.error: Exception | None = None
        self.lives = 0  # how often it has come back
        self.abandoned = 0
        self._ok = 0
        self._failed = 0
        self._busy = 0.0
        self.open(0.0)

    def open(self, now: float) -> None:
        """From here on its time counts."""
        self._entered = self._busy_since = self._last_ended = now

    @property
    def running(self) -> int:
        """Calls whose callers are still there."""
        return self.taken - self.abandoned

    def take(self, now: float) -> None:
        """A call begins."""
        if self.taken == 0:
            self._busy_since = now
        self.taken += 1

    def give_back(self, now: float) -> None:
        """A call is over, on the device as well."""
        self.taken -= 1
        if self.taken == 0:
            self._busy += now - self._busy_since

    def count_ok(self, started: float, now: float) -> None:
        """A call that began at `started` has succeeded. It had the unit for itself since the one before it ended."""
        took = now - max(started, self._last_ended)
        self.service_seconds = recent_mean(self.service_seconds, took)
        self._last_ended = now
        self._ok += 1

    def count_failed(self, now: float) -> None:
        """A call has failed, which says nothing of how long one takes."""
        self._last_ended = now
        self._failed += 1

    # --- state ---

    @property
    def device(self) -> Device | None:
        """The device behind it, if that is known."""
        device = self.unit if isinstance(self.unit, Device) else getattr(self.unit, "device", None)
        return device if isinstance(device, Device) else None

    def trouble(self) -> Exception | None:
        """Why it can take nothing, as far as it tells."""
        device = self.device
        health = None if device is None else device.health()
        if health is not None and health.state == "failed":
            return health.error
        if getattr(self.unit, "closed", False) is True:
            return RuntimeClosedError(f"{self.unit!r} is closed")
        return None

    def come_back(self) -> None:
        """It works again."""
        self.state, self.error, self.service_seconds = "ok", None, None
        self.lives += 1

    def statistics(self, now: float) -> UnitStatistics:
        """A snapshot."""
        busy = self._busy + (now - self._busy_since if self.taken else 0.0)
        elapsed = now - self._entered
        return UnitStatistics(
            state=self.state,
            error=self.error,
            running=self.running,
            abandoned=self.abandoned,
            ok=self._ok,
            failed=self._failed,
            service_seconds=self.service_seconds,
            busy_seconds=busy,
            busy_rate=busy / elapsed if elapsed > 0 else 0.0,
        )


def work_on(unit: Any) -> list[Operation]:
    """What is done when the device is past all that a unit was given, as far as its streams are known. A model has
    several: of its copies, and of the runs of each instance."""
    if isinstance(unit, Model):
        streams = unit._instances.streams
    else:
        stream = unit if isinstance(unit, Stream) else getattr(unit, "stream", None)
        streams = [stream] if isinstance(stream, Stream) else []
    work = []
    for stream in streams:
        with contextlib.suppress(Exception):  # what is closed, or has failed, has nothing to wait for
            work.append(stream._drained())
    return [operation for operation in work if not operation.done()]
