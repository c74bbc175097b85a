# SPDX-License-Identifier: Apache-2.0
"""What a benchmark says: rows of measurements, and the goals they are held to."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

__all__ = ["Goal", "Part", "Row", "median_and_spread"]


@dataclasses.dataclass(frozen=True)
class Row:
    """One contender in one setting.

    Attributes:
        scenario: Name of the scenario, as `--scenario` takes it.
        contender: "floor", "aioascend", "pyacl", "executor-4", ...
        loop: "asyncio", "uvloop", "trio", or "-" where no event loop takes part.
        parameters: What else identifies the setting: coroutines, streams, device_us, placement, ...
        unit: Of `median` and `spread`, e.g. "us/op".
        median: Over the rounds.
        spread: Half of the distance between the first and the third quartile of the rounds, in the same unit.
        cpu_us_per_op: User and system time of the whole process per operation, in microseconds; None: not measured.
        ratios: `to_floor`, `above_floor` (median minus the floor's, in the same unit), `to_best_other`, ...
        counters: `callbacks_per_op`, `wakeups_per_op`, `bytes_per_op`, ...
    """

    scenario: str
    contender: str
    loop: str
    parameters: dict[str, object]
    unit: str
    median: float
    spread: float
    cpu_us_per_op: float | None = None
    ratios: dict[str, float] = dataclasses.field(default_factory=dict)
    counters: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Part:
    """One figure of a goal: `value` must be at most (or, with `at_least`, at least) `target`. `note` says whence."""

    name: str
    value: float
    target: float
    at_least: bool = False
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.value >= self.target if self.at_least else self.value <= self.target

    @property
    def strain(self) -> float:
        """How far `value` uses up `target`: 1 is just met, less is better."""
        high, low = (self.target, self.value) if self.at_least else (self.value, self.target)
        return high / low if low > 0 else float("inf")


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a scenario is held to. Its `value` is the strain of its worst part, its `target` therefore 1."""

    name: str
    parts: tuple[Part, ...]

    @property
    def value(self) -> float:
        return max((part.strain for part in self.parts), default=float("inf"))

    @property
    def target(self) -> float:
        return 1.0

    @property
    def holds(self) -> bool:
        return bool(self.parts) and all(part.holds for part in self.parts)


def median_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The median, and half of the distance between the quartiles."""
    if len(values) == 1:
        return values[0], 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, (high - low) / 2
