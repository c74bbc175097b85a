# SPDX-License-Identifier: Apache-2.0
"""One coroutine that awaits one 8-byte copy after the other: mostly the price of waking threads."""

from __future__ import annotations

from collections.abc import Sequence

from aioascend.bench.concurrent import Load, measure_loads
from aioascend.bench.contenders import CONTENDERS
from aioascend.bench.results import Goal, Row
from aioascend.bench.settings import Settings

__all__ = ["NAME", "goal", "run"]

NAME = "single"


def run(settings: Settings) -> list[Row]:
    """The rows."""
    if settings.quick:
        return measure_loads(NAME, [Load(1, 500, ("aioascend", "pyacl"))], settings)
    times = ((0, 1000), (50, 300), (1000, 30))
    return measure_loads(NAME, [Load(1, n, tuple(CONTENDERS), device_us=us) for us, n in times], settings)


def goal(rows: Sequence[Row]) -> Goal | None:
    """None: nothing is promised of it."""
    return None
