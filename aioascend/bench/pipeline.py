# SPDX-License-Identifier: Apache-2.0
"""Pipelines whose stages take now more, now less time: what part of what the slowest stage allows is reached?

Copy-in, run and copy-out are stages with streams of their own, and the device has one unit for each. What they take for
an item is up to 30 % more or less than their mean, each for itself. No more items can pass than the slowest stage takes
for all of them: that is the bound. The figure is

    time of the slowest stage for all items, by the profile / (last end - first start, on the simulator's timeline)

of the whole run, in real time, the filling of the pipeline and its emptying included. Beside the pipeline with two
workers per stage stand one with one, where each unit waits between two items until the host has heard of the first, and
one item after the other.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np
from numpy.typing import NDArray

import aioascend as aa
from aioascend.bench.device import device_profile
from aioascend.bench.harness import Case, Sample, measure, row_of, run_on, stopwatch
from aioascend.bench.results import Goal, Part, Row
from aioascend.bench.settings import Settings
from aioascend.testing import simulator, unit_overlap

__all__ = ["NAME", "goal", "run"]

NAME = "pipeline"
OURS = "aioascend"
JITTER = 0.3
KINDS = 8
"""Of items, each with a model of its own."""

_MEAN_SIZE = 1000  # elements of a tensor

# Means of copy-in, run and copy-out in microseconds, and so many items that filling and emptying costs about 1 %.
ITEMS = {(2000, 2000, 2000): 200, (2000, 4000, 2000): 100}


@dataclasses.dataclass(frozen=True)
class Kind:
    """Items of the same size, in elements of the tensors, and with the same latency, in microseconds."""

    number: int
    size_in: int
    latency: float
    size_out: int

    @classmethod
    def drawn(cls, number: int, mean_latency: float) -> Kind:
        """The same each time."""
        dice = random.Random(number)  # noqa: S311 - no secret
        size_in, latency, size_out = (1 + JITTER * (2 * dice.random() - 1) for _ in range(3))
        return cls(number, round(_MEAN_SIZE * size_in), mean_latency * latency, round(_MEAN_SIZE * size_out))

    def description(self) -> bytes:
        """A model for them, whose answer is the sum of its input."""
        return f"""
name = "kind-{self.number}"
latency_us = {self.latency!r}
inputs = [{{ name = "x", shape = [{self.size_in}] }}]
outputs = [{{ name = "y", shape = [{self.size_out}], fill = "sum" }}]
""".encode()


@dataclasses.dataclass(frozen=True)
class Item:
    """What is sent in, and where the answer goes."""

    kind: Kind
    source: NDArray[np.float32]
    result: NDArray[np.float32]


def run(settings: Settings) -> list[Row]:
    """Measure pipelines of all times and numbers of workers.

    Raises:
        UnavailableError: the library in use is not the simulator.
    """
    first, *others = settings.loops
    cases = []
    for means in ITEMS:
        cases.append(_case(settings, means, first, f"{OURS}, 2 workers", 2))
        if not settings.quick:
            cases += [_case(settings, means, loop, f"{OURS}, 2 workers", 2) for loop in others]
            cases.append(_case(settings, means, first, f"{OURS}, 1 worker", 1))
            cases.append(_case(settings, means, first, "one by one", 1, one_by_one=True))
    return [
        row_of(NAME, case, samples, figure="of_bound", unit="of the bound")
        for case, samples in measure(NAME, cases, settings)
    ]


def _case(
    settings: Settings, means: tuple[int, int, int], loop: str, name: str, workers: int, *, one_by_one: bool = False
) -> Case:
    copy_in, compute, copy_out = means
    kinds = [Kind.drawn(number, compute) for number in range(KINDS)]
    items = _items(kinds, settings.count(ITEMS[means] // (4 if one_by_one else 1)))
    bound = max(
        copy_in * sum(item.kind.size_in for item in items) / _MEAN_SIZE,
        sum(item.kind.latency for item in items),
        copy_out * sum(item.kind.size_out for item in items) / _MEAN_SIZE,
    )
    nbytes = _MEAN_SIZE * 4
    rates = f"h2d_gbps = {nbytes / copy_in / 1e3!r}\nd2h_gbps = {nbytes / copy_out / 1e3!r}\n"
    profile = f'name = "pipeline"\nai_cores = 1\n{rates}'

    async def main() -> Sample:
        with device_profile(settings, profile) as sim:
            async with aa.open_device(0) as npu, _pipeline(npu, kinds, workers) as pipeline:
                with simulator().virtual_time():
                    async for _ in pipeline.map(_items(kinds, 4 * KINDS)):
                        pass
                sim.clear_timeline()
                with stopwatch() as watch:
                    if one_by_one:
                        for item in items:
                            await pipeline(item)
                    else:
                        async for _ in pipeline.map(items):
                            pass
                _check(items)
                span = unit_overlap(sim.timeline()).span * 1e6
        return watch.sample(len(items), of_bound=bound / span, lost_us_per_item=(span - bound) / len(items))

    return Case(name, loop, {"means_us": ":".join(map(str, means))}, lambda: run_on(loop, main))


@asynccontextmanager
async def _pipeline(npu: aa.Device, kinds: Sequence[Kind], workers: int) -> AsyncIterator[aa.Pipeline[Item, Item]]:
    # AscendCL runs a model on one stream at a time, so each worker has models of its own.
    unused = [[await npu.load_model(kind.description()) for kind in kinds] for _ in range(workers)]
    models_of: dict[int, list[aa.Model]] = {}

    async def copy_in(item: Item, stream: aa.Stream) -> tuple[Item, aa.DeviceBuffer]:
        x = npu.empty_like(item.source)
        await stream.memcpy(x, item.source)
        return item, x

    async def compute(given: tuple[Item, aa.DeviceBuffer], stream: aa.Stream) -> tuple[Item, aa.DeviceBuffer]:
        item, x = given
        if stream.id not in models_of:
            models_of[stream.id] = unused.pop()
        y = npu.empty_like(item.result)
        await stream.execute(models_of[stream.id][item.kind.number], [x], [y])
        return item, y

    async def copy_out(given: tuple[Item, aa.DeviceBuffer], stream: aa.Stream) -> Item:
        item, y = given
        await stream.memcpy(item.result, y)
        return item

    async with aa.Pipeline(
        aa.Stage(copy_in, streams=npu, concurrency=workers),
        aa.Stage(compute, streams=npu, concurrency=workers),
        aa.Stage(copy_out, streams=npu, concurrency=workers),
    ) as pipeline:
        yield pipeline


def _items(kinds: Sequence[Kind], count: int) -> list[Item]:
    dice = random.Random(count)  # noqa: S311 - no secret
    items = []
    for number in range(count):
        kind = dice.choice(kinds)
        source = np.full(kind.size_in, number % 100, "float32")
        items.append(Item(kind, source, np.full(kind.size_out, np.nan, "float32")))
    return items


def _check(items: Sequence[Item]) -> None:
    """Raises when an answer is not right: a benchmark of wrong answers says nothing."""
    for item in items:
        if not np.allclose(item.result, item.source.sum()):
            raise RuntimeError(f"the answer to {item.source[0]} is {item.result[0]}, not {item.source.sum()}")


def goal(rows: Sequence[Row]) -> Goal | None:
    """At least 95 % of the bound with two workers per stage."""
    parts = [
        Part(
            f"stages of {row.parameters['means_us']} us, {row.loop}",
            row.median,
            0.95,
            at_least=True,
            note=f"{row.counters['lost_us_per_item']:.3g} us lost per item",
        )
        for row in rows
        if row.scenario == NAME and row.contender == f"{OURS}, 2 workers"
    ]
    return Goal("7 pipeline", tuple(parts)) if parts else None
