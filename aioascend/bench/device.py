# SPDX-License-Identifier: Apache-2.0
"""What the simulated device is like while something is measured."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aioascend.bench.settings import Settings
from aioascend.testing import Simulator

__all__ = ["device_profile", "device_time"]


@contextlib.contextmanager
def device_profile(settings: Settings, toml: str, devices: int | None = None) -> Iterator[Simulator]:
    """The simulator with so many devices of this profile, reset at the end.

    Raises:
        UnavailableError: the library in use is not the simulator.
    """
    sim = settings.simulator("a device profile")
    sim.reset()
    if devices is not None:
        sim.set_device_count(devices)
    with tempfile.TemporaryDirectory(prefix="aioascend-bench-") as folder:
        path = Path(folder) / "profile.toml"
        path.write_text(toml, encoding="utf-8")
        sim.set_profile(path)
    try:
        yield sim
    finally:
        sim.reset()


@contextlib.contextmanager
def device_time(settings: Settings, microseconds: float) -> Iterator[None]:
    """Let every copy take this long on the device, eight at a time in each direction.

    On real devices copies take what they take: only 0, which stands for that, is accepted.
    """
    if microseconds == 0 and not settings.simulated:
        yield
        return
    toml = f'name = "bench"\ncopy_latency_us = {microseconds}\ncopy_engines = 8\nevent_limit = 65536\n'
    with device_profile(settings, toml) as sim:
        sim.set_timeline_capacity(0)
        yield
