# SPDX-License-Identifier: Apache-2.0
"""Chains of copy-in, 8 memsets (which stand for kernels) and copy-out, with one await, for the end.

And what one submit that nobody awaits costs: here, and the library's own call in C. Ours is timed twice: where a task
goes on that has just awaited an operation, and in a turn of the loop that has nothing to do with the device. A third
figure also counts what comes after the submits, until each operation is done and known to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from anyio.lowlevel import checkpoint

from aioascend.bench import _rivals
from aioascend.bench.concurrent import Load, measure_loads
from aioascend.bench.contenders import CONTENDERS, Place
from aioascend.bench.device import device_time
from aioascend.bench.goals import find, share_of
from aioascend.bench.harness import FLOOR, Case, Sample, compare, cpu_seconds, measure, row_of, run_on
from aioascend.bench.placement import Placement
from aioascend.bench.results import Goal, Part, Row
from aioascend.bench.rig import Rig, load_acl
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

        async def submit_batches(*, own_turn: bool) -> tuple[float, float]:
            """Seconds for all the submits, and until they are resolved."""
            seconds = resolved = 0.0
            for _ in range(batches):
                if own_turn:
                    await checkpoint()
                began = perf_counter()
                for _ in range(_BATCH):
                    stream.memset(byte, 1)
                seconds += perf_counter() - began
                await stream
                resolved += perf_counter() - began
            return seconds, resolved

        submits = _BATCH * batches
        try:
            with place.placement.pinned():
                cpu = cpu_seconds()
                seconds, resolved = await submit_batches(own_turn=False)
                cpu = cpu_seconds() - cpu
                own_turn, _ = await submit_batches(own_turn=True)
        finally:
            await contender.close()
        figures = {"own_turn": own_turn / submits * 1e6, "resolved": resolved / submits * 1e6}
        return Sample(submits, seconds, cpu, figures)

    return lambda: run_on(loop, main)


def goal(rows: Sequence[Row]) -> Goal:
    """The cost of a submit, callbacks per chain, and chains beside pyACL's: held on asyncio, reported for uvloop."""
    parts: list[Part] = []
    for loop in ("asyncio", "uvloop"):
        held = loop == "asyncio"
        ours = find(rows, "aioascend", loop, scenario=NAME, what="submit", placement="two")
        library = find(rows, FLOOR, "-", scenario=NAME, what="submit", placement="two")
        if ours and library:
            for where, cost, target in (
                ("after an await", ours.median, 0.3),
                ("in a turn of its own", ours.counters["own_turn"], None),
                ("with its resolution", ours.counters["resolved"], None),
            ):
                name = f"us per un-awaited submit {where}, above the library's call, {loop}"
                note = f"{cost:.3g} us; the library's own call {library.median:.3g}"
                parts.append(Part(name, cost - library.median, target if held else None, note=note))
        at = {"scenario": NAME, "coroutines": 64, "device_us": 0.0, "placement": "two"}
        ours, pyacl = find(rows, "aioascend", loop, **at), find(rows, "pyacl", loop, **at)
        if ours:
            name = f"callbacks per chain, {loop}"
            parts.append(Part(name, ours.counters["callbacks_per_op"], 1.0 if held else None))
        floor = find(rows, FLOOR, "-", **at)
        parts += share_of(f"time above the floor, of pyacl's, {loop}", ours, pyacl, floor, 1 / 4 if held else None)
    return Goal("3 chains", tuple(parts))
