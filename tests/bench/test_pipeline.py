# SPDX-License-Identifier: Apache-2.0
"""The pipeline benchmark: stage times that differ as it says, a bound that is the profile's, right answers."""

from __future__ import annotations

import dataclasses

import pytest

from aioascend.bench import pipeline
from aioascend.bench.settings import Settings


def test_kinds_differ_within_the_jitter_in_each_stage_by_itself() -> None:
    kinds = [pipeline.Kind.drawn(number, 1000) for number in range(100)]
    assert kinds == [pipeline.Kind.drawn(number, 1000) for number in range(100)]
    for values in zip(*((kind.size_in, kind.latency, kind.size_out) for kind in kinds), strict=True):
        assert 700 <= min(values) < 730
        assert 1270 < max(values) <= 1300
    longer = [(kind.size_in > 1000, kind.latency > 1000) for kind in kinds]
    assert len(set(longer)) == 4


def test_rows_say_what_was_measured() -> None:
    rows = pipeline.run(Settings(loops=("asyncio", "trio"), rounds=1, scale=0.05))
    settings = [(row.contender, row.loop, row.parameters["means_us"]) for row in rows]
    assert len(settings) == len(set(settings)) == 8
    assert ("aioascend, 2 workers", "trio", "2000:4000:2000") in settings
    for row in rows:
        assert 0 < row.median < 1
        assert row.counters["lost_us_per_item"] > 0
    goal = pipeline.goal(rows)
    assert goal is not None
    assert len(goal.parts) == 4


def test_what_the_goal_asks_for() -> None:
    (row, *_) = pipeline.run(Settings(quick=True, loops=("asyncio",), rounds=1, scale=0.01))

    def holds(median: float) -> bool:
        goal = pipeline.goal([dataclasses.replace(row, median=median)])
        assert goal is not None
        return goal.holds

    assert holds(0.951)
    assert not holds(0.949)
    assert pipeline.goal([dataclasses.replace(row, contender="aioascend, 1 worker")]) is None


def test_a_wrong_answer_is_not_measured() -> None:
    items = pipeline._items([pipeline.Kind.drawn(0, 1000)], 2)
    with pytest.raises(RuntimeError, match="nan"):
        pipeline._check(items)
    for item in items:
        item.result[:] = item.source.sum()
    pipeline._check(items)
