# SPDX-License-Identifier: Apache-2.0
"""The scenarios by name. Each is a module with `NAME`, `run(settings)` and `goal(rows)`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Protocol, cast

from aioascend.bench.results import Goal, Row
from aioascend.bench.settings import Settings

__all__ = ["NAMES", "Scenario", "scenario"]

NAMES = (
    "single",
    "gather",
    "chains",
    "health",
    "in-flight",
    "fairness",
    "busy-thread",
    "overlap",
    "figures",
    "scheduler",
    "pipeline",
    "pool-size",
    "batcher",
    "model-service",
)


class Scenario(Protocol):
    """What a scenario's module offers."""

    NAME: str

    def run(self, settings: Settings) -> list[Row]:
        """Measure. Threads, devices and profiles are as before at the end."""

    def goal(self, rows: Sequence[Row]) -> Goal | None:
        """What its rows are held to; None if to nothing."""


def scenario(name: str) -> Scenario:
    """The module; imported when it is needed, since some need packages of their own."""
    module = importlib.import_module(f"aioascend.bench.{name.replace('-', '_')}")
    return cast("Scenario", module)
