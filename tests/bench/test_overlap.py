# SPDX-License-Identifier: Apache-2.0
"""The overlap benchmark: its bound is the device's, its programs do what they say, its rows are what was measured."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import numpy as np
import pytest

import aioascend as aa
from aioascend.bench import overlap, staged
from aioascend.bench.harness import run_on
from aioascend.bench.overlap import Stages
from aioascend.bench.settings import Settings
from aioascend.testing import Simulator, unit_overlap

UNEQUAL = Stages(300, 500, 200)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "profile.toml"
    path.write_text(UNEQUAL.profile())
    return path


def test_one_request_after_the_other_takes_the_sum_of_the_stages(sim: Simulator, profile: Path) -> None:
    async def main() -> None:
        async with aa.open_device(0) as npu:
            stream, model = await npu.create_stream(), await npu.load_model(staged.description("stage"))
            requests = staged.make_requests(5)
            with sim.virtual_time():
                await staged.sequential(npu, stream, [model], requests)
            staged.check(requests)

    sim.set_profile(profile)
    run_on("asyncio", main)
    assert unit_overlap(sim.timeline()).span == pytest.approx(5 * 1000e-6, abs=1e-9)


@pytest.mark.parametrize("per_stream", [1, 2])
def test_without_a_host_in_the_way_the_best_is_reached(sim: Simulator, profile: Path, per_stream: int) -> None:
    async def main() -> None:
        async with aa.open_device(0) as npu:
            model = await npu.load_model(staged.description("stage"))
            lanes = [(await npu.create_stream(), model) for _ in range(4)]
            await staged.warm_up(npu, lanes)
            requests = staged.make_requests(4 * per_stream)  # as many as fit at once, so nothing has to be awaited
            sim.clear_timeline()
            with sim.virtual_time():
                with sim.hold(device=npu):
                    running = asyncio.ensure_future(staged.overlapping(npu, lanes, requests, per_stream))
                    for _ in range(3):  # gather, the coroutines, and one to spare
                        await asyncio.sleep(0)
                    assert sim.live("tasks") >= 5 * len(requests)  # two copies, the run, its event, the report
                await running
            staged.check(requests)

    sim.set_profile(profile)
    run_on("asyncio", main)
    count = 4 * per_stream
    span = unit_overlap(sim.timeline()).span * 1e6
    assert count * UNEQUAL.longest / span == pytest.approx(UNEQUAL.best(count, 4), rel=1e-6)


def test_the_best_is_worked_out_from_the_stages() -> None:
    assert UNEQUAL.total == 1000
    assert UNEQUAL.best(1, 4) == 0.5
    assert UNEQUAL.best(10, 4) == pytest.approx(5000 / 5500)
    assert UNEQUAL.best(10, 1) == 0.5  # a stream does one thing after the other
    assert Stages(100, 100, 100).best(10, 2) == pytest.approx(1000 / 1500)


def test_a_wrong_answer_is_not_measured() -> None:
    requests = staged.make_requests(2)
    for request in requests:
        request.result[:] = request.source.sum()
    staged.check(requests)
    requests[1].result[0, 5] = 7
    with pytest.raises(RuntimeError, match="the answer to 1"):
        staged.check(requests)
    with pytest.raises(RuntimeError, match="nan"):
        staged.check(staged.make_requests(1))
    assert not np.array_equal(requests[0].source, requests[1].source)


def test_rows_say_what_was_measured() -> None:
    rows = overlap.run(Settings(loops=("asyncio",), rounds=1, scale=0.03))
    settings = [(row.contender, row.parameters["stages_us"]) for row in rows]
    assert ("aioascend, 16 streams", "1000:3000:1000") in settings
    assert ("sequential", "200:200:200") in settings
    assert len(settings) == len(set(settings))
    for row in rows:
        assert row.scenario == overlap.NAME
        assert 0 < row.median <= row.ratios["best"] * 1.000001 <= 1.000001
        assert row.counters["lost_us_per_request"] >= -0.001
    goal = overlap.goal(rows)
    assert goal is not None
    assert {part.target for part in goal.parts} == {0.97, 0.90}
    assert len(goal.parts) == 15  # five times of the stages, at 4, 8 and 16 streams


def test_what_the_goal_asks_for() -> None:
    (row, *_) = overlap.run(Settings(quick=True, loops=("asyncio",), rounds=1, scale=0.01))
    assert row.parameters["stages_us"] == "200:200:200"

    def holds(median: float, stages: str = "200:200:200", **counters: float) -> bool | None:
        changed = {"parameters": {"stages_us": stages}, "counters": {**row.counters, **counters}}
        goal = overlap.goal([dataclasses.replace(row, median=median, **changed)])
        return None if goal is None else goal.holds

    assert holds(0.91) is True
    assert holds(0.89) is False
    assert holds(0.91, "1000:1000:1000") is False
    assert holds(0.98, "1000:3000:1000") is True
    assert holds(0.5, streams=3) is None
    assert holds(0.5, requests_per_stream=1) is None
    assert holds(0.5, models=1) is None
