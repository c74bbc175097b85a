# SPDX-License-Identifier: Apache-2.0
"""The scheduler over devices that are lost, reset and recovered, and over models with calls in flight."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator
from compose import scene
from compose.units import check_identity, settle

pytestmark = pytest.mark.anyio

MODEL = '[[inputs]]\nname = "x"\nshape = [4]\n[[outputs]]\nname = "y"\nshape = [4]\nfill = "copy"\n'
AICORE_TIMEOUT = 507014


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "model.toml").write_text(MODEL, encoding="utf-8")
    return str(tmp_path / "model.toml")


@pytest.fixture
async def devices(anyio_backend: object) -> AsyncIterator[list[aa.Device]]:
    async with aa.open_device(0, backend="sim") as first, aa.open_device(1, backend="sim") as second:
        yield [first, second]


def image(value: int) -> Any:
    return np.full(4, value, "float32")


async def ask(scheduler: aa.Scheduler[aa.Model], count: int, **options: Any) -> list[Any]:
    """So many requests at once; what each has come to."""
    outcomes: list[Any] = [None] * count

    async def request(index: int) -> None:
        try:
            answer = await scheduler(image(index), **options)
        except aa.AclError as error:
            outcomes[index] = error
        else:
            assert (answer == index).all()
            outcomes[index] = "ok"

    async with anyio.create_task_group() as group:
        for index in range(count):
            group.start_soon(request, index)
    return outcomes


until = functools.partial(scene.until, seconds=60)


async def test_a_lost_device_gets_no_more_calls_and_every_request_is_answered(
    sim: Simulator, devices: list[aa.Device], path: str
) -> None:
    models = [await device.load_model(path) for device in devices]
    async with aa.Scheduler(models, policy="round_robin", concurrency=2) as scheduler:
        before = sim.calls("aclmdlExecuteAsync")
        with sim.hold(device=0), sim.hold(device=1):
            async with anyio.create_task_group() as group:
                outcomes: list[Any] = []

                async def requests() -> None:
                    outcomes.extend(await ask(scheduler, 30))

                group.start_soon(requests)
                await until(lambda: scheduler.statistics().running == 4)
                await until(lambda: sim.calls("aclmdlExecuteAsync") - before == 4)
                sim.lose_device(0)
                sim.release(device=1)
        assert outcomes == ["ok"] * 30
        # The two that were in flight on the lost device ran again; it got no other.
        assert sim.calls("aclmdlExecuteAsync") - before == 32
        statistics = scheduler.statistics()
        assert (statistics.ok, statistics.retried) == (30, 2)
        assert [unit.ok for unit in statistics.units] == [0, 30]
        assert [unit.state for unit in statistics.units] == ["failed", "ok"]
        assert isinstance(statistics.units[0].error, aa.DeviceLostError)
        assert [one.state for one in aa.health()] == ["failed", "ok"]
        with pytest.raises(aa.DeviceLostError):
            await scheduler(image(1), unit=0)
        check_identity(scheduler.statistics())
    sim.restore_device(0)
    await devices[0].reset()


async def test_a_fatal_code_that_comes_up_in_a_run(sim: Simulator, devices: list[aa.Device], path: str) -> None:
    models = [await device.load_model(path) for device in devices]
    sim.fail_task(nth=3, code=AICORE_TIMEOUT, kind="execute", device=0)
    async with aa.Scheduler(models, concurrency=1) as scheduler:
        assert await ask(scheduler, 30) == ["ok"] * 30
        sim.fail_task(code=107000, kind="execute", device=0)
        before = scheduler.statistics().retried
        assert [getattr(one, "code", one) for one in await ask(scheduler, 1, unit=0)] == [107000]
        assert scheduler.statistics().retried == before


async def test_a_lost_device_is_reset_its_model_loaded_again_and_both_are_used(
    sim: Simulator, devices: list[aa.Device], path: str
) -> None:
    async with aa.Scheduler.over_devices(devices, lambda npu: npu.load_model(path)) as scheduler:
        first, second = scheduler.units
        assert (first.device.index, second.device.index) == (0, 1)
        assert await ask(scheduler, 10) == ["ok"] * 10
        resets = sim.calls("aclrtResetDeviceForce")
        sim.lose_device(0)
        with pytest.raises(aa.DeviceLostError):
            await scheduler(image(1), unit=0, retries=0)
        sim.restore_device(0)
        await until(lambda: scheduler.statistics().units[0].state == "ok")
        assert sim.calls("aclrtResetDeviceForce") == resets + 1
        assert scheduler.units[0] is not first
        assert scheduler.units[1] is second
        assert await ask(scheduler, 10, unit=0) == ["ok"] * 10
    assert first.closed
    assert second.closed
    assert scheduler.units[0].closed


async def test_requests_of_the_only_device_wait_for_its_recovery(
    sim: Simulator, npu: aa.Device, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def come_back(_: float) -> None:  # the first attempt has failed
        sim.restore_device(0)
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(anyio, "sleep", come_back)
    async with aa.Scheduler.over_devices([npu], lambda npu: npu.load_model(path), retries=2) as scheduler:
        sim.lose_device(0)
        outcomes = await ask(scheduler, 5)
        assert all(outcome == "ok" or isinstance(outcome, aa.DeviceLostError) for outcome in outcomes)
        await until(lambda: scheduler.statistics().units[0].state == "ok")
        assert await ask(scheduler, 5) == ["ok"] * 5


async def test_a_device_that_somebody_else_resets_is_noticed(
    sim: Simulator, devices: list[aa.Device], path: str
) -> None:
    async with aa.Scheduler.over_devices(devices, lambda npu: npu.load_model(path)) as scheduler:
        await devices[0].reset()  # its model is closed now
        assert await ask(scheduler, 20) == ["ok"] * 20
        await until(lambda: scheduler.statistics().units[0].state == "ok")
        assert await ask(scheduler, 5, unit=0) == ["ok"] * 5


async def test_devices_as_units_are_back_when_they_work_again(sim: Simulator, devices: list[aa.Device]) -> None:
    async def fill(npu: aa.Device) -> int:
        async with npu.create_stream() as stream:
            await stream.memset(npu.empty(16, "uint8"), 7)
        return npu.index

    async with aa.Scheduler(devices, policy="round_robin") as scheduler:
        assert {await scheduler.run(fill) for _ in range(4)} == {0, 1}
        sim.lose_device(1)
        assert {await scheduler.run(fill) for _ in range(4)} == {0}
        sim.restore_device(1)
        await devices[1].reset()
        assert {await scheduler.run(fill) for _ in range(4)} == {0, 1}


async def give_up(scheduler: aa.Scheduler[Any], call: Callable[[Any], Awaitable[Any]], stream: aa.Stream) -> None:
    """A call that its caller gives up when its work is on the stream."""
    async with anyio.create_task_group() as group:
        group.start_soon(scheduler.run, call)
        await until(lambda: stream.in_flight > 0)
        group.cancel_scope.cancel()


async def test_what_is_still_on_the_device_keeps_its_slot(sim: Simulator, npu: aa.Device, path: str) -> None:
    async with npu.load_model(path) as model, aa.Scheduler([model], concurrency=1) as scheduler:
        sim.hold(model.stream)
        await give_up(scheduler, lambda unit: unit(image(1)), model.stream)
        statistics = scheduler.statistics()
        check_identity(statistics)
        assert (statistics.running, statistics.units[0].abandoned) == (0, 1)
        before = sim.calls("aclmdlExecuteAsync")
        with pytest.raises(aa.DeadlineError, match="never submitted"):
            await scheduler(image(2), timeout=0.01)
        assert sim.calls("aclmdlExecuteAsync") == before
        sim.release(model.stream)
        assert (await scheduler(image(3)) == 3).all()
        assert scheduler.statistics().units[0].abandoned == 0


async def test_what_is_still_on_any_instance_of_a_model_keeps_its_slot(
    sim: Simulator, npu: aa.Device, path: str
) -> None:
    async with npu.load_model(path, instances=2) as model, aa.Scheduler([model], concurrency=1) as scheduler:
        for stream in model.streams:  # calls go to one instance after the other
            sim.hold(stream)
            await give_up(scheduler, lambda unit: unit(image(1)), stream)
            await settle()
            assert scheduler.statistics().units[0].abandoned == 1
            with pytest.raises(aa.DeadlineError, match="never submitted"):
                await scheduler(image(2), timeout=0.01)
            sim.release(stream)
            await until(lambda: scheduler.statistics().units[0].abandoned == 0)
        assert (await scheduler(image(3)) == 3).all()


async def test_what_is_still_on_a_stream_keeps_its_slot(sim: Simulator, npu: aa.Device) -> None:
    buffer = npu.empty(4, "uint8")
    async with npu.create_stream() as stream, aa.Scheduler([stream], concurrency=1) as scheduler:
        sim.hold(stream)
        await give_up(scheduler, lambda unit: unit.memset(buffer, 1), stream)
        await settle()
        assert scheduler.statistics().units[0].abandoned == 1
        sim.release(stream)
        await until(lambda: scheduler.statistics().units[0].abandoned == 0)
        await scheduler.run(lambda unit: unit.memset(buffer, 2))


async def test_units_on_one_device_reset_it_once(
    sim: Simulator, npu: aa.Device, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reset, resets = aa.Device.reset, 0

    async def counted_reset(device: aa.Device) -> None:
        nonlocal resets
        resets += 1
        sim.restore_device(0)
        await settle()
        await reset(device)

    monkeypatch.setattr(aa.Device, "reset", counted_reset)
    async with aa.Scheduler.over_devices([npu, npu], lambda npu: npu.load_model(path)) as scheduler:
        sim.lose_device(0)

        async def lost(unit: int) -> None:
            with contextlib.suppress(aa.DeviceLostError):  # whoever comes later waits for the recovery
                await scheduler(image(1), unit=unit, retries=0)

        async with anyio.create_task_group() as group:
            for unit in range(2):
                group.start_soon(lost, unit)
        await until(lambda: [unit.state for unit in scheduler.statistics().units] == ["ok", "ok"])
        for unit in range(2):
            assert (await scheduler(image(unit), unit=unit, retries=0) == unit).all()
    assert resets == 1


async def test_units_that_cannot_be_loaded_leave_nothing_behind(
    sim: Simulator, devices: list[aa.Device], path: str
) -> None:
    async def load(npu: aa.Device) -> aa.Model:
        if npu.index == 1:
            raise FileNotFoundError("no model for device 1")
        return await npu.load_model(path)

    over = aa.Scheduler.over_devices(devices, load)
    with pytest.raises(FileNotFoundError, match="device 1"):
        await over.__aenter__()
    with pytest.raises(RuntimeError, match="entered before"):
        await over.__aenter__()
    with pytest.raises(TypeError, match="devices must be open devices"):
        aa.Scheduler.over_devices([0], lambda npu: npu.load_model(path))  # type: ignore[list-item]
    with pytest.raises(TypeError, match="load must be a function"):
        aa.Scheduler.over_devices(devices, path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"concurrency": 0}, ValueError, "concurrency"),
        ({"policy": "fastest"}, ValueError, "'fastest'"),
        ({"in_flight": 2}, TypeError, "in_flight"),
        ({"recover": None}, TypeError, "recover is what over_devices comes with"),
    ],
)
async def test_options_are_checked_before_anything_is_loaded(
    devices: list[aa.Device], options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        aa.Scheduler.over_devices(devices, lambda npu: npu.load_model("none.om"), **options)


@pytest.mark.asyncio_only
async def test_a_stray_cancel_while_a_unit_is_loaded_is_a_failure(devices: list[aa.Device], path: str) -> None:
    async def load(npu: aa.Device) -> aa.Model:
        if npu.index == 1:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future
        return await npu.load_model(path)

    with pytest.raises(aa.AioascendError, match=r"loading the unit of device 1 .* nobody has cancelled it"):
        await aa.Scheduler.over_devices(devices, load).__aenter__()


class Closable:
    """A unit that is told to be closed."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.closed = False

    async def __call__(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def close(self) -> None:
        self.closed = True
        await anyio.lowlevel.checkpoint()
        if self.fails:
            raise ZeroDivisionError("a mistake in close")


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_unit_that_cannot_be_closed_keeps_no_other_open(devices: list[aa.Device], cancelled: bool) -> None:
    units: list[Closable] = []

    async def load(npu: aa.Device) -> Closable:
        await anyio.lowlevel.checkpoint()
        units.append(Closable(fails=not cancelled))
        return units[-1]

    with anyio.CancelScope() as scope:
        over = aa.Scheduler.over_devices(devices, load)
        await over.__aenter__()
        if cancelled:
            scope.cancel()
            await over.__aexit__(None, None, None)
        else:
            with pytest.raises(ZeroDivisionError):
                await over.__aexit__(None, None, None)
    assert scope.cancelled_caught == cancelled
    assert [unit.closed for unit in units] == [True, True]


async def test_a_queue_in_front_of_a_scheduler(sim: Simulator, devices: list[aa.Device], path: str) -> None:
    async with (
        aa.Scheduler.over_devices(devices, lambda npu: npu.load_model(path)) as scheduler,
        aa.InferQueue(scheduler, concurrency=4, queue_limit=8) as queue,
    ):
        ids = [await queue.submit(image(value)) for value in range(20)]
        for value, key in enumerate(ids):
            assert (await queue.result(key) == value).all()
