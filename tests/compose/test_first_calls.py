# SPDX-License-Identifier: Apache-2.0
"""First calls of a model of dynamic shape: one at a time, in a thread, and whatever ends one lets the next come."""

from __future__ import annotations

import threading

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator
from compose.scene import until

pytestmark = pytest.mark.anyio

SHAPES = b'[[inputs]]\nname = "x"\nshape = [-1]\n[[outputs]]\nname = "y"\nshape = [-1]\nfill = "copy"\n'


async def call(model: aa.Model, length: int) -> None:
    x = np.full(length, length, "float32")
    assert (await model(x) == x).all()


async def test_closing_waits_for_them(npu: aa.Device, sim: Simulator) -> None:
    model = await npu.load_model(SHAPES)
    with sim.hold(device=npu):
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(call, model, 1 + number % 2)
            await until(lambda: model.statistics().calls == 6)
            group.start_soon(model.close)
            await until(lambda: model.closed)
            with pytest.raises(aa.RuntimeClosedError, match="closed"):
                await call(model, 1)
            sim.release(device=npu)
    assert model.statistics().ok == 6


async def test_a_close_that_is_cancelled_sends_away_who_waits(npu: aa.Device, sim: Simulator) -> None:
    model = await npu.load_model(SHAPES)
    ended: list[str] = []

    async def attempt(length: int) -> None:
        try:
            await call(model, length)
        except aa.RuntimeClosedError:
            ended.append("closed")
        else:
            ended.append("ok")

    with sim.hold(device=npu):
        async with anyio.create_task_group() as group:
            for length in range(1, 4):
                group.start_soon(attempt, length)
            await until(lambda: model.statistics().running == 1 and model.statistics().waiting == 2)
            with anyio.CancelScope() as scope:
                scope.cancel()
                await model.close()
            await until(lambda: len(ended) == 2)
            assert ended == ["closed", "closed"]
            sim.release(device=npu)
    await model.close()
    assert len(ended) == 3


async def test_a_cancelled_one_keeps_its_place_while_it_runs(npu: aa.Device, sim: Simulator) -> None:
    async with npu.load_model(b"latency_us = 1e9\n" + SHAPES) as model:
        async with anyio.create_task_group() as group:
            group.start_soon(call, model, 2)
            await until(lambda: sim.calls("aclmdlExecute") > 0)
            group.cancel_scope.cancel()
        now = model.statistics()
        assert (now.cancelled, now.running, now.abandoned) == (1, 0, 1)
        with sim.virtual_time():
            await until(lambda: model.statistics().abandoned == 0)
            await call(model, 2)


async def test_one_that_is_cancelled_before_a_thread_has_it(npu: aa.Device, anyio_backend: object) -> None:
    busy = threading.Event()
    async with npu.load_model(SHAPES) as model:
        async with anyio.create_task_group() as group:
            limiter = anyio.to_thread.current_default_thread_limiter()  # which trio's calls take a thread from
            for _ in range(int(limiter.total_tokens)):
                group.start_soon(anyio.to_thread.run_sync, busy.wait)
            await until(lambda: limiter.available_tokens == 0)
            async with anyio.create_task_group() as callers:
                callers.start_soon(call, model, 3)
                await until(lambda: model.statistics().running == 1 and not npu.health().in_flight)
                for _ in range(100):
                    await anyio.lowlevel.checkpoint()
                callers.cancel_scope.cancel()
            busy.set()
        with anyio.fail_after(60):
            await call(model, 3)
            await call(model, 4)
        await until(lambda: model.statistics().abandoned == 0)


@pytest.mark.parametrize("kind", ["memcpy_h2d", "execute", "memcpy_d2h"])
async def test_one_that_fails_is_no_fault_of_the_device(npu: aa.Device, sim: Simulator, kind: str) -> None:
    async with npu.load_model(SHAPES) as model:
        sim.fail_task(kind=kind)
        with pytest.raises(aa.TaskError):
            await call(model, 3)
        assert npu.health().state == "ok"
        await call(model, 3)
        await call(model, 4)
