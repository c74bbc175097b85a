# SPDX-License-Identifier: Apache-2.0
"""Batchers on one simulated model: what they lose when there is enough to do, and what they add when there is not.

A run takes 4 ms and 0.5 ms for each item, so a full batch of 8 takes 8 ms. Four loads:

- saturated: 64 callers, each asking again when it has its answer; beside that, full batches that are made by hand and
  of which two are always under way;
- twelve: 12 callers of that kind, who cannot keep two full batches under way;
- single: one caller asks, waits, asks again; beside that, it calls the model itself;
- arrivals: at random moments, on average 500 a second, of at most 1000 that the device can do. How long do the slowest
  hundredth take?
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import numpy as np

import aioascend as aa
from aioascend.bench.batchers import BATCHERS, MAX_BATCH, MAX_DELAY, Ask, is_there
from aioascend.bench.device import device_profile
from aioascend.bench.goals import find
from aioascend.bench.harness import Case, Sample, measure, row_of, run_on, stopwatch
from aioascend.bench.results import Goal, Part, Row, percentile
from aioascend.bench.settings import Settings

__all__ = ["NAME", "goal", "run"]

NAME = "batcher"
OURS = "aioascend"
BY_HAND = "by hand"

_RUN_US, _ITEM_US = 4000, 500
_FULL = (_RUN_US + MAX_BATCH * _ITEM_US) / 1e6  # seconds of a full batch
_RATE = 500
_REQUESTS = {"saturated": 320, "twelve": 320, "single": 40, "arrivals": 480}
_WIDTH = 16

_MODEL = f"""
name = "rows"
latency_us = {_RUN_US}
latency_us_per_item = {_ITEM_US}
dynamic_batch = {list(range(1, MAX_BATCH + 1))}
inputs = [{{ name = "x", shape = [-1, {_WIDTH}] }}]
outputs = [{{ name = "y", shape = [-1, {_WIDTH}], fill = "copy" }}]
""".encode()

Load = Callable[[aa.Model, Ask, int], Awaitable[list[float]]]
"""Makes so many requests; returns the seconds that each took, where it has measured them."""


def run(settings: Settings) -> list[Row]:
    """Measure every load with every batcher that is installed; quick runs what the goal needs.

    Raises:
        UnavailableError: the library in use is not the simulator.
    """
    names = [OURS] if settings.quick else [name for name in BATCHERS if _noted(name, settings)]
    loops = settings.asyncio_loops[:1] if settings.quick else settings.asyncio_loops
    cases = [
        _case(settings, loop, name, load)
        for loop in loops
        for load in (("saturated", "single", "arrivals") if settings.quick else _REQUESTS)
        for name in (*([BY_HAND] if load in ("saturated", "single") else []), *names)
    ]
    with device_profile(settings, 'name = "batcher"\nai_cores = 1\n'):
        return [_row(case, samples) for case, samples in measure(NAME, cases, settings)]


def _noted(name: str, settings: Settings) -> bool:
    there = is_there(name)
    if not there:
        settings.note(f'{NAME}: without {name}, which is not installed: pip install "aioascend[batchers]"')
    return there


def _case(settings: Settings, loop: str, name: str, load: str) -> Case:
    count = settings.count(_REQUESTS[load])

    async def main() -> Sample:
        async with AsyncExitStack() as stack:
            npu = await stack.enter_async_context(aa.open_device(0))
            model = await stack.enter_async_context(npu.load_model(_MODEL))
            ask = await stack.enter_async_context(_by_hand(model) if name == BY_HAND else BATCHERS[name](model))
            program = _full_batches if (name, load) == (BY_HAND, "saturated") else _LOADS[load]
            await program(model, ask, 2 * MAX_BATCH)
            with stopwatch() as watch:
                took = await program(model, ask, count)
        return watch.sample(count, **({"p99_us": percentile(took, 0.99) * 1e6} if took else {}))

    return Case(name, loop, {"load": load}, lambda: run_on(loop, main))


def _row(case: Case, samples: Sequence[Sample]) -> Row:
    if case.parameters["load"] == "arrivals":
        return row_of(NAME, case, samples, figure="p99_us", unit="us p99")
    return row_of(NAME, case, samples)


@asynccontextmanager
async def _by_hand(model: aa.Model) -> AsyncIterator[Ask]:
    yield lambda item: model(item[None])


# --- the loads ---


def _item(number: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.full(_WIDTH, number % 1000, "float32")


async def _ask(ask: Ask, number: int) -> None:
    answer = await ask(_item(number))
    if not np.all(answer == number % 1000):
        raise RuntimeError(f"the answer to {number % 1000} is {answer}")


def _callers(callers: int) -> Load:
    async def load(_: aa.Model, ask: Ask, count: int) -> list[float]:
        numbers = iter(range(count))

        async def caller() -> None:
            for number in numbers:
                await _ask(ask, number)

        await asyncio.gather(*(caller() for _ in range(callers)))
        return []

    return load


async def _full_batches(model: aa.Model, _: Ask, count: int) -> list[float]:
    batches = iter(range(0, count, MAX_BATCH))

    async def worker() -> None:
        for first in batches:
            numbers = range(first, min(first + MAX_BATCH, count))
            answers = await model(np.stack([_item(number) for number in numbers]))
            for number, answer in zip(numbers, answers, strict=True):
                if not np.all(answer == number % 1000):
                    raise RuntimeError(f"the answer to {number % 1000} is {answer}")

    await asyncio.gather(worker(), worker())
    return []


async def _arrivals(_: aa.Model, ask: Ask, count: int) -> list[float]:
    gaps = random.Random(500)  # noqa: S311 - an order, not a secret
    took: list[float] = []

    async def caller(number: int) -> None:
        began = time.perf_counter()  # uvloop's clock has milliseconds
        await _ask(ask, number)
        took.append(time.perf_counter() - began)

    async with anyio.create_task_group() as group:
        due = anyio.current_time()
        for number in range(count):
            due += gaps.expovariate(_RATE)
            await anyio.sleep_until(due)
            group.start_soon(caller, number)
    return took


_LOADS: dict[str, Load] = {
    "saturated": _callers(64),
    "twelve": _callers(12),
    "single": _callers(1),
    "arrivals": _arrivals,
}


def goal(rows: Sequence[Row]) -> Goal | None:
    """Saturated, 95 % of what is made by hand; alone, 5 % slower at most; of 100 that arrive, 99 leave in time. Where
    other batchers were measured, ahead of them in throughput, when the device is not full anyway, and in p99."""
    parts = []
    for loop in dict.fromkeys(row.loop for row in rows if row.scenario == NAME):
        ours, hand = (
            {load: find(rows, name, loop, scenario=NAME, load=load) for load in _REQUESTS} for name in (OURS, BY_HAND)
        )
        if (many := ours["saturated"]) is not None and (full := hand["saturated"]) is not None:
            note = f"{many.median:.4g} and {full.median:.4g} us a request"
            name = f"saturated, of full batches by hand, {loop}"
            parts.append(Part(name, full.median / many.median, 0.95, at_least=True, note=note))
        if (one := ours["single"]) is not None and (alone := hand["single"]) is not None:
            note = f"{one.median:.4g} of {alone.median:.4g} us"
            parts.append(Part(f"added to a single request, {loop}", one.median / alone.median - 1, 0.05, note=note))
        if (late := ours["arrivals"]) is not None:
            wait, allowed = late.median / 1e6 - _FULL, MAX_DELAY + _FULL
            note = f"waits for {wait * 1e3:.3g} ms, of {allowed * 1e3:.3g} ms"
            parts.append(Part(f"p99 before the run, of max_delay and a run, {loop}", wait / allowed, 1.0, note=note))
        for load, what in (("twelve", "time of 12 callers"), ("arrivals", "p99 of arrivals")):
            others = {name: find(rows, name, loop, scenario=NAME, load=load) for name in BATCHERS if name != OURS}
            best = min(filter(None, others.values()), key=lambda row: row.median, default=None)
            if (mine := ours[load]) is not None and best is not None:
                note = f"{mine.median:.4g} of {best.median:.4g} us, {best.contender}"
                parts.append(
                    Part(f"{what}, of the best other batcher's, {loop}", mine.median / best.median, 1.0, note=note)
                )
    return Goal("7 batching", tuple(parts)) if parts else None
