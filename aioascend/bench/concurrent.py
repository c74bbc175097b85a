# SPDX-License-Identifier: Apache-2.0
"""Coroutines that do one operation after the other, all at once: what `single`, `gather` and `chains` measure."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aioascend._words import counted
from aioascend.bench import _rivals
from aioascend.bench.contenders import CONTENDERS, Contender, Place
from aioascend.bench.device import device_time
from aioascend.bench.harness import FLOOR, Case, Sample, compare, measure, row_of, run_on, stopwatch
from aioascend.bench.placement import Placement
from aioascend.bench.results import Row
from aioascend.bench.rig import Rig, has_events, load_acl
from aioascend.bench.settings import Settings

__all__ = ["STREAMS", "Load", "measure_loads", "run_all"]

STREAMS = 8

# How many operations a contender does, as a share of the load's: the slow ones fewer, so that a round stays short.
_SHARES = {
    "pyacl": 0.25,
    "executor-4": 0.06,
    "executor-32": 0.06,
    "thread": 0.03,
    "polling-0": 0.25,
    "polling-1ms": 0.1,
}


@dataclasses.dataclass(frozen=True)
class Load:
    """What is measured: so many coroutines, each doing so many copies or chains on its stream.

    Attributes:
        operations: Of all coroutines together, for the fastest contenders.
        contenders: By name; the floor is always measured.
    """

    coroutines: int
    operations: int
    contenders: Sequence[str]
    chains: bool = False
    device_us: float = 0.0

    def times(self, contender: str, settings: Settings) -> int:
        """How often each coroutine does it."""
        return max(2, settings.count(round(self.operations * _SHARES.get(contender, 1.0) / self.coroutines)))


def measure_loads(scenario: str, loads: Sequence[Load], settings: Settings) -> list[Row]:
    """Each load for the floor and its contenders, on every loop and in every placement; trio only in the first one.

    On a real device, what it cannot do is left out, with a note.
    """
    rows: list[Row] = []
    if not settings.simulated:
        loads = _for_real_device(scenario, loads, settings)
    for device_us in sorted({load.device_us for load in loads}):
        with device_time(settings, device_us):
            cases = [
                case
                for load in loads
                if load.device_us == device_us
                for placement in settings.placements
                for case in _cases(load, placement, settings)
            ]
            rows += [row_of(scenario, case, samples) for case, samples in measure(scenario, cases, settings)]
    return compare(rows)


def _for_real_device(scenario: str, loads: Sequence[Load], settings: Settings) -> list[Load]:
    """It takes the time it takes, and may not have an event for each coroutine."""
    if times := sorted({load.device_us for load in loads} - {0.0}):
        text = " and ".join(f"{device_us:g} us" for device_us in times)
        settings.note(f"{scenario}: without {text} on the device: only the simulator can be told to take that")
    possible: list[Load] = []
    for load in loads:
        names = [name for name in load.contenders if CONTENDERS[name].events]
        if load.device_us:
            continue
        if names and not has_events(settings, load.coroutines):
            settings.note(
                f"{scenario}: without {', '.join(names)} at {counted(load.coroutines, 'coroutine')}: too few events"
            )
            load = dataclasses.replace(load, contenders=[name for name in load.contenders if name not in names])
        possible.append(load)
    return possible


def _cases(load: Load, placement: str, settings: Settings) -> list[Case]:
    parameters: dict[str, object] = {
        "coroutines": load.coroutines,
        "streams": min(STREAMS, load.coroutines),
        "device_us": load.device_us,
        "placement": placement,
    }
    cases = [Case(FLOOR, "-", parameters, lambda: _run_floor(load, placement, settings))]
    return cases + [
        Case(name, loop, parameters, _runner(load, name, loop, placement, settings))
        for name in load.contenders
        for loop in settings.loops
        if loop != "trio" or (CONTENDERS[name].trio and placement == settings.placements[0])
    ]


def _runner(load: Load, name: str, loop: str, placement: str, settings: Settings) -> Callable[[], Sample]:
    return lambda: _run_contender(load, name, loop, placement, settings)


def _run_floor(load: Load, placement: str, settings: Settings) -> Sample:
    acl, _ = load_acl(settings)
    rig = Rig(acl, min(STREAMS, load.coroutines), load.coroutines)
    floor = _rivals.Floor(rig.context, [(lane.stream, lane.device, lane.source, lane.result) for lane in rig.lanes])
    times = load.times(FLOOR, settings)
    try:
        with Placement(placement).pinned():
            floor.run(max(1, times // 10), chains=load.chains)
            with stopwatch() as watch:
                callbacks, wakeups = floor.run(times, chains=load.chains)
    finally:
        floor.close()
        rig.close()
    operations = times * load.coroutines
    return watch.sample(operations, callbacks_per_op=callbacks / operations, wakeups_per_op=wakeups / operations)


def _run_contender(load: Load, name: str, loop: str, placement: str, settings: Settings) -> Sample:
    times = load.times(name, settings)
    operations = times * load.coroutines
    place = Place(settings, Placement(placement), min(STREAMS, load.coroutines), load.coroutines)

    async def main() -> Sample:
        contender = CONTENDERS[name](place)
        await contender.open()
        try:
            with place.placement.pinned(contender.device_threads()):
                await run_all(contender, max(1, times // 10), chains=load.chains)
                before = contender.counters()
                with stopwatch() as watch:
                    await run_all(contender, times, chains=load.chains)
                after = contender.counters()
        finally:
            await contender.close()
        return watch.sample(
            operations, **{f"{what}_per_op": (after[what] - before[what]) / operations for what in after}
        )

    return run_on(loop, main)


async def run_all(contender: Contender, times: int, *, chains: bool = False) -> None:
    """A coroutine on each lane, all at once."""
    do = contender.chain if chains else contender.copy
    lanes = contender.lanes
    if len(lanes) == 1:
        await _repeat(do, lanes[0], times)
    elif "trio" in sys.modules and not _asyncio_runs():
        import trio

        async with trio.open_nursery() as nursery:
            for lane in lanes:
                nursery.start_soon(_repeat, do, lane, times)
    else:
        await asyncio.gather(*(_repeat(do, lane, times) for lane in lanes))


async def _repeat(do: Callable[[Any], Awaitable[Any]], lane: Any, times: int) -> None:
    for _ in range(times):
        await do(lane)


def _asyncio_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
