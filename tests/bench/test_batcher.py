# SPDX-License-Identifier: Apache-2.0
"""The benchmark of batchers: wrong answers are none, what is not installed is left out, and what the goal asks for."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import numpy as np
import pytest

from aioascend.bench import batcher
from aioascend.bench.results import Row
from aioascend.bench.settings import Settings


def test_what_is_not_installed_is_left_out_with_a_note(tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "is_there", lambda name: name == "aioascend")
    notes: list[str] = []
    rows = batcher.run(dataclasses.replace(tiny, quick=False, note=notes.append))
    assert {row.contender for row in rows} == {"aioascend", "by hand"}
    assert {row.parameters["load"] for row in rows} == {"saturated", "twelve", "single", "arrivals"}
    assert [note.split(",")[0] for note in notes] == [
        f"batcher: without {name}" for name in ("batched", "async-batcher", "ray-serve")
    ]


def test_a_wrong_answer_is_not_measured() -> None:
    async def wrong(item: Any) -> Any:
        return np.zeros_like(item)

    asyncio.run(batcher._ask(wrong, 0))
    with pytest.raises(RuntimeError, match="the answer to 7 is"):
        asyncio.run(batcher._ask(wrong, 7))


def row(contender: str, load: str, median: float) -> Row:
    return Row("batcher", contender, "asyncio", {"load": load}, "us/op", median, 1.0)


@pytest.mark.parametrize(
    ("ours", "holds"), [((1040.0, 1090.0, 4700.0, 20_000.0), True), ((1060.0, 1210.0, 4800.0, 22_000.0), False)]
)
def test_what_the_goal_asks_for(ours: tuple[float, ...], holds: bool) -> None:
    rows = [row("by hand", "saturated", 1000.0), row("by hand", "single", 4500.0)]
    rows += [row("aioascend", load, median) for load, median in zip(batcher._REQUESTS, ours, strict=True)]
    goal = batcher.goal(rows)
    assert goal is not None
    assert [part.holds for part in goal.parts] == [holds] * 3
    others = [
        row("batched", "twelve", 1200.0),
        row("batched", "arrivals", 21_000.0),
        row("ray-serve", "twelve", 1700.0),
    ]
    goal = batcher.goal(rows + others)
    assert goal is not None
    assert [part.holds for part in goal.parts] == [holds] * 5
