# SPDX-License-Identifier: Apache-2.0
"""From 64 to 100,000 operations in flight: what each costs in time, and in memory.

The device is held until so many copies have been submitted, round robin to 8 streams, then released; from there on a
new one is submitted whenever one has been awaited, until there have been enough. "list": one coroutine awaits them, the
oldest first; "tasks": each of so many tasks awaits one after the other. Of each stream the device has at most 512
operations at a time; the others are in the runtime's queue on the host.

Bytes are those by which the resident memory of a fresh process grows, per operation, all threads and the simulator's
own queue entries included; the list that holds the operations is made before.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aioascend
from aioascend._words import counted
from aioascend.bench.concurrent import STREAMS
from aioascend.bench.contenders import CONTENDERS, Contender, Place
from aioascend.bench.device import device_time
from aioascend.bench.harness import Case, Sample, measure, row_of, run_on, stopwatch
from aioascend.bench.placement import Placement
from aioascend.bench.results import Goal, Part, Row, median_and_spread
from aioascend.bench.settings import Settings
from aioascend.testing import Simulator

__all__ = ["AWAIT", "NAME", "goal", "run", "submit"]

NAME = "in-flight"
_COUNTS = (64, 1024, 10_000, 100_000)
_LEAST_OPERATIONS = 20_000  # of one measurement


def run(settings: Settings) -> list[Row]:
    """The rows; quick runs have what the goal needs. pyACL cannot hold more than a stream's queue: it blocks."""
    sim = settings.simulator("holding operations in flight")
    loops = ("asyncio",) if settings.quick else settings.asyncio_loops
    kinds = ["list"] if settings.quick else ["list", "tasks"]
    first = settings.placements[0]
    cases = [
        Case(
            "aioascend",
            loop,
            {"in_flight": settings.count(count), "awaited": kind, "placement": placement},
            _runner(sim, settings.count(count), kind, loop, placement, settings),
        )
        for placement in settings.placements
        for loop in loops
        for kind in (kinds if placement == first else kinds[:1])
        for count in _COUNTS
    ]
    with device_time(settings, 0):
        rows = [row_of(NAME, case, samples) for case, samples in measure(NAME, cases, settings)]
    return rows + _bytes(settings, kinds)


def _runner(
    sim: Simulator, count: int, kind: str, loop: str, placement: str, settings: Settings
) -> Callable[[], Sample]:
    place = Place(settings, Placement(placement), STREAMS, STREAMS)
    total = max(count, settings.count(_LEAST_OPERATIONS))

    async def main() -> Sample:
        contender = CONTENDERS["aioascend"](place)
        await contender.open()
        try:
            with place.placement.pinned(), stopwatch() as watch:
                with sim.hold(device=0):
                    waiting = asyncio.ensure_future(AWAIT[kind](contender, submit(contender, [None] * count), total))
                    await asyncio.sleep(0)  # it has made its tasks
                    await asyncio.sleep(0)  # and these wait
                await waiting
        finally:
            await contender.close()
        return watch.sample(total)

    return lambda: run_on(loop, main)


def submit(contender: Contender, operations: list[Any]) -> list[Any]:
    """Fills the list with copies, round robin to the streams."""
    lanes, copy = contender.lanes, contender.copy
    for i in range(len(operations)):
        operations[i] = copy(lanes[i % STREAMS])
    return operations


async def await_list(contender: Contender, operations: list[Any], total: int) -> None:
    """Always awaits the oldest, and submits another, until there have been `total`."""
    lanes, copy, count = contender.lanes, contender.copy, len(operations)
    for i in range(count, total):
        await operations[i % count]
        operations[i % count] = copy(lanes[i % STREAMS])
    for i in range(total, total + count):
        await operations[i % count]


async def await_tasks(contender: Contender, operations: list[Any], total: int) -> None:
    """A task for each, which goes on with others until there have been `total`."""
    more = total // len(operations) - 1
    await asyncio.gather(*(_await(contender, operation, i % STREAMS, more) for i, operation in enumerate(operations)))


async def _await(contender: Contender, operation: Any, stream: int, more: int) -> None:
    await operation
    for _ in range(more):
        await contender.copy(contender.lanes[stream])


AWAIT = {"list": await_list, "tasks": await_tasks}


def _bytes(settings: Settings, kinds: Sequence[str]) -> list[Row]:
    count = settings.count(_COUNTS[-1])
    rows: list[Row] = []
    # `-m` looks into the current folder first, which may be a checkout where nothing has been compiled.
    folder = Path(aioascend.__file__).parents[1]
    for kind in kinds:
        settings.progress(f"{NAME}: bytes of {counted(count, 'operation')}, {kind}")
        command = [sys.executable, "-m", "aioascend.bench.in_flight_memory", kind, str(count)]
        # All at once: how long they take does not matter.
        programs = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)  # noqa: S603 - ours
            for _ in range(settings.rounds)
        ]
        values = [_number_from(program) for program in programs]
        median, spread = median_and_spread(values)
        parameters: dict[str, object] = {"in_flight": count, "awaited": kind, "what": "memory"}
        rows.append(Row(NAME, "aioascend", "asyncio", parameters, "bytes/op", median, spread))
    return rows


def _number_from(program: subprocess.Popen[str]) -> float:
    output, errors = program.communicate()
    if program.returncode != 0:
        raise RuntimeError(f"measuring memory failed:\n{errors}")
    return float(output)


def goal(rows: Sequence[Row]) -> Goal:
    """CPU time must not grow with the number in flight; bytes of each."""
    parts: list[Part] = []
    for loop in ("asyncio", "uvloop"):
        by_count = sorted(
            (row for row in rows if (row.loop, row.parameters.get("placement")) == (loop, "two") and _is_list(row)),
            key=lambda row: int(str(row.parameters["in_flight"])),
        )
        if len(by_count) > 1:
            costs = [row.cpu_us_per_op or 0.0 for row in by_count]
            pairs = itertools.combinations(costs, 2)
            growth = max(more / few if few > 0 else float("inf") for few, more in pairs)
            note = ", ".join(
                f"{row.parameters['in_flight']}: {cost:.3g} us" for row, cost in zip(by_count, costs, strict=True)
            )
            name = f"growth of the CPU time per awaited operation, from any number in flight to any larger, {loop}"
            parts.append(Part(name, growth, 1.15, note=note))
    for row in rows:
        if row.unit == "bytes/op" and _is_list(row):
            note = f"{row.parameters['in_flight']} in flight"
            parts.append(Part("bytes of an operation in flight, without a task", row.median, 300, note=note))
    return Goal("2 flat in flight", tuple(parts))


def _is_list(row: Row) -> bool:
    return row.scenario == NAME and row.parameters["awaited"] == "list"
