# SPDX-License-Identifier: Apache-2.0
"""How well the loop does everything else while the device is saturated: heartbeat, echo, CPU time.

64 coroutines keep 8 streams busy, with copies of 1 ms (8,000 operations/s) or of 100 us (80,000/s). "idle" is the same
loop without them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence

from aioascend.bench.concurrent import STREAMS, Tally, busy
from aioascend.bench.contenders import CONTENDERS, Contender, Place
from aioascend.bench.goals import HEALTH, find
from aioascend.bench.harness import Case, Sample, device_time, measure, row_of, run_on, stopwatch
from aioascend.bench.heartbeat import Heartbeat, percentile
from aioascend.bench.placement import Placement
from aioascend.bench.results import Goal, Part, Row
from aioascend.bench.settings import Settings

__all__ = ["NAME", "goal", "run"]

NAME = "health"
IDLE = "idle"
_COROUTINES = 64
_SECONDS = 0.5
_RATES = {8_000: 1000.0, 80_000: 100.0}  # operations per second: device time of each in microseconds


def run(settings: Settings) -> list[Row]:
    """The rows, on asyncio and uvloop; quick runs have what the goal needs."""
    settings = dataclasses.replace(settings, loops=tuple(loop for loop in settings.loops if loop != "trio"))
    if settings.quick:
        settings = dataclasses.replace(settings, loops=("asyncio",))
    contenders = {8_000: ["aioascend", "pyacl"], 80_000: ["aioascend"]}
    if not settings.quick:
        contenders = {8_000: ["aioascend", "pyacl", "executor-32", "polling-0"], 80_000: ["aioascend", "pyacl"]}
    in_one = ("aioascend", "pyacl", IDLE)  # the others have little to say there
    settings.simulator("copies that take a set time")
    cases = [
        Case(name, loop, {"rate": rate, "placement": placement}, _runner(name, loop, rate, placement, settings))
        for placement in settings.placements
        for loop in settings.loops
        for rate, name in [(0, IDLE), *((rate, name) for rate in _RATES for name in contenders[rate])]
        if placement == "two" or name in in_one
    ]
    return [_row(case, samples) for case, samples in measure(NAME, cases, settings)]


def _row(case: Case, samples: Sequence[Sample]) -> Row:
    row = row_of(NAME, case, samples, figure="lag_p99", unit="us lag p99")
    return dataclasses.replace(row, cpu_us_per_op=None) if case.contender == IDLE else row


def _runner(name: str, loop: str, rate: int, placement: str, settings: Settings) -> Callable[[], Sample]:
    place = Place(settings, Placement(placement), STREAMS, _COROUTINES)
    seconds = max(0.02, _SECONDS * min(1.0, settings.scale))

    async def idle() -> Sample:
        with place.placement.pinned():
            return await _measure(seconds)

    async def loaded() -> Sample:
        contender = CONTENDERS[name](place)
        await contender.open()
        try:
            with place.placement.pinned(contender.device_threads()):
                return await _measure(seconds, contender)
        finally:
            await contender.close()

    def run() -> Sample:
        if name == IDLE:
            return run_on(loop, idle)
        with device_time(settings, _RATES[rate]):
            return run_on(loop, loaded)

    return run


@contextlib.asynccontextmanager
async def _idle() -> AsyncIterator[Tally]:
    yield Tally()


async def _measure(seconds: float, contender: Contender | None = None) -> Sample:
    heartbeat = Heartbeat()
    async with _idle() if contender is None else busy(contender) as tally:
        await heartbeat.open()
        await asyncio.sleep(seconds / 10)
        try:
            with stopwatch() as watch:
                before = tally.done
                heartbeat.begin()
                await asyncio.sleep(seconds)
                operations = tally.done - before
        finally:
            await heartbeat.close()
    return watch.sample(
        max(1, operations),
        lag_p50=percentile(heartbeat.lags, 0.5),
        lag_p99=percentile(heartbeat.lags, 0.99),
        lag_max=max(heartbeat.lags),
        echo_p50=percentile(heartbeat.echoes, 0.5),
        echo_p99=percentile(heartbeat.echoes, 0.99),
        ops_per_s=operations / watch.seconds,
        cpu_percent=100 * watch.cpu_seconds / watch.seconds,
    )


def goal(rows: Sequence[Row]) -> Goal:
    """Heartbeat and echo beside the idle loop's, CPU time beside pyACL's."""
    parts: list[Part] = []
    for loop in ("asyncio", "uvloop"):
        idle = find(rows, IDLE, loop, scenario=NAME, placement="two")
        slow, pyacl = (
            find(rows, name, loop, scenario=NAME, placement="two", rate=8000) for name in ("aioascend", "pyacl")
        )
        fast = find(rows, "aioascend", loop, scenario=NAME, placement="two", rate=80000)
        if idle is None:
            continue
        if slow is not None:
            # Cannot be told from the idle loop: the difference is no more than the spreads of the two.
            noise = 1 + (slow.spread + idle.spread) / idle.median
            parts.append(
                _of_idle(
                    "heartbeat lag p99 at 8,000/s, of the idle loop's (target: its spread)", loop, slow, idle, noise
                )
            )
        if fast is not None:
            parts.append(_of_idle("heartbeat lag p99 at 80,000/s, of the idle loop's", loop, fast, idle, 1.3))
        for rate, row in ((8000, slow), (80000, fast)):
            if row is not None:
                name = f"echo p99 at {rate:,}/s, of the idle loop's"
                parts.append(_of_idle(name, loop, row, idle, 1.3, "echo_p99"))
        if slow is not None and pyacl is not None:
            # What heartbeat and echo take themselves is no cost of either.
            ours, its = (row.counters["cpu_percent"] - idle.counters["cpu_percent"] for row in (slow, pyacl))
            note = f"{ours:.3g} and {its:.3g} % of a core, beside {idle.counters['cpu_percent']:.3g} for the heartbeat"
            value = ours / its if its > 0 else float("inf")
            parts.append(Part(f"CPU time at 8,000/s, of pyacl's, {loop}", value, 0.5, note=note))
    return Goal(HEALTH, tuple(parts))


def _of_idle(name: str, loop: str, row: Row, idle: Row, target: float, figure: str | None = None) -> Part:
    value, base = (each.median if figure is None else each.counters[figure] for each in (row, idle))
    return Part(f"{name}, {loop}", value / base, target, note=f"{value:.3g} and {base:.3g} us")
