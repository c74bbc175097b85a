# SPDX-License-Identifier: Apache-2.0
"""What a benchmark says: rows of measurements, and the goals they are held to."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

__all__ = ["Goal", "Outcome", "Part", "Row", "median_and_spread", "percentile"]


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
    """One figure of a goal: `value` must be at most (or, with `at_least`, at least) `target`. `note` says whence.

    One without a target is only reported: it holds always.
    """

    name: str
    value: float
    target: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def holds(self) -> bool:
        if self.target is None:
            return True
        return self.value >= self.target if self.at_least else self.value <= self.target

    @property
    def strain(self) -> float:
        """How far `value` uses up `target`: 1 is just met, less is better; 0 where there is no target."""
        if self.target is None:
            return 0.0
        high, low = (self.target, self.value) if self.at_least else (self.value, self.target)
        return high / low if low > 0 else float("inf")


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a scenario is held to. Its `value` is the strain of its worst part, its `target` therefore 1."""

    name: str
    parts: tuple[Part, ...]

    @property
    def value(self) -> float:
        return max((part.strain for part in self.parts if part.target is not None), default=float("inf"))

    @property
    def target(self) -> float:
        return 1.0

    @property
    def holds(self) -> bool:
        held = [part for part in self.parts if part.target is not None]
        return bool(held) and all(part.holds for part in held)


@dataclasses.dataclass
class Outcome:
    """All that a run of the command has found out.

    Attributes:
        rows: Of all scenarios.
        goals: One of each name.
        seconds: What each scenario took.
        notes: What was left out of scenarios, and why.
        unavailable: Scenarios that cannot run here, and why.
        failed: A scenario that failed, and with what.
    """

    rows: list[Row] = dataclasses.field(default_factory=list)
    goals: list[Goal] = dataclasses.field(default_factory=list)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    unavailable: dict[str, str] = dataclasses.field(default_factory=dict)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)


def median_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The median, and half of the distance between the quartiles."""
    if len(values) == 1:
        return values[0], 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, (high - low) / 2


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that this share of all do not exceed.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError(f"the {share:.0%} percentile of no values: nothing was measured")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
