# SPDX-License-Identifier: Apache-2.0
"""The table of failure domains in docs/errors.md: each row is made to happen, and what is seen must be what it says.

The cells that are checked are words: the class of an error, what a stream or the device is good for afterwards.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

import aioascend as aa
from aioascend.testing import Simulator

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
DEVICE = 1
STOP_ON_FAILURE = 1


class Row(NamedTuple):
    """One row of the table, without its first and its last cell."""

    operation: str
    behind: str
    stream: str
    others: str
    device: str


def table() -> dict[str, Row]:
    text = PAGE.read_text(encoding="utf-8").split("## Failure domains")[1].split("\n## ")[0]
    rows = [line.strip("|\n").split("|") for line in text.splitlines() if line.startswith("|")]
    return {cells[0].strip(): Row(*(cell.strip().strip("`") for cell in cells[1:-1])) for cells in rows[2:]}


class Scene:
    """A device with a stream that something happens to, and another one that has nothing to do with it."""

    def __init__(self, npu: aa.Device, stream: aa.Stream, bystander: aa.Stream, sim: Simulator) -> None:
        self.npu, self.stream, self.bystander, self.sim = npu, stream, bystander, sim
        self.buffer = npu.empty(16, "uint8")
        self.acl = ctypes.CDLL(aa.backend_info("sim").path)

    def two(self) -> list[Any]:
        """An operation, and one behind it."""
        return [self.stream.memset(self.buffer, value) for value in (1, 2)]

    async def foreign(self, function: str, *arguments: Any) -> None:
        """A call that some other library of this process makes, in a thread of its own."""

        def call() -> None:
            assert self.acl.aclrtSetCurrentContext(ctypes.c_void_p(self.npu.context)) == 0
            assert getattr(self.acl, function)(*arguments) == 0

        await anyio.to_thread.run_sync(call)


Happening = Callable[[Scene], Awaitable[list[Any]]]
HAPPENINGS: dict[str, Happening] = {}


def row(name: str) -> Callable[[Happening], Happening]:
    def register(happening: Happening) -> Happening:
        HAPPENINGS[name] = happening
        return happening

    return register


@row("A task fails")
async def _(scene: Scene) -> list[Any]:
    scene.sim.fail_task(stream=scene.stream, code=507015)
    with scene.sim.hold(scene.stream):
        return scene.two()


@row("A task fails, and streams stop on failures")
async def _(scene: Scene) -> list[Any]:
    await scene.foreign(
        "aclrtSetStreamFailureMode", ctypes.c_void_p(scene.stream.handle), ctypes.c_uint64(STOP_ON_FAILURE)
    )
    scene.sim.fail_task(stream=scene.stream, code=507015)
    with scene.sim.hold(scene.stream):
        return scene.two()


@row("A task fails, and the device refuses everything from then on")
async def _(scene: Scene) -> list[Any]:
    scene.sim.fail_task(stream=scene.stream, code=507014)
    failed = scene.stream.memset(scene.buffer, 1)
    await seen(failed)
    scene.sim.lose_device(DEVICE, code=507014)
    with pytest.raises(aa.DeviceLostError) as caught:
        scene.stream.memset(scene.buffer, 2)
    return [failed, caught.value]


@row("`stream.abort()`")
async def _(scene: Scene) -> list[Any]:
    scene.sim.hold(scene.stream)
    operations = scene.two()
    assert await scene.stream.abort()
    scene.sim.release(scene.stream)
    return operations


@row("`stream.abort()`, of which the device is not capable")
async def _(scene: Scene) -> list[Any]:
    scene.sim.hold(scene.stream)
    operations = scene.two()
    scene.sim.fail_call("aclrtStreamAbort", code=207000)
    assert not await scene.stream.abort()
    assert scene.npu.health().orphaned_streams == 1
    return operations


@row("Another library aborts the stream")
async def _(scene: Scene) -> list[Any]:
    scene.sim.hold(scene.stream)
    operations = scene.two()
    operations[-1].add_waiter(lambda _: None)  # its report is asked for, and discarded with the rest
    await scene.foreign("aclrtStreamAbort", ctypes.c_void_p(scene.stream.handle))
    scene.sim.release(scene.stream)
    return operations


@row("Another library resets the device")
async def _(scene: Scene) -> list[Any]:
    scene.sim.hold(scene.stream)
    operations = scene.two()
    await scene.foreign("aclrtResetDeviceForce", DEVICE)
    return operations


@row("The device is lost")
async def _(scene: Scene) -> list[Any]:
    scene.sim.hold(scene.stream)
    operations = scene.two()
    scene.sim.lose_device(DEVICE)
    return operations


@row("No memory when a buffer is allocated")
async def _(scene: Scene) -> list[Any]:
    scene.sim.limit_memory(1 << 20)
    large = scene.npu.empty(64 << 20, "uint8")
    operations = [scene.stream.memset(large, 0), scene.stream.memset(scene.buffer, 2)]
    await seen(operations[0])
    scene.sim.limit_memory(None)
    return operations


@row("No memory in the middle of an operation")
async def _(scene: Scene) -> list[Any]:
    scene.sim.fail_task(stream=scene.stream, code=207018)
    with scene.sim.hold(scene.stream):
        return scene.two()


@row("A report is lost")
async def _(scene: Scene) -> list[Any]:
    scene.sim.drop_callback(stream=scene.stream)
    with scene.sim.hold(scene.stream):
        operations = scene.two()
        operations[-1].add_waiter(lambda _: None)  # one report for both
    return operations


@row("The report thread is stuck in the library")
async def _(scene: Scene) -> list[Any]:
    scene.sim.set_call_latency("aclrtProcessReport", 3)
    await until_called(scene.sim, "aclrtProcessReport")
    with scene.sim.hold(scene.stream):
        operations = scene.two()
        operations[-1].add_waiter(lambda _: None)
    for operation in operations:
        await seen(operation)
    scene.sim.set_call_latency("aclrtProcessReport", 0)
    return operations


@row("A launch is refused when it is submitted")
async def _(scene: Scene) -> list[Any]:
    scene.sim.fail_call("aclrtMemsetAsync", code=507899)
    with pytest.raises(aa.DeviceError) as caught:
        scene.stream.memset(scene.buffer, 1)
    return [caught.value, scene.stream.memset(scene.buffer, 2)]


@row("A launch is refused when it comes from the host-side queue")
async def _(scene: Scene) -> list[Any]:
    with scene.sim.hold(scene.stream):
        while not scene.stream.queued:
            scene.stream.memset(scene.buffer, 0)
        operations = scene.two()
        queued = scene.stream.queued
        scene.sim.fail_call("aclrtMemsetAsync", nth=queued - 1, code=507899)
    return operations


@row("The request for a report is refused")
async def _(scene: Scene) -> list[Any]:
    scene.sim.fail_call("aclrtLaunchCallback", code=507899)
    return scene.two()


async def until_called(sim: Simulator, function: str) -> None:
    before = sim.calls(function)
    while sim.calls(function) == before:
        await anyio.lowlevel.checkpoint()


async def seen(outcome: Any) -> str:
    """What an awaiter sees, in the words of the table."""
    if not isinstance(outcome, BaseException):
        try:
            with anyio.fail_after(60):
                await outcome
        except aa.AioascendError as error:
            outcome = error
        else:
            return "the result"
    assert type(outcome) is not aa.DependencyError or isinstance(outcome.__cause__, aa.AclError)
    return type(outcome).__name__


async def use_of(stream: aa.Stream, buffer: aa.DeviceBuffer) -> str:
    try:
        with anyio.fail_after(60):
            await stream.memset(buffer, 3)
    except aa.RuntimeClosedError:
        return "closed"
    except aa.DeviceLostError:
        return "out of service"
    return "goes on"


def test_every_row_is_tested() -> None:
    assert list(table()) == list(HAPPENINGS)


@pytest.mark.parametrize("name", HAPPENINGS)
async def test_failure_domain(name: str, sim: Simulator, anyio_backend: object) -> None:
    expected = table()[name]
    async with aa.open_device(DEVICE, backend="sim", report_timeout=0.3) as npu:
        stream, bystander = await npu.create_stream(), await npu.create_stream()
        scene = Scene(npu, stream, bystander, sim)
        await stream.memset(scene.buffer, 0)
        await bystander.memset(scene.buffer, 0)
        operation, behind = await HAPPENINGS[name](scene)
        observed = Row(
            await seen(operation),
            await seen(behind),
            await use_of(stream, scene.buffer),
            await use_of(bystander, scene.buffer),
            npu.health().state,
        )
        assert observed == expected
        if observed.device == "failed":
            await recovers_by_a_reset(npu, scene, sim)
        elif observed.stream == "closed":
            async with npu.create_stream() as another:
                await another.memset(scene.buffer, 1)


async def recovers_by_a_reset(npu: aa.Device, scene: Scene, sim: Simulator) -> None:
    health = npu.health()
    assert health.error is not None
    assert health.error.retry == "gone"
    assert re.search(r"await device\.reset\(\)", health.error.hint)
    with pytest.raises(aa.DeviceLostError):
        await npu.create_stream()
    with pytest.raises(aa.DeviceLostError):
        npu.empty(4, "uint8")
    with pytest.raises(aa.DeviceLostError):
        await aa.open_device(DEVICE, backend="sim")
    sim.restore_device(DEVICE)
    await npu.reset()
    assert npu.health().state == "ok"
    with pytest.raises(aa.RuntimeClosedError, match="reset"):
        scene.stream.memset(scene.buffer, 0)
    await scene.stream.close()
    async with npu.create_stream() as stream:
        with pytest.raises(ValueError, match="before the device was reset"):
            stream.memset(scene.buffer, 0)
        await stream.memset(npu.empty(16, "uint8"), 0)
