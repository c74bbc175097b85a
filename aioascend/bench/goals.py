# SPDX-License-Identifier: Apache-2.0
"""How goals are worked out from rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aioascend.bench.harness import above_floor
from aioascend.bench.results import Goal, Part, Row

__all__ = ["HEALTH", "best", "find", "merge", "share_of"]

HEALTH = "4 loop health"  # several scenarios contribute to it


def find(rows: Sequence[Row], contender: str, loop: str, **where: object) -> Row | None:
    """The row of a contender with these parameters (and `scenario`); None where it was not measured."""
    for row in rows:
        setting = {**row.parameters, "scenario": row.scenario}
        if (row.contender, row.loop) == (contender, loop) and all(setting.get(k) == v for k, v in where.items()):
            return row
    return None


def best(rows: Iterable[Row | None]) -> Row | None:
    """The one with the least median."""
    return min((row for row in rows if row is not None), key=lambda row: row.median, default=None)


def share_of(
    name: str, ours: Row | None, other: Row | None, floor: Row | None, target: float, *, cpu: bool = False
) -> list[Part]:
    """Our time above the floor as a share of the other's. No part where one of the three was not measured.

    Where the other's is no more than the spread of the measurement, the quotient says nothing: then it is infinite,
    and the note says why.
    """
    if ours is None or other is None or floor is None:
        return []
    mine, _ = above_floor(ours, floor, cpu=cpu)
    its, doubt = above_floor(other, floor, cpu=cpu)
    if its <= doubt:
        return [Part(name, float("inf"), target, note=f"{other.contender} is within {doubt:.3g} us of the floor")]
    return [Part(name, mine / its, target, note=f"{mine:.3g} of {its:.3g} us")]


def merge(goals: Sequence[Goal]) -> list[Goal]:
    """Goals of the same name become one, with the parts of all; in the order of their names."""
    parts: dict[str, tuple[Part, ...]] = {}
    for goal in goals:
        parts[goal.name] = parts.get(goal.name, ()) + goal.parts
    return [Goal(name, parts[name]) for name in sorted(parts)]
