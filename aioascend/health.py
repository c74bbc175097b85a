# SPDX-License-Identifier: Apache-2.0
"""Whether the devices work: for health endpoints, and for those who spread work over devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aioascend import _native
from aioascend._opened import Opened
from aioascend.errors import DeviceLostError

__all__ = ["DeviceHealth", "health"]


@dataclass(frozen=True)
class DeviceHealth:
    """A snapshot of one device. Taking it asks nobody and never blocks.

    Guaranteed: once an operation or a call has raised `DeviceLostError`, `state` is "failed" until the device is reset.
    Not guaranteed: that a device nobody uses is alive; it is looked at every 100 ms as long as work is in flight.

    Attributes:
        device: Index of the device.
        state: "ok"; "failed", out of service until `Device.reset`; or "closed".
        error: Why it failed, None unless it did.
        failed_for: Seconds since it failed, 0 unless it did.
        since_progress: Seconds since an operation was finished, or since the device was opened. With work in flight, a
            large value tells a device that hangs from one that is busy.
        in_flight: Operations that the device has not finished.
        queued: Operations that wait on the host.
        orphaned_streams: Streams that were given up, whose work may still go on.
    """

    device: int
    state: Literal["ok", "failed", "closed"]
    error: DeviceLostError | None
    failed_for: float
    since_progress: float
    in_flight: int
    queued: int
    orphaned_streams: int


def health() -> list[DeviceHealth]:
    """The devices that this process has open."""
    _native.check_fork()
    return [health_of(opened.core) for opened in Opened.all()]


def health_of(core: _native.DeviceCore) -> DeviceHealth:
    """The device as seen by its runtime."""
    code, failed_for, since_progress, in_flight, queued, orphaned = core.health()
    error = DeviceLostError(code, "the device", device=core.index) if code else None
    state: Literal["ok", "failed", "closed"] = "failed" if code else "closed" if core.closed else "ok"
    return DeviceHealth(core.index, state, error, failed_for, since_progress, in_flight, queued, orphaned)
