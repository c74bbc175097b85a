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
    name: str, ours: Row | None, other: Row | None, floor: Row | None, target: float | None = None, *, cpu: bool = False
) -> list[Part]:
    """Our time above the floor as a share of the other's. No part where one of the three was not measured.

    Where the other's is no more than the spread of the measurement, the quotient says nothing: then it is infinite,
    and the note says why. The note also says so where one of the two is below the floor by more than the spread.
    """
    if ours is None or other is None or floor is None:
        return []
    mine, my_doubt = above_floor(ours, floor, cpu=cpu)
    its, its_doubt = above_floor(other, floor, cpu=cpu)
    value, notes = mine / its if its > its_doubt else float("inf"), [f"{mine:.3g} of {its:.3g} us"]
    if abs(its) <= its_doubt:
        notes.append(f"{other.contender} is within {its_doubt:.3g} us of the floor")
    for row, above, doubt in ((ours, mine, my_doubt), (other, its, its_doubt)):
        if above < -doubt:
            notes.append(f"{row.contender} is {-above:.3g} us below the floor, which is none then")
    return [Part(name, value, target, note="; ".join(notes))]


def merge(goals: Sequence[Goal]) -> list[Goal]:
    """Goals of the same name become one, with the parts of all; in the order of their names."""
    parts: dict[str, tuple[Part, ...]] = {}
    for goal in goals:
        parts[goal.name] = parts.get(goal.name, ()) + goal.parts
    return [Goal(name, parts[name]) for name in sorted(parts)]
