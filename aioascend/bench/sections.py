# SPDX-License-Identifier: Apache-2.0
"""How rows are put side by side, in tables and plots."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from aioascend.bench.results import Row

__all__ = ["Section", "sections"]

_FEW = 2


@dataclasses.dataclass(frozen=True)
class Section:
    """Rows of one scenario and unit. `differing` are the names of the parameters in which they are not all the same."""

    title: str
    unit: str
    rows: Sequence[Row]
    differing: tuple[str, ...]


def sections(rows: Iterable[Row]) -> list[Section]:
    """One for each setting of a scenario; one for all settings where hardly anything would be in each."""
    found: list[Section] = []
    for _, group in itertools.groupby(rows, lambda row: (row.scenario, row.unit)):
        members = list(group)
        by_setting = [list(same) for _, same in itertools.groupby(members, lambda row: row.parameters)]
        if max(map(len, by_setting)) <= _FEW:
            by_setting = [members]
        found += [_section(setting) for setting in by_setting]
    return found


def _section(rows: list[Row]) -> Section:
    names = dict.fromkeys(name for row in rows for name in row.parameters)
    differing = tuple(name for name in names if len({str(row.parameters.get(name)) for row in rows}) > 1)
    same = [f"{name} {_text(rows[0].parameters[name])}" for name in names if name not in differing]
    return Section(": ".join(filter(None, [rows[0].scenario, ", ".join(same)])), rows[0].unit, rows, differing)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
