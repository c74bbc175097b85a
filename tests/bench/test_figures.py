# SPDX-License-Identifier: Apache-2.0
"""The published figures: each profile gives the published "before", and leaves room for the "after"."""

from __future__ import annotations

import itertools

import pytest

import aioascend as aa
from aioascend.bench import figures, video
from aioascend.bench.figures import FIGURES, Figure, stage_seconds
from aioascend.bench.harness import Sample, run_on
from aioascend.bench.settings import Settings
from aioascend.testing import Simulator, unit_overlap


@pytest.fixture(autouse=True)
def without_post_processing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the host does takes no simulated time, only that of the test."""
    monkeypatch.setattr(video, "POST_SECONDS", 0.0)


def run_in_simulated_time(sim: Simulator, figure: Figure, program: figures.Program, requests: int) -> Sample:
    async def main() -> Sample:
        async with aa.open_device(0) as npu:
            return await program(npu, requests)

    sim.set_profile(figure.path)
    with sim.virtual_time():
        return run_on("asyncio", main)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_one_after_the_other_gives_the_published_before(sim: Simulator, figure: Figure) -> None:
    sequential = figure.variants[0]
    sample = run_in_simulated_time(sim, figure, sequential.program, 3)
    assert sample.operations == 3
    stages = stage_seconds(sim.timeline(), 3)
    on_device = sum(stages.values())
    assert unit_overlap(sim.timeline()).span == pytest.approx(3 * on_device, rel=1e-6)  # nothing overlaps
    assert 1 / (on_device + sum(figure.host_seconds.values())) == pytest.approx(sequential.published, rel=5e-4)
    for variant in figure.variants:
        assert variant.published < figure.bound(stages)


def test_the_stages_of_a_video_frame(sim: Simulator) -> None:
    frame = FIGURES[0]
    run_in_simulated_time(sim, frame, frame.variants[0].program, 1)
    stages = {name: round(seconds * 1e3, 6) for name, seconds in stage_seconds(sim.timeline(), 1).items()}
    assert stages == {"copy_in": 2, "preprocess": 42, "detect": 55, "classify": 45, "copy_out": 1}


def test_the_bound_is_that_of_the_busiest_stage() -> None:
    figure = Figure("a", "b", "c", (), at_once={"wide": 4}, host_seconds={"host": 0.05})
    assert figure.bound({"copy_in": 0.01, "wide": 0.1}) == pytest.approx(20)
    assert figure.bound({"copy_in": 0.01, "wide": 0.4}) == pytest.approx(10)
    assert figure.bound({"copy_in": 0.2, "wide": 0.4}) == pytest.approx(5)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_every_way_gives_right_answers(sim: Simulator, figure: Figure) -> None:
    for variant in figure.variants:
        sample = run_in_simulated_time(sim, figure, variant.program, 12)  # checks the answers
        assert sample.operations == 12
        runs = [record for record in sim.timeline() if record.kind == "execute"]
        sim.clear_timeline()
        assert len(runs) >= 12 * len({record.name for record in runs})
        for name in {record.name for record in runs}:  # a model that is loaded once runs once at a time
            own = sorted((r.start_ns, r.end_ns) for r in runs if r.name == name)
            if name not in figure.at_once:
                assert all(end <= start for (_, end), (start, _) in itertools.pairwise(own))


def test_rows_stand_beside_what_was_published() -> None:
    rows = figures.run(Settings(quick=True, loops=("asyncio",), rounds=1, scale=0.1))
    assert [row.contender for row in rows] == [
        variant.name for figure in FIGURES for variant in figure.variants if variant.in_quick
    ]
    for row in rows:
        assert row.scenario == figures.NAME
        gain = row.ratios["times_before"] / row.ratios["published_times_before"]
        assert row.median == pytest.approx(gain * row.counters["published"])
        assert row.median == pytest.approx(row.ratios["of_bound"] * row.counters["bound"])
        assert row.counters["published"] < row.counters["bound"]
    goal = figures.goal(rows)
    assert goal is not None
    targets = {part.name: part.target for part in goal.parts}
    assert targets["video frame, aioascend, 4 videos: times the published before"] == pytest.approx(186 / 58)
    assert targets["BERT-Large, aioascend, dynamic: times the published before"] == pytest.approx(512 / 142)
    assert targets["detection service, aioascend, overlap: times the published before"] == pytest.approx(145 / 110)
    assert targets["detection service, aioascend, overlap: share of the bound"] == 0.95
    assert figures.goal([row for row in rows if row.contender == "sequential"]) is None
