# SPDX-License-Identifier: Apache-2.0
"""Which of the units that have room gets the next call. A policy is a function, and users write their own."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from aioascend.scheduler.units import SchedulerUnit

__all__ = ["POLICIES"]

Unit = SchedulerUnit[Any]
Policy = Callable[[Sequence[Unit]], Unit]


def _finish(units: Sequence[Unit]) -> Callable[[Unit], float]:
    """When a unit would be done with one more call. One not measured yet is taken for as fast as the fastest."""
    fastest = min((unit.service_seconds for unit in units if unit.service_seconds is not None), default=1.0)
    return lambda unit: (unit.taken + 1) * (fastest if unit.service_seconds is None else unit.service_seconds)


def _least_loaded() -> Policy:
    return lambda units: min(units, key=_finish(units))


def _round_robin() -> Policy:
    latest = -1

    def policy(units: Sequence[Unit]) -> Unit:
        nonlocal latest
        chosen = next((unit for unit in units if unit.index > latest), units[0])
        latest = chosen.index
        return chosen

    return policy


def _weighted_random() -> Policy:
    def policy(units: Sequence[Unit]) -> Unit:
        weights = [1 / (1 + unit.taken) for unit in units]
        return random.choices(units, weights)[0]  # noqa: S311 - nothing secret

    return policy


def _two_choices() -> Policy:
    def policy(units: Sequence[Unit]) -> Unit:
        return min(random.sample(units, min(2, len(units))), key=_finish(units))

    return policy


POLICIES: dict[str, Callable[[], Policy]] = {
    "least_loaded": _least_loaded,
    "round_robin": _round_robin,
    "weighted_random": _weighted_random,
    "two_choices": _two_choices,
}
