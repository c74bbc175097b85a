# SPDX-License-Identifier: Apache-2.0
"""One greedy coroutine that submits 10,000 copies at once to a stream of its own, beside 16 polite ones.

The polite ones await one copy after the other on 7 other streams until the greedy one's are done. Copies take 20 us.
What is given is how long the polite ones wait for a copy; "alone" is without the greedy one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from aioascend.bench.concurrent import STREAMS
from aioascend.bench.contenders import CONTENDERS, Contender, Place
from aioascend.bench.device import device_time
from aioascend.bench.harness import Case, Sample, compare, measure, row_of, run_on, stopwatch
from aioascend.bench.placement import Placement
from aioascend.bench.results import Goal, Row, percentile
from aioascend.bench.settings import Settings

__all__ = ["NAME", "goal", "run"]

NAME = "fairness"
_GREEDY = 10_000
_POLITE = 16
_DEVICE_US = 20.0


def run(settings: Settings) -> list[Row]:
    """The rows, on asyncio and uvloop."""
    loops = settings.asyncio_loops
    names = ["aioascend", "pyacl", "executor-32"]
    greedy = settings.count(_GREEDY)
    if settings.quick:
        loops, names, greedy = ("asyncio",), names[:2], greedy // 4
    cases = [
        Case(
            name,
            loop,
            {"greedy": count, "placement": placement},
            _runner(name, loop, count, greedy, placement, settings),
        )
        for placement in settings.placements
        for count in (0, greedy)
        for loop in (loops if placement == settings.placements[0] else loops[:1])
        for name in names
    ]
    with device_time(settings, _DEVICE_US):
        return compare(
            [
                row_of(NAME, case, samples, figure="wait_p99", unit="us wait p99")
                for case, samples in measure(NAME, cases, settings)
            ]
        )


def _runner(name: str, loop: str, greedy: int, usual: int, placement: str, settings: Settings) -> Callable[[], Sample]:
    place = Place(settings, Placement(placement), STREAMS, STREAMS * 3)

    async def main() -> Sample:
        contender = CONTENDERS[name](place)
        await contender.open()
        try:
            with place.placement.pinned(contender.device_threads()):
                return await _measure(contender, greedy, usual)
        finally:
            await contender.close()

    return lambda: run_on(loop, main)


async def _measure(contender: Contender, greedy: int, usual: int) -> Sample:
    # Every eighth lane has the first stream, which is the greedy one's.
    own, others = contender.lanes[0], [lane for i, lane in enumerate(contender.lanes) if i % STREAMS][:_POLITE]
    waits: list[float] = []
    stop = False

    async def be_polite(lane: Any) -> None:
        while not stop:
            began = time.perf_counter_ns()
            await contender.copy(lane)
            waits.append((time.perf_counter_ns() - began) / 1000)

    with stopwatch() as watch:
        polite = [asyncio.ensure_future(be_polite(lane)) for lane in others]
        try:
            await asyncio.sleep(0)
            if greedy:
                for _ in range(greedy - 1):
                    contender.submit(own)
                await contender.copy(own)
            else:
                await asyncio.sleep(usual * _DEVICE_US * 1e-6)
        finally:
            stop = True
            await asyncio.gather(*polite)
    return watch.sample(
        greedy + len(waits),
        wait_p50=percentile(waits, 0.5),
        wait_p99=percentile(waits, 0.99),
        wait_max=max(waits),
        polite_per_ms=len(waits) / watch.seconds / 1000,
    )


def goal(rows: Sequence[Row]) -> Goal | None:
    """None: nothing is promised of it."""
    return None
