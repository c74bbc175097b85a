# SPDX-License-Identifier: Apache-2.0
"""What type checkers make of schedulers and queues. Checked by mypy with the package; never run."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from typing import Any

from typing_extensions import assert_type

import aioascend as aa


async def length(text: str) -> int:
    return len(text)


def first(free: Sequence[aa.SchedulerUnit[Any]]) -> aa.SchedulerUnit[Any]:
    return free[0]


async def spread(npu: aa.Device, model: aa.Model) -> None:
    async with aa.Scheduler([model], policy=first) as scheduler:
        assert_type(scheduler, aa.Scheduler[aa.Model])
        assert_type(scheduler.units, tuple[aa.Model, ...])
        assert_type(await scheduler.run(lambda unit: length(unit.name)), int)
        await scheduler.run(lambda unit: unit.no_such_thing)  # type: ignore[attr-defined]
    async with aa.Scheduler.over_devices([npu], lambda npu: npu.load_model("detect.om")) as over:
        assert_type(over, aa.Scheduler[aa.Model])
    aa.Scheduler.over_devices([npu], lambda npu: npu.load_model("detect.om"), policy=first, concurrency=4)
    aa.Scheduler.over_devices([npu], lambda npu: npu.load_model("detect.om"), concurrency="4")  # type: ignore[arg-type]
    aa.Scheduler.over_devices([npu], lambda npu: npu.load_model("detect.om"), workers=4)  # type: ignore[call-arg]
    assert_type(scheduler.statistics().units[0].busy_seconds, float)
    assert_type(scheduler.statistics().units[0].service_seconds, float | None)
    assert_type(scheduler.closed, bool)


async def queue(scheduler: aa.Scheduler[aa.Model]) -> None:
    async with aa.InferQueue(length, concurrency=2) as queue:
        assert_type(queue, aa.InferQueue[str, int])
        assert_type(await queue.submit("x"), int)
        assert_type(await queue.result(0), int)
        assert_type(queue.submit_from_thread("x"), concurrent.futures.Future[int])
        async for _, result in queue.results():
            assert_type(result, int | Exception)
        await queue.submit(1)  # type: ignore[arg-type]
    async with aa.InferQueue(scheduler) as images:
        await images.submit(1)
