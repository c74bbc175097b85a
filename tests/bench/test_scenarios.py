# SPDX-License-Identifier: Apache-2.0
"""Every scenario runs, says what it promises to say, and says so where it cannot run."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aioascend import _backend
from aioascend.bench import health
from aioascend.bench.contenders import CONTENDERS, Place
from aioascend.bench.device import device_time
from aioascend.bench.harness import run_on
from aioascend.bench.heartbeat import Heartbeat
from aioascend.bench.placement import Placement
from aioascend.bench.results import Row
from aioascend.bench.rig import has_events
from aioascend.bench.scenarios import NAMES, scenario
from aioascend.bench.settings import Settings, UnavailableError
from aioascend.testing import Simulator, TaskRecord

WITHOUT_GOAL = {"single", "fairness"}
NEEDS_SIMULATOR = {
    "batcher",
    "fairness",
    "figures",
    "health",
    "in-flight",
    "model-service",
    "overlap",
    "pipeline",
    "pool-size",
    "scheduler",
}


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
        assert goal.name[0] in "1234567"
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


@pytest.mark.parametrize("name", ["single", "gather", "chains", "busy-thread"])
def test_a_real_device_takes_its_own_time(name: str, tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    real = dataclasses.replace(_backend.load_backend("sim"), kind="cann")
    monkeypatch.setattr("aioascend.bench.settings.load_backend", lambda: real)
    notes: list[str] = []
    settings = dataclasses.replace(tiny, quick=False, note=notes.append)
    rows = scenario(name).run(settings)
    check(rows, name, settings.rounds)
    assert {row.parameters.get("device_us", 0.0) for row in rows} == {0.0}
    assert {"aioascend", "pyacl", "executor-32"} <= {row.contender for row in rows}
    expected = []
    if name != "busy-thread":
        expected = [f"{name}: without 50 us and 1000 us on the device: only the simulator can be told to take that"]
    if name == "gather":
        expected.append("gather: without thread, polling-0, polling-1ms at 1024 coroutines: too few events")
    assert notes == expected


def test_where_there_are_events_for_all_none_is_left_out(tiny: Settings, sim: Simulator) -> None:
    assert has_events(tiny, 1000)
    assert not has_events(tiny, 2000)
    sim.set_profile("atlas-a2")
    assert has_events(tiny, 2000)


def health_row(contender: str, rate: int, lag: float, echo: float, cpu: float | None, **more: float) -> Row:
    parameters: dict[str, object] = {"rate": rate, "placement": "two"}
    counters = {"echo_p99": echo, "cpu_percent": 10.0, **more}
    return Row("health", contender, "asyncio", parameters, "us lag p99", lag, 1.0, cpu, {}, counters)


def test_what_loop_health_is_held_to() -> None:
    rows = [
        health_row("idle", 0, 100.0, 50.0, None, lag_p99_range=30.0),
        health_row("aioascend", 8_000, 125.0, 60.0, 10.0, cpu_percent=18.0),
        health_row("pyacl", 8_000, 500.0, 90.0, 40.0, cpu_percent=42.0),
        health_row("aioascend", 80_000, 140.0, 90.0, 2.0),
    ]
    parts = {part.name.removesuffix(", asyncio"): part for part in health.goal(rows).parts}
    lag = parts["heartbeat lag p99 at 8,000/s, of the idle loop's"]
    assert (lag.value, lag.target, lag.holds) == (1.25, 1.3, True)  # as far as the idle loop's rounds are apart
    assert not parts["heartbeat lag p99 at 80,000/s, of the idle loop's"].holds
    assert parts["echo p99 at 8,000/s, of the idle loop's"].target == 1.3
    assert (echo := parts["echo p99 at 80,000/s, of the idle loop's"]).target is None
    assert echo.value == 1.8
    cpu = parts["CPU time at 8,000/s, of pyacl's"]
    assert (cpu.value, cpu.target) == (0.25, 0.5)
    assert "beyond the idle loop's, 8 and 32 % of a core" in cpu.note


def test_submits_are_held_to_what_they_take_in_a_chain(tiny: Settings) -> None:
    rows = scenario("chains").run(tiny)
    goal = scenario("chains").goal(rows)
    assert goal is not None
    [ours] = [row for row in rows if row.contender == "aioascend" and row.parameters.get("what") == "submit"]
    assert 0 < ours.median < ours.counters["resolved"]
    assert ours.counters["own_turn"] > 0
    if tiny.placements[0] == "two":
        targets = [part.target for part in goal.parts if part.name.startswith("us per un-awaited submit")]
        assert targets == [0.3, None, None]


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
    # In a fresh process: in this one there is memory to be used again.
    command = [sys.executable, "-m", "aioascend.bench.in_flight_memory", "tasks", "4096"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 100 < float(done.stdout) < 10_000


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


def test_memory_is_measured_from_any_folder(tiny: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "aioascend").mkdir()
    (tmp_path / "aioascend" / "__init__.py").write_text("raise ImportError('not compiled')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    rows = scenario("in-flight").run(tiny)
    assert [row for row in rows if row.unit == "bytes/op"]
