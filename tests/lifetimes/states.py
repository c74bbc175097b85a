# SPDX-License-Identifier: Apache-2.0
"""What a process is in the middle of when it ends: states to be in, for any event loop."""

from __future__ import annotations

import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import numpy as np

import aioascend as aa
from aioascend.testing import Simulator, simulator

MODEL = b'[[inputs]]\nname = "x"\nshape = [4]\n[[outputs]]\nname = "y"\nshape = [4]\nfill = "copy"\n'
DYNAMIC_MODEL = MODEL.replace(b"[4]", b"[-1]")
NEVER_S = 1000.0
BYTES = 64
STAGED_BYTES = 4 << 20


Spawn = Callable[[Callable[[], Awaitable[object]]], None]


class World:
    """An open device with a stream, and what has been started on it."""

    sim: Simulator
    npu: aa.Device
    stream: aa.Stream
    buffer: aa.DeviceBuffer
    target: Any

    def __init__(self, chance: random.Random, spawn: Spawn, *, for_ever: bool) -> None:
        self.chance = chance
        self.spawn = spawn  # starts a task that the end of the loop cancels
        self.slowness = [0.001, 0.01, 0.1, NEVER_S] if for_ever else [0.001, 0.01, 0.1]
        self.sim = simulator("sim")
        self.kept: list[object] = []

    async def open(self) -> None:
        self.npu = await aa.open_device(0, backend="sim")
        self.stream = await self.npu.create_stream()
        self.buffer = self.npu.empty(BYTES, "uint8")
        self.target = np.zeros(BYTES, "uint8")
        await self.stream.memset(self.buffer, 0)

    def slow_down(self, function: str) -> None:
        self.sim.set_call_latency(function, self.chance.choice(self.slowness))

    async def call_of(self, function: str) -> None:
        """Until a thread is inside a call of this function."""
        while not self.sim.calls(function):
            await anyio.lowlevel.checkpoint()


async def idle(world: World) -> None:
    await world.stream


async def held(world: World) -> None:
    """Operations in flight, some of them awaited, with every kind of memory."""
    stream, buffer = world.stream, world.buffer
    pinned = await world.npu.pinned(BYTES, "uint8")
    world.sim.hold(stream)
    for value in range(world.chance.randrange(1, 40)):
        world.kept.append(stream.memset(buffer, value))
    world.kept += [stream.memcpy(buffer, bytearray(BYTES)), stream.memcpy(pinned, buffer)]
    last = stream.memcpy(world.target, buffer)
    event = stream.record()
    for awaited in world.chance.sample([last, last, event, stream], world.chance.randrange(5)):
        world.spawn(waiting_for(awaited))
    await anyio.lowlevel.checkpoint()


async def host_queue_full(world: World) -> None:
    world.sim.hold(world.stream)
    world.kept += [world.stream.memset(world.buffer, index % 256) for index in range(700)]


async def device_queue_full(world: World) -> None:
    """The worker is inside a launch that does not return, because the queue holds less than the runtime counts on."""
    world.sim.set_queue_depth(4)
    stream = await world.npu.create_stream()
    large = world.npu.empty(STAGED_BYTES // 8, "uint8")
    world.sim.hold(stream)
    world.kept += [stream.memcpy(large, bytearray(large.nbytes)) for _ in range(8)]
    world.sim.wait_blocked(stream, 1)


async def staged(world: World) -> None:
    """Large copies between pageable memory and the device, at any stage."""
    large = world.npu.empty(STAGED_BYTES, "uint8")
    for value in range(world.chance.randrange(1, 8)):
        world.kept.append(world.stream.memcpy(large, np.full(STAGED_BYTES, value, "uint8")))
        world.kept.append(world.stream.memcpy(np.empty(STAGED_BYTES, "uint8"), large))
    if world.chance.random() < 0.5:
        world.spawn(waiting_for(world.kept[-1]))


async def untold(world: World) -> None:
    """Failures that nobody awaits."""
    for _ in range(world.chance.randrange(1, 4)):
        world.sim.fail_task(stream=world.stream, kind="memset")
        world.stream.memset(world.buffer, 1)
        world.stream.memset(world.buffer, 2)
    if world.chance.random() < 0.5:
        world.sim.wait_tasks(world.stream, 2)


async def loading(world: World) -> None:
    """A thread is inside the loading of a model."""
    world.slow_down("aclmdlLoadFromMem")

    async def load() -> None:
        world.kept.append(await world.npu.load_model(MODEL))

    world.spawn(load)
    await world.call_of("aclmdlLoadFromMem")


async def destroying(world: World) -> None:
    """A thread is inside the destruction of a stream."""
    stream = await world.npu.create_stream()
    world.slow_down("aclrtDestroyStream")
    world.spawn(stream.close)
    await world.call_of("aclrtDestroyStream")


async def model_calls(world: World) -> None:
    model = await world.npu.load_model(MODEL)
    world.kept.append(model)
    if world.chance.random() < 0.5:
        world.sim.hold(model.stream)
    for _ in range(3):
        world.spawn(lambda: model(np.ones(4, "float32")))
    await anyio.lowlevel.checkpoint()


async def dynamic_model(world: World) -> None:
    """A thread is inside a run that waits (aclmdlExecute)."""
    model = await world.npu.load_model(DYNAMIC_MODEL)
    world.kept.append(model)
    world.slow_down("aclmdlExecute")
    world.spawn(lambda: model(np.ones(4, "float32")))
    await world.call_of("aclmdlExecute")


async def two_loops(world: World) -> None:
    """Another thread has a loop of its own, on the same device and the same stream."""
    started = threading.Event()
    world.sim.hold(world.stream)

    async def elsewhere() -> None:
        async with aa.open_device(0, backend="sim") as npu:
            stream = await npu.create_stream()
            world.sim.hold(stream)
            world.kept += [stream.memset(world.buffer, 1), world.stream.memset(world.buffer, 2)]
            event = world.stream.record()
            started.set()
            await event

    thread = threading.Thread(target=lambda: anyio.run(elsewhere), daemon=True)
    thread.start()
    world.kept.append(thread)
    started.wait()
    world.kept.append(world.stream.memset(world.buffer, 3))


def waiting_for(awaitable: Any) -> Callable[[], Awaitable[object]]:
    async def wait() -> object:
        return await awaitable

    return wait


STATES: dict[str, Callable[[World], Awaitable[None]]] = {
    state.__name__: state
    for state in (
        idle,
        held,
        host_queue_full,
        device_queue_full,
        staged,
        untold,
        loading,
        destroying,
        model_calls,
        dynamic_model,
        two_loops,
    )
}
