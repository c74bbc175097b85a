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

from aioascend.bench.busy import Tally, busy
from aioascend.bench.concurrent import STREAMS
from aioascend.bench.contenders import CONTENDERS, Contender, Place
from aioascend.bench.device import device_time
from aioascend.bench.goals import HEALTH, find
from aioascend.bench.harness import Case, Sample, measure, row_of, run_on, stopwatch
from aioascend.bench.heartbeat import Heartbeat
from aioascend.bench.placement import Placement
from aioascend.bench.results import Goal, Part, Row, percentile
from aioascend.bench.settings import Settings

__all__ = ["NAME", "goal", "run"]

NAME = "health"
IDLE = "idle"
_COROUTINES = 64
_SECONDS = 0.6
_RANGE = "lag_p99_range"  # counter: how far the rounds are apart
_RATES = {8_000: 1000.0, 80_000: 100.0}  # operations per second: device time of each in microseconds


def run(settings: Settings) -> list[Row]:
    """The rows, on asyncio and uvloop; quick runs have what the goal needs."""
    settings.simulator("copies that take a set time")
    return [_row(case, samples) for case, samples in measure(NAME, _cases(settings), settings)]


def _cases(settings: Settings) -> list[Case]:
    loops = ("asyncio",) if settings.quick else settings.asyncio_loops
    slow, fast = ["aioascend", "pyacl"], ["aioascend"]
    if not settings.quick:
        slow, fast = [*slow, "executor-32", "polling-0"], ["aioascend", "pyacl"]
    first, *others = settings.placements
    wanted = [(first, loop, name, rate) for loop in loops for name, rate in _rates(slow, fast)]
    wanted += [(place, loops[0], name, rate) for place in others for name, rate in _rates(["aioascend", "pyacl"], [])]
    return [
        Case(name, loop, {"rate": rate, "placement": placement}, _runner(name, loop, rate, placement, settings))
        for placement, loop, name, rate in wanted
    ]


def _rates(slow: Sequence[str], fast: Sequence[str]) -> list[tuple[str, int]]:
    return [(IDLE, 0), *((name, 8_000) for name in slow), *((name, 80_000) for name in fast)]


def _row(case: Case, samples: Sequence[Sample]) -> Row:
    row = row_of(NAME, case, samples, figure="lag_p99", unit="us lag p99")
    if case.contender != IDLE:
        return row
    lags = [sample.figures["lag_p99"] for sample in samples]
    return dataclasses.replace(row, cpu_us_per_op=None, counters={**row.counters, _RANGE: max(lags) - min(lags)})


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
    """Heartbeat and echo beside the idle loop's, CPU time beside pyACL's: the echo at 80,000/s is reported."""
    parts: list[Part] = []
    for loop in ("asyncio", "uvloop"):
        at = {"scenario": NAME, "placement": "two"}
        idle = find(rows, IDLE, loop, **at)
        slow, pyacl = (find(rows, name, loop, rate=8_000, **at) for name in ("aioascend", "pyacl"))
        fast = find(rows, "aioascend", loop, rate=80_000, **at)
        if idle is None:
            continue
        # Not to be told from the idle loop's: no further from it than its own rounds are from each other.
        range_ = idle.counters[_RANGE]
        parts += _of_idle("heartbeat lag p99", loop, slow, idle, 1 + range_ / idle.median, f"rounds {range_:.3g} apart")
        parts += _of_idle("heartbeat lag p99", loop, fast, idle, 1.3)
        parts += _of_idle("echo p99", loop, slow, idle, 1.3, figure="echo_p99")
        parts += _of_idle("echo p99", loop, fast, idle, None, figure="echo_p99")
        if slow is not None and pyacl is not None:
            parts.append(_cpu(loop, slow, pyacl, idle))
    return Goal(HEALTH, tuple(parts))


def _of_idle(
    name: str,
    loop: str,
    row: Row | None,
    idle: Row,
    target: float | None,
    remark: str = "",
    figure: str | None = None,
) -> list[Part]:
    if row is None:
        return []
    value, base = (each.median if figure is None else each.counters[figure] for each in (row, idle))
    note = "; ".join(filter(None, [f"{value:.3g} and {base:.3g} us", remark]))
    name = f"{name} at {row.parameters['rate']:,}/s, of the idle loop's, {loop}"
    return [Part(name, value / base, target, note=note)]


def _cpu(loop: str, ours: Row, pyacl: Row, idle: Row) -> Part:
    mine, its = ours.cpu_us_per_op or 0.0, pyacl.cpu_us_per_op or 0.0
    beyond, its_beyond = (row.counters["cpu_percent"] - idle.counters["cpu_percent"] for row in (ours, pyacl))
    note = f"{mine:.3g} and {its:.3g} us/op; beyond the idle loop's, {beyond:.3g} and {its_beyond:.3g} % of a core"
    return Part(f"CPU time at 8,000/s, of pyacl's, {loop}", mine / its if its else float("inf"), 0.5, note=note)
