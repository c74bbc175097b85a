# SPDX-License-Identifier: Apache-2.0
"""64 and 1024 coroutines over 8 streams, each awaiting one 8-byte copy after the other."""

from __future__ import annotations

from collections.abc import Sequence

from aioascend.bench.concurrent import Load, measure_loads
from aioascend.bench.contenders import CONTENDERS
from aioascend.bench.goals import best, find, share_of
from aioascend.bench.harness import FLOOR
from aioascend.bench.results import Goal, Part, Row
from aioascend.bench.settings import Settings

__all__ = ["NAME", "goal", "run"]

NAME = "gather"


def run(settings: Settings) -> list[Row]:
    """The rows; quick runs have what the goal needs."""
    if settings.quick:
        return measure_loads(NAME, [Load(64, 25600, ("aioascend", "pyacl", "executor-4", "executor-32"))], settings)
    every = tuple(CONTENDERS)
    loads = [Load(64, 25600, every), Load(1024, 10240, every)]
    loads += [Load(64, 3200, every, device_us=50), Load(64, 320, every, device_us=1000)]
    return measure_loads(NAME, loads, settings)


def goal(rows: Sequence[Row]) -> Goal:
    """Time and CPU time above the floor beside the others'."""
    parts: list[Part] = []
    at = {"scenario": NAME, "coroutines": 64, "device_us": 0.0, "placement": "two"}
    floor = find(rows, FLOOR, "-", **at)
    for loop in ("asyncio", "uvloop"):
        held = loop == "asyncio"
        ours, pyacl = (find(rows, name, loop, **at) for name in ("aioascend", "pyacl"))
        executor = best(find(rows, name, loop, **at) for name in ("executor-4", "executor-32"))
        time, cpu = "time above the floor", "CPU time above the floor"
        parts += share_of(f"{time}, of pyacl's, {loop}", ours, pyacl, floor, 1 / 10 if held else 1 / 3)
        parts += share_of(f"{time}, of executor's, {loop}", ours, executor, floor, 1 / 25 if held else None)
        parts += share_of(f"{cpu}, of pyacl's, {loop}", ours, pyacl, floor, 1 / 8 if held else None, cpu=True)
    return Goal("1 await overhead", tuple(parts))
