# SPDX-License-Identifier: Apache-2.0
"""Pool size: does a stream pool that nobody has told a size serve as fast as one of the best size?

Requests, more at once than there are streams, are copied in, run and copied out, each on a stream of the pool. Three
devices need different numbers of streams to be kept busy: one with one core and equal stages, one with eight cores and
long runs, one that waits for its copies. On each the pools of fixed sizes stand beside one without a size, which starts
with no stream and has nothing but the number of cores to go by.

The run takes place in real time, so what the host needs counts, and so does the making of the streams.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import aioascend as aa
from aioascend.bench.device import device_profile
from aioascend.bench.goals import best
from aioascend.bench.harness import Case, Sample, measure, row_of, run_on, stopwatch
from aioascend.bench.overlap import Stages
from aioascend.bench.results import Goal, Part, Row
from aioascend.bench.settings import Settings
from aioascend.bench.staged import SHAPE, Request, check, description, make_requests, warm_up

__all__ = ["NAME", "goal", "run"]

NAME = "pool-size"
OURS = "aioascend, no size"
SIZES = (1, 2, 4, 8, 16)
AT_ONCE = 32


@dataclasses.dataclass(frozen=True)
class Kind:
    """A device: its cores, and what the stages of a request take on it."""

    name: str
    cores: int
    stages: Stages


KINDS = (
    Kind("one core, equal stages", 1, Stages(500, 500, 500)),
    Kind("eight cores, long runs", 8, Stages(400, 3200, 400)),
    Kind("two cores, slow copies", 2, Stages(800, 400, 200)),
)
REQUESTS = 240


def run(settings: Settings) -> list[Row]:
    """Measure every kind of device with every size.

    Raises:
        UnavailableError: the library in use is not the simulator.
    """
    loops = settings.asyncio_loops[:1] if settings.quick else settings.asyncio_loops
    sizes = SIZES[2:] if settings.quick else SIZES  # the best one is among these
    cases = [_case(settings, kind, loop, size) for kind in KINDS for loop in loops for size in (None, *sizes)]
    return [row_of(NAME, case, samples) for case, samples in measure(NAME, cases, settings)]


async def _serve(pool: aa.StreamPool, models: list[aa.Model], requests: Sequence[Request]) -> None:
    npu = pool.device
    waiting = iter(requests)

    async def serve() -> None:
        x, y = npu.empty(SHAPE), npu.empty(SHAPE)
        for request in waiting:
            async with pool.acquire() as stream:
                model = models.pop()  # one for each stream: a model runs on one at a time
                stream.memcpy(x, request.source)
                stream.execute(model, [x], [y])
                await stream.memcpy(request.result, y)
                models.append(model)

    await asyncio.gather(*(serve() for _ in range(AT_ONCE)))


def _case(settings: Settings, kind: Kind, loop: str, size: int | None) -> Case:
    async def main() -> Sample:
        with device_profile(settings, kind.stages.profile(kind.cores)):
            async with aa.open_device(0) as npu:
                models = [await npu.load_model(description("stage")) for _ in range(max(SIZES))]
                async with npu.create_stream() as stream:
                    await warm_up(npu, [(stream, models[0])])
                requests = make_requests(settings.count(REQUESTS // (4 if size in (1, 2) else 1)))
                async with aa.StreamPool(npu, size) as pool:
                    with stopwatch() as watch:
                        await _serve(pool, models, requests)
                    streams = pool.size
                check(requests)
        return watch.sample(len(requests), streams=streams)

    name = OURS if size is None else f"aioascend, {size} streams".removesuffix("s" if size == 1 else "")
    return Case(name, loop, {"device": kind.name}, lambda: run_on(loop, main))


def goal(rows: Sequence[Row]) -> Goal | None:
    """At least 95 % of the throughput of the best fixed size."""
    parts = []
    for row in rows:
        if row.scenario != NAME or row.contender != OURS:
            continue
        fixed = best(
            other
            for other in rows
            if other.scenario == NAME
            and (other.loop, other.parameters) == (row.loop, row.parameters)
            and other.contender != OURS
        )
        if fixed is not None:
            note = f"{row.counters['streams']:g} streams; {fixed.contender.removeprefix('aioascend, ')} are best"
            name = f"{row.parameters['device']}, {row.loop}"
            parts.append(Part(name, fixed.median / row.median, 0.95, at_least=True, note=note))
    return Goal("7 pool size", tuple(parts)) if parts else None
