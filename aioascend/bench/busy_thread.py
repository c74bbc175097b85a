# SPDX-License-Identifier: Apache-2.0
"""64 awaiting coroutines beside a thread that computes in Python and so holds the GIL whenever it can."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence

from aioascend.bench.busy import busy
from aioascend.bench.concurrent import STREAMS
from aioascend.bench.contenders import CONTENDERS, Place
from aioascend.bench.device import device_time
from aioascend.bench.goals import HEALTH, find
from aioascend.bench.harness import Case, Sample, compare, measure, row_of, run_on, stopwatch
from aioascend.bench.placement import Placement
from aioascend.bench.results import Goal, Part, Row
from aioascend.bench.settings import Settings

__all__ = ["NAME", "goal", "run"]

NAME = "busy-thread"
_COROUTINES = 64
_SECONDS = 0.25


def run(settings: Settings) -> list[Row]:
    """The rows, on asyncio and uvloop. Without CPU times: those of the other thread would be in them."""
    loops = settings.asyncio_loops
    # No poller: what it finds done at once never suspends it, and so nothing else on the loop would ever run.
    names = ["aioascend", "pyacl", "executor-4", "executor-32"]
    if settings.quick:
        loops, names = ("asyncio",), names[:2]
    cases = [
        Case(name, loop, {"coroutines": _COROUTINES, "placement": placement}, _runner(name, loop, placement, settings))
        for placement in settings.placements
        for loop in (loops if placement == settings.placements[0] else loops[:1])
        for name in names
    ]
    with device_time(settings, 0):
        rows = [row_of(NAME, case, samples) for case, samples in measure(NAME, cases, settings)]
    return [dataclasses.replace(row, cpu_us_per_op=None) for row in compare(rows)]


def _runner(name: str, loop: str, placement: str, settings: Settings) -> Callable[[], Sample]:
    place = Place(settings, Placement(placement), STREAMS, _COROUTINES)

    async def main() -> Sample:
        contender = CONTENDERS[name](place)
        await contender.open()
        try:
            with _computing(), place.placement.pinned(contender.device_threads()):
                async with busy(contender) as tally:
                    await asyncio.sleep(0)  # all have begun
                    with stopwatch() as watch:
                        before = tally.done
                        await asyncio.sleep(_SECONDS * min(1.0, settings.scale))
                        operations = tally.done - before
        finally:
            await contender.close()
        return watch.sample(max(1, operations))

    return lambda: run_on(loop, main)


@contextlib.contextmanager
def _computing() -> Iterator[None]:
    stop = False

    def compute() -> None:
        number = 0
        while not stop:
            number = (number * 31 + 7) % 65537

    thread = threading.Thread(target=compute, name="busy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop = True
        thread.join()


def goal(rows: Sequence[Row]) -> Goal:
    """The throughput beside pyACL's."""
    parts: list[Part] = []
    ours, pyacl = (find(rows, name, "asyncio", scenario=NAME, placement="two") for name in ("aioascend", "pyacl"))
    if ours is not None and pyacl is not None:
        note = f"{ours.median:.3g} and {pyacl.median:.3g} us/op"
        name = "throughput beside a busy thread, times pyacl's, asyncio"
        parts.append(Part(name, pyacl.median / ours.median, 50, at_least=True, note=note))
    return Goal(HEALTH, tuple(parts))
