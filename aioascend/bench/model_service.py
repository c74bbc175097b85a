# SPDX-License-Identifier: Apache-2.0
"""A model as a service: what part of the possible throughput many `await model(x)` at once reach.

64 coroutines call one model, which was loaded once. The profile gives the copy in, the run and the copy out the same
time, and the device has one unit for each. The bound and the figure are those of `aioascend.bench.overlap`: calls x
time of a stage / (last end - first start), on the simulator's timeline and in real time. Beside that stands what one
call at a time reaches.
"""

from __future__ import annotations

from collections.abc import Sequence

import aioascend as aa
from aioascend.bench.device import device_profile
from aioascend.bench.harness import Case, Sample, measure, run_on, stopwatch
from aioascend.bench.overlap import MIDDLE, OURS, SHORT, Stages, row_of
from aioascend.bench.results import Goal, Part, Row
from aioascend.bench.settings import Settings
from aioascend.bench.staged import check, description, make_requests, serving
from aioascend.testing import unit_overlap

__all__ = ["NAME", "goal", "run"]

NAME = "model-service"
COROUTINES = 64
CALLS = {SHORT: 1000, MIDDLE: 500}
_OF_BOUND = 0.95


def run(settings: Settings) -> list[Row]:
    """Measure. Quick runs have what the goal needs.

    Raises:
        UnavailableError: the library in use is not the simulator.
    """
    loops = settings.asyncio_loops
    cases = [_case(settings, MIDDLE, loop) for loop in loops]
    if not settings.quick:
        cases += [_case(settings, SHORT, loop) for loop in loops]
        cases.append(_case(settings, MIDDLE, loops[0], concurrency=1))
    return [row_of(NAME, case, samples) for case, samples in measure(NAME, cases, settings)]


def _case(settings: Settings, stages: Stages, loop: str, concurrency: int | None = None) -> Case:
    calls = settings.count(CALLS[stages] // (5 if concurrency == 1 else 1))

    async def main() -> Sample:
        with device_profile(settings, stages.profile()) as sim:
            async with (
                aa.open_device(0) as npu,
                npu.load_model(description("stage"), concurrency=concurrency) as model,
            ):
                with sim.virtual_time():
                    await serving(model, make_requests(COROUTINES), COROUTINES)  # brings in the memory
                batch = make_requests(calls)
                sim.clear_timeline()
                with stopwatch() as watch:
                    await serving(model, batch, COROUTINES)
                check(batch)
                span = unit_overlap(sim.timeline()).span * 1e6
        best = stages.best(calls, concurrency or calls)
        return watch.sample(
            calls,
            of_bound=calls * stages.longest / span,
            best=best,
            lost_us_per_request=span / calls - stages.longest / best,
            coroutines=COROUTINES,
        )

    name = OURS if concurrency is None else f"{OURS}, concurrency={concurrency}"
    return Case(name, loop, {"stages_us": str(stages)}, lambda: run_on(loop, main))


def goal(rows: Sequence[Row]) -> Goal | None:
    """At least 95 % of the bound where a stage takes 1 ms."""
    parts = [
        Part(
            f"calls of one model, stages of {row.parameters['stages_us']} us, {row.loop}",
            row.median,
            _OF_BOUND,
            at_least=True,
            note=f"{row.counters['lost_us_per_request']:.3g} us lost per call",
        )
        for row in rows
        if row.scenario == NAME and row.contender == OURS and row.parameters["stages_us"] == str(MIDDLE)
    ]
    return Goal("7 calls of a model", tuple(parts)) if parts else None
