# SPDX-License-Identifier: Apache-2.0
"""Every scenario runs, says what it promises to say, and says so where it cannot run."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import math
import time
from collections.abc import Callable

import pytest

from aioascend import _backend
from aioascend.bench import in_flight_memory
from aioascend.bench.contenders import CONTENDERS, Place
from aioascend.bench.harness import device_time, run_on
from aioascend.bench.heartbeat import Heartbeat, percentile
from aioascend.bench.placement import Placement
from aioascend.bench.results import Row
from aioascend.bench.scenarios import NAMES, scenario
from aioascend.bench.settings import Settings, UnavailableError
from aioascend.testing import Simulator, TaskRecord

WITHOUT_GOAL = {"single", "fairness"}
NEEDS_SIMULATOR = {"health", "in-flight", "fairness", "overlap", "figures"}


def check(rows: list[Row], name: str, rounds: int) -> None:
    assert rows
    for row in rows:
        assert row.scenario == name
        assert math.isfinite(row.median)
        assert row.median > 0 or row.unit == "bytes/op", row  # a page holds many operations
        assert row.spread >= 0
        assert rounds > 1 or row.spread == 0
        assert all(math.isfinite(value) for value in [*row.ratios.values(), *row.counters.values()])
    keys = {(row.contender, row.loop, tuple(row.parameters.items()), row.unit) for row in rows}
    assert len(keys) == len(rows)


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_its_goal_finds_what_it_needs(name: str, tiny: Settings) -> None:
    module = scenario(name)
    assert name == module.NAME
    rows = module.run(tiny)
    check(rows, name, tiny.rounds)
    assert "aioascend" in {row.contender.split(",")[0] for row in rows}
    goal = module.goal(rows)
    if name in WITHOUT_GOAL:
        assert goal is None
    else:
        assert goal is not None
        assert goal.name[0] in "123456"
        # A machine with one core has no placement "two", of which the goals speak.
        assert goal.parts or tiny.placements == ("one",)
    assert module.goal([]) is None or not module.goal([]).holds  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["single", "in-flight"])
def test_it_runs_on_every_loop_in_every_placement(name: str, tiny: Settings) -> None:
    usual = Settings.for_this_machine(quick=False)
    settings = dataclasses.replace(usual, rounds=2, scale=tiny.scale)
    rows = scenario(name).run(settings)
    check(rows, name, 2)
    loops = {row.loop for row in rows if row.contender == "aioascend"}
    assert loops == ({"asyncio", "uvloop"} if name == "in-flight" else set(settings.loops))
    assert {row.parameters["placement"] for row in rows if "placement" in row.parameters} == set(settings.placements)


@pytest.mark.parametrize("name", sorted(NEEDS_SIMULATOR))
def test_it_says_when_it_needs_the_simulator(name: str, tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    real = dataclasses.replace(_backend.load_backend("sim"), kind="cann")
    monkeypatch.setattr("aioascend.bench.settings.load_backend", lambda: real)
    with pytest.raises(UnavailableError, match="takes the simulator"):
        scenario(name).run(tiny)


def test_an_unknown_scenario_is_none() -> None:
    with pytest.raises(ModuleNotFoundError):
        scenario("no-such")


@pytest.mark.parametrize("microseconds", [0.0, 50.0, 1000.0])
def test_a_device_time_is_what_copies_take_eight_at_a_time(microseconds: float, tiny: Settings, sim: Simulator) -> None:
    async def main() -> list[TaskRecord]:
        contender = CONTENDERS["aioascend"](Place(tiny, Placement("one"), 8, 8))
        await contender.open()
        sim.set_timeline_capacity(100)
        with sim.virtual_time():
            with sim.hold(device=0):
                copies = asyncio.gather(*(contender.copy(lane) for lane in contender.lanes))
                await asyncio.sleep(0)
            await copies
        await contender.close()
        return [record for record in sim.timeline() if record.kind == "memcpy_h2d"]

    with device_time(tiny, microseconds):
        records = run_on("asyncio", main)
    assert len(records) == 8
    nanoseconds = round(microseconds * 1000)
    assert {record.end_ns - record.start_ns for record in records} == {nanoseconds}
    assert max(record.end_ns for record in records) - min(record.start_ns for record in records) <= 2 * nanoseconds


def test_memory_grows_by_what_is_in_flight() -> None:
    async def main() -> float:
        return await in_flight_memory.bytes_per_operation("tasks", 4096)

    assert 100 < run_on("asyncio", main) < 10_000


async def turns_until(condition: Callable[[], bool]) -> None:
    """Lets the loop turn until something is so."""
    while not condition():  # noqa: ASYNC110 - nobody says when
        await asyncio.sleep(0)


def test_a_heartbeat_counts_beats_and_echoes() -> None:
    async def main() -> Heartbeat:
        heartbeat = Heartbeat()
        await heartbeat.open()
        heartbeat.begin()
        await turns_until(lambda: len(heartbeat.echoes) >= 5)
        await heartbeat.close()
        return heartbeat

    for loop in ("asyncio", "uvloop"):
        heartbeat = run_on(loop, main)
        assert len(heartbeat.lags) >= len(heartbeat.echoes) >= 5
        assert min(heartbeat.lags) >= 0
        assert min(heartbeat.echoes) > 0


def test_a_heartbeat_that_was_missed_counts() -> None:
    async def main() -> Heartbeat:
        heartbeat = Heartbeat()
        await heartbeat.open()
        heartbeat.begin()
        first = time.monotonic_ns()
        while time.monotonic_ns() < first + 10_000_000:  # ten beats come due while the loop is held up
            pass
        await turns_until(lambda: len(heartbeat.lags) >= 10)
        await heartbeat.close()
        return heartbeat

    lags = run_on("asyncio", main).lags[:9]
    assert lags == sorted(lags, reverse=True)  # the first waited longest
    assert [round(a - b) for a, b in itertools.pairwise(lags)] == [1000] * 8  # one period apart


def test_percentiles() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 0.5) == 51.0
    assert percentile(values, 0.99) == 100.0
    assert percentile([3.0], 0.99) == 3.0
