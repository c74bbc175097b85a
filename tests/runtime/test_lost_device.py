# SPDX-License-Identifier: Apache-2.0
"""A device that is lost with thousands of operations in flight: all of them end, and everything can begin again."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend import _native
from aioascend._native import Event, Operation
from aioascend.testing import Simulator

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

STREAMS = 8
OPERATIONS = 10_000
MODEL = b"""
inputs = [{name = "x", dtype = "uint8", shape = [64]}]
outputs = [{name = "y", dtype = "uint8", shape = [64]}]
"""


class Outcomes:
    """What each of many awaiters got."""

    def __init__(self) -> None:
        self.errors: Counter[type[BaseException] | None] = Counter()
        self.codes: set[int] = set()

    async def note(self, awaitable: Operation | Event) -> None:
        try:
            await awaitable
        except aa.AclError as error:
            self.errors[type(error)] += 1
            self.codes.add(error.code)
        else:
            self.errors[None] += 1


async def fill_queues(npu: aa.Device, streams: list[aa.Stream], model: aa.Model) -> list[Operation | Event]:
    """Operations of every kind, a device queue and a host-side queue full of them on each stream."""
    buffers = [npu.empty(64, "uint8") for _ in streams]
    outputs = [npu.empty(64, "uint8") for _ in streams]
    targets = [np.zeros(64, "uint8") for _ in streams]
    pinned = await npu.pinned(64, "uint8")
    large = np.zeros(1 << 20, "uint8")
    operations: list[Operation | Event] = []
    number = 0
    while len(operations) < OPERATIONS:
        number += 1
        for index, stream in enumerate(streams):
            buffer = buffers[index]
            operations += [stream.memset(buffer, number % 256), stream.memcpy(targets[index], buffer)]
            if number % 8 == 0:
                event = stream.record()
                operations += [event, streams[(index + 1) % len(streams)].wait(event)]
            if number % 16 == 0:
                operations += [stream.memcpy(pinned, buffer), model.execute([buffer], [outputs[index]], stream=stream)]
            if number == 500:  # these wait on the host for their memory, or for the worker
                operations.append(stream.memcpy(npu.empty(large.nbytes, "uint8"), large))
    return operations


async def test_nothing_is_left_of_a_lost_device(sim: Simulator, anyio_backend: object) -> None:
    """Not even when errors, whose tracebacks keep what the coroutine had, and arrays over pinned memory are about."""

    async def lose(npu: aa.Device) -> aa.DeviceLostError | None:
        stream, model = await npu.create_stream(), await npu.load_model(MODEL)
        pinned = await npu.pinned(64, "uint8")
        array = pinned.array
        buffer, output = npu.empty(64, "uint8"), npu.empty(64, "uint8")
        await stream.memcpy(buffer, pinned)
        with sim.hold(stream):
            operation = model.execute([buffer], [output], stream=stream)
            sim.lose_device(1)
            try:
                await operation
            except aa.DeviceLostError as error:
                assert array.nbytes == 64
                return error
        return None

    async with aa.open_device(1, backend="sim") as npu:
        error = await lose(npu)
        assert error is not None
        sim.restore_device(1)
    del npu, error
    gc.collect()
    assert {what: sim.live(what) for what in ("datasets", "host_blocks", "models")} == {
        "datasets": 0,
        "host_blocks": 0,
        "models": 0,
    }


async def test_ten_thousand_operations_end_with_the_device(sim: Simulator, anyio_backend: object) -> None:
    outcomes = Outcomes()
    async with aa.open_device(1, backend="sim") as npu:
        streams = [await npu.create_stream() for _ in range(STREAMS)]
        model = await npu.load_model(MODEL)
        sim.hold(device=1)
        operations = await fill_queues(npu, streams, model)
        assert all(stream.in_flight and stream.queued for stream in streams)
        async with anyio.create_task_group() as group:
            for operation in operations:
                group.start_soon(outcomes.note, operation)
            await anyio.lowlevel.checkpoint()
            sim.lose_device(1)
        assert outcomes.errors == {aa.DeviceLostError: len(operations)}
        assert outcomes.codes == {507010}
        with pytest.raises(aa.DeviceLostError):
            streams[0].record()
        assert _native.ticket_counts()["live"] == 0
        sim.release(device=1)
        sim.restore_device(1)
    async with aa.open_device(1, backend="sim") as npu, npu.create_stream() as stream:
        buffer, target = npu.empty(64, "uint8"), np.zeros(64, "uint8")
        stream.memset(buffer, 7)
        await stream.memcpy(target, buffer)
        assert (target == 7).all()


async def test_what_is_in_front_of_a_refused_launch_is_not_taken_for_done(
    sim: Simulator, anyio_backend: object
) -> None:
    async with aa.open_device(1, backend="sim") as npu, npu.create_stream() as stream:
        small, large = npu.empty(64, "uint8"), npu.empty(1 << 20, "uint8")
        for buffer in (small, large):
            await stream.memset(buffer, 0)
        sim.hold(stream)
        target = np.zeros(64, "uint8")
        never_run = [stream.memset(small, 1), stream.memcpy(target, small)]
        sim.lose_device(1)
        with contextlib.suppress(aa.DeviceLostError):  # if it is known already
            stream.memcpy(large, np.zeros(1 << 20, "uint8"))  # by the worker, which launches large copies
        outcomes = Outcomes()
        for operation in never_run:
            await outcomes.note(operation)
        assert outcomes.errors == {aa.DeviceLostError: 2}
        sim.restore_device(1)
