# SPDX-License-Identifier: Apache-2.0
"""The pool size benchmark: what it runs, and what its goal asks for."""

from __future__ import annotations

import dataclasses

from aioascend.bench import pool_size
from aioascend.bench.settings import Settings


def test_rows_say_what_was_measured() -> None:
    rows = pool_size.run(Settings(loops=("asyncio", "trio"), rounds=1, scale=0.15))
    assert len(rows) == len(pool_size.KINDS) * (1 + len(pool_size.SIZES))
    for row in rows:
        most = 16 if "eight cores" in str(row.parameters["device"]) else 8
        if row.contender != pool_size.OURS:
            most = int(row.contender.split()[1])
        assert 1 <= row.counters["streams"] <= most
    goal = pool_size.goal(rows)
    assert goal is not None
    assert [part.target for part in goal.parts] == [0.95] * 3


def test_the_goal_is_the_best_fixed_size() -> None:
    rows = pool_size.run(Settings(quick=True, loops=("asyncio",), rounds=1, scale=0.01))

    def holds(ours: float, best: float) -> bool:
        medians = {pool_size.OURS: ours, "aioascend, 4 streams": best}
        goal = pool_size.goal([dataclasses.replace(row, median=medians.get(row.contender, 9.0)) for row in rows])
        assert goal is not None
        assert all("4 streams are best" in part.note for part in goal.parts)
        return goal.holds

    assert holds(1.0, 1.0)
    assert holds(1.05, 1.0)
    assert not holds(1.06, 1.0)
    assert pool_size.goal([row for row in rows if row.contender == pool_size.OURS]) is None
