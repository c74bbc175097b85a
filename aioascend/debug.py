# SPDX-License-Identifier: Apache-2.0
"""Debug mode, and what is alive in this process.

`AIOASCEND_DEBUG=1`, read when aioascend is imported, turns it on; docs/debugging.md shows what it reports, through the
logger "aioascend.debug". `counters` works without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from aioascend import _debug, _native

__all__ = ["Counters", "counters", "enabled"]

enabled: bool = _debug.settings.enabled
"""Whether this process runs in debug mode."""


@dataclass(frozen=True)
class Counters:
    """What is alive in this process. When everything has been closed and dropped, all are what they were before.

    Attributes:
        tickets: Operations that were submitted and have not come back to their loop.
        events: ACL events of `Event` objects and of waits for them.
        streams: Streams of open devices, those of models and wrapped ones included.
        models: Models that are loaded.
        device_blocks: Blocks of device memory that buffers look into.
        pinned_blocks: Blocks of pinned memory that buffers look into, or that copies are staged in.
        devices: Open devices.
        bridges: Event loops that the runtime reports to, until it has noticed that they are closed.
        fds: File descriptors of the runtime, an eventfd for each bridge.
        threads: Report threads and workers, one of each per open device. Thread pools are not counted.
    """

    tickets: int
    events: int
    streams: int
    models: int
    device_blocks: int
    pinned_blocks: int
    devices: int
    bridges: int
    fds: int
    threads: int


def counters() -> Counters:
    """A snapshot. Does not block, and asks no device."""
    return Counters(**_native.live_counts())
