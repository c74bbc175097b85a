# SPDX-License-Identifier: Apache-2.0
"""Overlap: what part of the possible throughput independent requests reach when their copies and runs overlap.

A request is copied in, run and copied out; the profile gives each of the three its time, and the device has one unit
for each. Then no more requests can pass than the busiest unit takes: that is the bound. The figure is

    requests x time of the longest stage / (last end - first start, on the simulator's timeline)

of the whole run, the filling of the pipeline and its emptying included; `best` is what this would be without any loss.
The run takes place in real time, so what the host needs between two requests counts. A task that took longer than the
profile says counts as loss, not as work.

Each stream has a model of its own and two coroutines. Beside that stands what becomes of it with one coroutine, when
the stream stands still until the host has heard of a request and sent the next; and with one model for all streams,
whose runs keep the order of their submits, so that one whose input is late holds up the others.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

import aioascend as aa
from aioascend.bench.device import device_profile
from aioascend.bench.harness import Case, Sample, measure, run_on, stopwatch
from aioascend.bench.results import Goal, Part, Row, median_and_spread
from aioascend.bench.settings import Settings
from aioascend.bench.staged import (
    SHAPE,
    check,
    description,
    make_requests,
    overlapping,
    sequential,
    warm_up,
)
from aioascend.testing import unit_overlap

__all__ = ["MIDDLE", "NAME", "OURS", "SHORT", "Stages", "goal", "row_of", "run"]

NAME = "overlap"
OURS = "aioascend"
UNIT = "of the bound"


@dataclasses.dataclass(frozen=True)
class Stages:
    """What the copies and the run of a request take, in microseconds."""

    copy_in: float
    compute: float
    copy_out: float

    @property
    def longest(self) -> float:
        return max(self.copy_in, self.compute, self.copy_out)

    @property
    def shortest(self) -> float:
        return min(self.copy_in, self.compute, self.copy_out)

    @property
    def total(self) -> float:
        return self.copy_in + self.compute + self.copy_out

    def best(self, requests: int, streams: int) -> float:
        """What part of the bound so many requests can reach at most.

        The pipeline has to be filled and emptied once; and a stream, which does one thing after the other, takes the
        sum of the stages for each of its requests.
        """
        filled = self.total + (requests - 1) * self.longest
        return requests * self.longest / max(filled, math.ceil(requests / streams) * self.total)

    def profile(self, ai_cores: int = 1) -> str:
        """A device with one unit per stage, which takes this long."""
        nbytes = int(np.prod(SHAPE)) * 4
        return (
            f'name = "overlap"\nai_cores = {ai_cores}\n'
            f"h2d_gbps = {nbytes / self.copy_in / 1e3!r}\nd2h_gbps = {nbytes / self.copy_out / 1e3!r}\n"
            f'[models."stage"]\nlatency_us = {self.compute!r}\n'
        )

    def __str__(self) -> str:
        return f"{self.copy_in:g}:{self.compute:g}:{self.copy_out:g}"


SHORT, MIDDLE, LONG = Stages(200, 200, 200), Stages(1000, 1000, 1000), Stages(5000, 5000, 5000)
SLOW_RUN, SLOW_COPY = Stages(1000, 3000, 1000), Stages(2000, 1000, 1000)

# So many that filling and emptying costs 0.4 to 2 %.
REQUESTS = {SHORT: 500, MIDDLE: 200, LONG: 100, SLOW_RUN: 100, SLOW_COPY: 100}
_JUDGED = ("of_bound", "best", "lost_us_per_request")
_SHORT_ENOUGH = 1000  # us: where it takes longer, the host hardly matters


def run(settings: Settings) -> list[Row]:
    """Measure every stage times with every number of streams.

    Raises:
        UnavailableError: the library in use is not the simulator.
    """
    cases = [case for stages in REQUESTS for case in _cases(settings, stages)]
    return [row_of(NAME, case, samples) for case, samples in measure(NAME, cases, settings)]


def _cases(settings: Settings, stages: Stages) -> list[Case]:
    first, *others = settings.asyncio_loops
    if settings.quick:
        equal = stages.longest == stages.shortest
        return [_case(settings, stages, first, 4)] if equal else []
    cases = [
        _case(settings, stages, first, 1, per_stream=0),
        *(_case(settings, stages, first, streams) for streams in (1, 2, 4, 8, 16)),
        *(_case(settings, stages, loop, 4) for loop in others),
    ]
    if stages.longest <= _SHORT_ENOUGH:
        cases += [_case(settings, stages, first, 4, per_stream=1), _case(settings, stages, first, 4, shared=True)]
    return cases


def _case(settings: Settings, stages: Stages, loop: str, count: int, per_stream: int = 2, shared: bool = False) -> Case:
    """per_stream: so many requests at once on each stream; 0: one step after the other. shared: one model for all."""
    requests = settings.count(REQUESTS[stages] // (4 if count <= 2 else 1))

    async def main() -> Sample:
        with device_profile(settings, stages.profile()) as sim:
            async with aa.open_device(0) as npu:
                models = [await npu.load_model(description("stage")) for _ in range(1 if shared else count)]
                lanes = [(await npu.create_stream(), models[lane % len(models)]) for lane in range(count)]
                await warm_up(npu, lanes)
                batch = make_requests(requests)
                sim.clear_timeline()
                with stopwatch() as watch:
                    if per_stream == 0:
                        await sequential(npu, lanes[0][0], models, batch)
                    else:
                        await overlapping(npu, lanes, batch, per_stream)
                check(batch)
                span = unit_overlap(sim.timeline()).span * 1e6
        best = stages.best(requests, count)
        return watch.sample(
            requests,
            of_bound=requests * stages.longest / span,
            best=best,
            lost_us_per_request=span / requests - stages.longest / best,
            streams=count,
            requests_per_stream=per_stream,
            models=len(models),
        )

    name = "sequential" if per_stream == 0 else f"{OURS}, {count} stream{'s' if count > 1 else ''}"
    if per_stream == 1:
        name += ", one request each"
    if shared:
        name += ", one model"
    return Case(name, loop, {"stages_us": str(stages)}, lambda: run_on(loop, main))


def row_of(scenario: str, case: Case, samples: Sequence[Sample]) -> Row:
    """The row of a share of the bound; what else the samples tell stands in its counters."""
    median, spread = median_and_spread([sample.figures["of_bound"] for sample in samples])
    figures = samples[0].figures
    return Row(
        scenario=scenario,
        contender=case.contender,
        loop=case.loop,
        parameters=case.parameters,
        unit=UNIT,
        median=median,
        spread=spread,
        cpu_us_per_op=median_and_spread([sample.cpu_seconds / sample.operations * 1e6 for sample in samples])[0],
        ratios={"best": figures["best"]},
        counters={
            "lost_us_per_request": median_and_spread([one.figures["lost_us_per_request"] for one in samples])[0],
            **{name: value for name, value in figures.items() if name not in _JUDGED},
        },
    )


def _is_recommended(row: Row) -> bool:
    return row.counters["requests_per_stream"] == 2 and row.counters["models"] == row.counters["streams"]


def goal(rows: Sequence[Row]) -> Goal | None:
    """At least 97 % of the bound with four streams and more where the stages take 1 ms and more, else 90 %."""
    parts = []
    for row in rows:
        counters = row.counters
        if row.scenario != NAME or counters["streams"] < 4 or not _is_recommended(row):
            continue
        stages = str(row.parameters["stages_us"])
        target = 0.97 if min(map(float, stages.split(":"))) >= 1000 else 0.90
        name = f"stages of {stages} us, {counters['streams']:g} streams, {row.loop}"
        note = f"{counters['lost_us_per_request']:.3g} us lost per request"
        parts.append(Part(name, row.median, target, at_least=True, note=note))
    return Goal("5 overlap", tuple(parts)) if parts else None
