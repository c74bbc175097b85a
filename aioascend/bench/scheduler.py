# SPDX-License-Identifier: Apache-2.0
"""The scheduler: four devices, one of them three times as slow, and one that is lost in the middle.

A model takes 5 ms on three of the devices and 15 ms on the other. Clients send one request after the other, each to
`Scheduler`, which has a model on each device.

"lost": as many clients as there are slots, and one of the fast devices is lost when half of the requests are done.
Every request has to be answered. The figure is the time that the devices which are there would take if none ever
waited, as a share of the time it took; what was on the lost device counts, and so does waiting for the last one.

"few": half as many clients, so that there is a choice, and no loss: requests per second, with each policy.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Sequence

import anyio
import numpy as np

import aioascend as aa
from aioascend.bench.device import device_profile
from aioascend.bench.goals import find
from aioascend.bench.harness import Case, Sample, measure, row_of, run_on, stopwatch
from aioascend.bench.results import Goal, Part, Row
from aioascend.bench.settings import Settings
from aioascend.bench.staged import SHAPE, description
from aioascend.testing import Simulator

__all__ = ["NAME", "goal", "run"]

NAME = "scheduler"
OURS = "aioascend"
_DEVICES, _CONCURRENCY = 4, 2
_SLOW, _LOST = 1, 2
_FAST_S, _SLOW_S = 0.005, 0.015
_REQUESTS = 400
_PROFILE = f"""
name = "scheduler"
ai_cores = 1
[models."fast"]
latency_us = {_FAST_S * 1e6}
[models."slow"]
latency_us = {_SLOW_S * 1e6}
"""
_POLICIES = ("least_loaded", "round_robin", "two_choices", "weighted_random")


def run(settings: Settings) -> list[Row]:
    """The rows; quick runs have what the goal needs.

    Raises:
        UnavailableError: the library in use is not the simulator.
    """
    loops = settings.loops[:1] if settings.quick else settings.loops
    policies = _POLICIES[:2] if settings.quick else _POLICIES
    cases = [_case(settings, "lost", _POLICIES[0], loop) for loop in loops]
    cases += [_case(settings, "few", policy, loops[0]) for policy in policies]
    measured = measure(NAME, cases, settings)
    return [
        row_of(NAME, case, samples, figure="of_capacity", unit="of the capacity")
        if case.parameters["clients"] == "lost"
        else row_of(NAME, case, samples, figure="per_second", unit="requests/s")
        for case, samples in measured
    ]


def _case(settings: Settings, clients: str, policy: str, loop: str) -> Case:
    lost = clients == "lost"
    requests = max(16, settings.count(_REQUESTS))
    count = _DEVICES * _CONCURRENCY if lost else _DEVICES

    async def main() -> Sample:
        with device_profile(settings, _PROFILE, _DEVICES) as sim:
            sample = await _measure(sim, policy, requests, count, lose=lost)
        gc.collect()  # errors of operations refer to their frames, and these to the operations
        return sample

    return Case(f"{OURS}, {policy}", loop, {"clients": clients}, lambda: run_on(loop, main))


async def _measure(sim: Simulator, policy: str, requests: int, clients: int, *, lose: bool) -> Sample:
    async with contextlib.AsyncExitStack() as stack:
        devices = [await stack.enter_async_context(aa.open_device(index)) for index in range(_DEVICES)]
        models = [await npu.load_model(description("slow" if npu.index == _SLOW else "fast")) for npu in devices]
        for one in models:
            await one(np.zeros(SHAPE, "float32"))
        left = done = 0

        async def client() -> None:
            nonlocal left, done
            while left:
                left -= 1
                x = np.full(SHAPE, left % 100, "float32")
                if not np.allclose(await scheduler(x), x.sum()):
                    raise RuntimeError("a request got the answer to another one")
                done += 1
                if lose and done == requests // 2:
                    sim.lose_device(_LOST)

        async with aa.Scheduler(models, policy=policy, concurrency=_CONCURRENCY) as scheduler:
            left = requests
            with stopwatch() as watch:
                async with anyio.create_task_group() as group:
                    for _ in range(clients):
                        group.start_soon(client)
            statistics = scheduler.statistics()
        if (statistics.ok, done) != (requests, requests):
            raise RuntimeError(f"of {requests} requests {statistics.ok} were answered")
        if lose:
            sim.restore_device(_LOST)
            await devices[_LOST].reset()
    return watch.sample(
        requests,
        of_capacity=_least_seconds(requests, lose) / watch.seconds,
        per_second=requests / watch.seconds,
        run_again=statistics.retried,
        slow_share=statistics.units[_SLOW].ok / requests,
    )


def _least_seconds(requests: int, lose: bool) -> float:
    """What the devices take when none ever waits."""
    all_of_them = (_DEVICES - 1) / _FAST_S + 1 / _SLOW_S
    half = requests // 2 if lose else requests
    return half / all_of_them + (requests - half) / (all_of_them - 1 / _FAST_S)


def goal(rows: Sequence[Row]) -> Goal | None:
    """At least 90 % of the capacity with a slow and a lost device; and least loaded is ahead of round robin."""
    parts = []
    for row in rows:
        if row.scenario == NAME and row.parameters["clients"] == "lost":
            note = f"{row.counters['run_again']:g} requests ran again"
            name = f"a slow and a lost device, of what the others can do, {row.loop}"
            parts.append(Part(name, row.median, 0.90, at_least=True, note=note))
    ours, other = (find(rows, f"{OURS}, {policy}", "asyncio", scenario=NAME, clients="few") for policy in _POLICIES[:2])
    if ours is not None and other is not None:
        note = f"{ours.median:.4g} and {other.median:.4g} requests/s"
        name = "least loaded, of round robin's requests/s, asyncio"
        parts.append(Part(name, ours.median / other.median, 1.2, at_least=True, note=note))
    return Goal("7 scheduler", tuple(parts)) if parts else None
