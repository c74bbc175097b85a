# SPDX-License-Identifier: Apache-2.0
"""Chains of copy-in, 8 memsets (which stand for kernels) and copy-out, with one await, for the end.

And what one submit that nobody awaits costs: here, and the library's own call in C.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from aioascend.bench import _rivals
from aioascend.bench.concurrent import Load, measure_loads
from aioascend.bench.contenders import CONTENDERS, Place
from aioascend.bench.goals import find, share_of
from aioascend.bench.harness import FLOOR, Case, Sample, compare, cpu_seconds, device_time, measure, row_of, run_on
from aioascend.bench.placement import Placement
from aioascend.bench.pyacl import Rig, load_acl
from aioascend.bench.results import Goal, Part, Row
from aioascend.bench.settings import Settings

__all__ = ["NAME", "goal", "run"]

NAME = "chains"

_BATCH = 128  # submits to an empty stream: fewer than any queue holds, and than make the runtime ask for a report


def run(settings: Settings) -> list[Row]:
    """The rows; quick runs have what the goal needs."""
    if settings.quick:
        loads = [Load(64, 6400, ("aioascend", "pyacl"), chains=True)]
    else:
        every = tuple(CONTENDERS)
        loads = [Load(1, 600, every, chains=True), Load(64, 6400, every, chains=True)]
        loads += [Load(64, 640, every, chains=True, device_us=50), Load(8, 32, every, chains=True, device_us=1000)]
    return measure_loads(NAME, loads, settings) + _submits(settings)


def _submits(settings: Settings) -> list[Row]:
    cases: list[Case] = []
    for placement in settings.placements:
        parameters: dict[str, object] = {"what": "submit", "placement": placement}
        cases.append(Case(FLOOR, "-", parameters, _library_submit(settings, placement)))
        cases += [
            Case("aioascend", loop, parameters, _our_submit(settings, placement, loop)) for loop in settings.loops
        ]
    with device_time(settings, 0):
        return compare([row_of(NAME, case, samples) for case, samples in measure(NAME, cases, settings)])


def _library_submit(settings: Settings, placement: str) -> Callable[[], Sample]:
    def run() -> Sample:
        acl, _ = load_acl(settings)
        rig = Rig(acl, 1, 1)
        lane = rig.lanes[0]
        calls = _BATCH * settings.count(100)
        try:
            with Placement(placement).pinned():
                cpu = cpu_seconds()
                seconds = _rivals.submit_seconds((lane.stream, lane.device, lane.source, lane.result), calls, _BATCH)
                cpu = cpu_seconds() - cpu
        finally:
            rig.close()
        return Sample(calls, seconds * calls, cpu)

    return run


def _our_submit(settings: Settings, placement: str, loop: str) -> Callable[[], Sample]:
    place = Place(settings, Placement(placement), 1, 1)
    batches = settings.count(100)

    async def main() -> Sample:
        contender = CONTENDERS["aioascend"](place)
        await contender.open()
        lane = contender.lanes[0]
        stream, byte = lane.stream, lane.bytes[0]
        seconds = 0.0
        try:
            with place.placement.pinned():
                cpu = cpu_seconds()
                for _ in range(batches):
                    began = time.perf_counter()
                    for _ in range(_BATCH):
                        stream.memset(byte, 1)
                    seconds += time.perf_counter() - began
                    await stream
                cpu = cpu_seconds() - cpu
        finally:
            await contender.close()
        return Sample(_BATCH * batches, seconds, cpu)

    return lambda: run_on(loop, main)


def goal(rows: Sequence[Row]) -> Goal:
    """The cost of a submit, callbacks per chain, and chains beside pyACL's."""
    parts: list[Part] = []
    for loop in ("asyncio", "uvloop"):
        ours = find(rows, "aioascend", loop, scenario=NAME, what="submit", placement="two")
        library = find(rows, FLOOR, "-", scenario=NAME, what="submit", placement="two")
        if ours and library:
            cost = ours.median - library.median
            note = f"{ours.median:.3g} us; the library's own call {library.median:.3g}"
            parts.append(Part(f"us per un-awaited submit above the library's call, {loop}", cost, 0.3, note=note))
        at = {"scenario": NAME, "coroutines": 64, "device_us": 0.0, "placement": "two"}
        ours, pyacl = find(rows, "aioascend", loop, **at), find(rows, "pyacl", loop, **at)
        if ours:
            parts.append(Part(f"callbacks per chain, {loop}", ours.counters["callbacks_per_op"], 1.0))
        floor = find(rows, FLOOR, "-", **at)
        parts += share_of(f"time above the floor, of pyacl's, {loop}", ours, pyacl, floor, 1 / 4)
    return Goal("3 chains", tuple(parts))
