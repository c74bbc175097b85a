# SPDX-License-Identifier: Apache-2.0
"""Running cases: interleaved rounds in shuffled order, medians, and what can be said of them side by side."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import random
import resource
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import anyio

from aioascend.bench.results import Row, median_and_spread
from aioascend.bench.settings import Settings

__all__ = [
    "FLOOR",
    "Case",
    "Sample",
    "Stopwatch",
    "above_floor",
    "compare",
    "cpu_seconds",
    "measure",
    "row_of",
    "run_on",
    "stopwatch",
]

T = TypeVar("T")

FLOOR = "floor"


@dataclasses.dataclass
class Sample:
    """One measurement: what it took, for so many operations.

    `seconds` and `cpu_seconds` (of all threads) are of all operations; `figures` are other values, one per name, of
    which the median is taken as well.
    """

    operations: int
    seconds: float
    cpu_seconds: float
    figures: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Case:
    """One contender in one setting, and how it is measured once."""

    contender: str
    loop: str
    parameters: dict[str, object]
    run: Callable[[], Sample]


@dataclasses.dataclass
class Stopwatch:
    """Wall-clock and CPU time, in seconds, of a block; made by `stopwatch`."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def sample(self, operations: int, **figures: float) -> Sample:
        """The block as a sample of so many operations."""
        return Sample(operations, self.seconds, self.cpu_seconds, figures)


@contextlib.contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Times its block. The garbage is collected before, so that each block pays for its own.

    The collector stays on, as in any program. In `measure` it does not see what was there before, or the size of
    whatever happens to be imported would show in the figures.
    """
    watch = Stopwatch()
    gc.collect()
    cpu, began = cpu_seconds(), time.perf_counter()
    try:
        yield watch
    finally:
        watch.seconds = time.perf_counter() - began
        watch.cpu_seconds = cpu_seconds() - cpu


def cpu_seconds() -> float:
    """User and system time of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run_on(loop: str, main: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function on a fresh event loop of this kind."""
    if loop == "trio":
        return anyio.run(main, backend="trio")
    return anyio.run(main, backend="asyncio", backend_options={"use_uvloop": loop == "uvloop"})


def measure(scenario: str, cases: Sequence[Case], settings: Settings) -> list[tuple[Case, list[Sample]]]:
    """Measure each case once per round, in another order each round, so that drift of the machine hits all alike."""
    samples: list[list[Sample]] = [[] for _ in cases]
    shuffle = random.Random(20240601).shuffle  # noqa: S311 - an order, not a secret
    order = list(range(len(cases)))
    gc.collect()
    gc.freeze()
    try:
        for number in range(settings.rounds):
            shuffle(order)
            for index in order:
                case = cases[index]
                setting = " ".join(f"{key}={value}" for key, value in case.parameters.items())
                settings.progress(f"{scenario} {number + 1}/{settings.rounds}: {case.contender} {case.loop} {setting}")
                samples[index].append(case.run())
    finally:
        gc.unfreeze()
    return list(zip(cases, samples, strict=True))


def row_of(
    scenario: str, case: Case, samples: Sequence[Sample], *, figure: str | None = None, unit: str = "us/op"
) -> Row:
    """A row of the medians: of microseconds per operation, or of one of the figures; the others are its counters."""
    names = [name for name in samples[0].figures if name != figure]
    per_operation = [sample.seconds / sample.operations * 1e6 for sample in samples]
    median, spread = median_and_spread(per_operation if figure is None else [s.figures[figure] for s in samples])
    cpu, cpu_spread = median_and_spread([sample.cpu_seconds / sample.operations * 1e6 for sample in samples])
    counters = {"cpu_spread": cpu_spread}
    for name in names:
        counters[name], counters[f"{name}_spread"] = median_and_spread([sample.figures[name] for sample in samples])
    return Row(
        scenario=scenario,
        contender=case.contender,
        loop=case.loop,
        parameters=case.parameters,
        unit=unit,
        median=median,
        spread=spread,
        cpu_us_per_op=cpu,
        counters=counters,
    )


def compare(rows: Sequence[Row]) -> list[Row]:
    """The same rows with ratios, each beside those of the same setting.

    `above_floor` is the row's median minus the floor's, `to_floor` the quotient, `to_best_other` the quotient of its
    median and the least one of another contender on the same loop, the floor aside.
    """
    return [dataclasses.replace(row, ratios={**row.ratios, **_ratios(row, rows)}) for row in rows]


def _ratios(row: Row, rows: Sequence[Row]) -> dict[str, float]:
    ratios: dict[str, float] = {}
    same = [other for other in rows if other.parameters == row.parameters and other is not row]
    if row.contender == FLOOR:
        return ratios
    for floor in same:
        if floor.contender == FLOOR:
            ratios["above_floor"] = row.median - floor.median
            ratios["to_floor"] = row.median / floor.median
    others = [other.median for other in same if other.loop == row.loop and other.contender != FLOOR]
    if others:
        ratios["to_best_other"] = row.median / min(others)
    return ratios


def above_floor(row: Row, floor: Row, *, cpu: bool = False) -> tuple[float, float]:
    """Time above the floor in microseconds per operation, and how far that is uncertain."""
    if not cpu:
        return row.median - floor.median, row.spread + floor.spread
    value = (row.cpu_us_per_op or 0.0) - (floor.cpu_us_per_op or 0.0)
    return value, row.counters["cpu_spread"] + floor.counters["cpu_spread"]
