# SPDX-License-Identifier: Apache-2.0
"""No wait can wait for itself: an event exists only by its record, and means the record it had when the wait was made.

So a wait leads to a record that was submitted before it, that to what stands before it in its stream, and so on: always
back in the order of submits, never round. Whatever streams, events and records are mixed, all of it is done in the end.
"""

from __future__ import annotations

import random

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the order is the device's


def test_an_event_cannot_be_made_without_a_record() -> None:
    with pytest.raises(TypeError, match=r"use Stream\.record"):
        aa.Event()


async def test_waiting_for_each_other_is_no_cycle(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    """With one event that moves, in which a wait for its newest record would never end."""
    with sim.hold(stream), sim.hold(other):
        event = stream.record()
        other.wait(event)  # the record in `stream`
        other.record(event)
        stream.wait(event)  # the record in `other`, which stands behind that wait
        stream.record(event)
        other.wait(event)
        other.wait(event)
    with anyio.fail_after(60):
        await stream
        await other
        await event


@pytest.mark.parametrize("flight_limit", [None, 4], ids=["device", "host-queue"])
async def test_any_mixture_comes_to_an_end(sim: Simulator, anyio_backend: object, flight_limit: int | None) -> None:
    chance = random.Random(20)
    async with aa.open_device(1, backend="sim", flight_limit=flight_limit) as npu:
        streams = [await npu.create_stream() for _ in range(4)]
        large = np.zeros(300 << 10, "uint8")  # staged by the worker: what is behind it waits on the host
        events = [stream.record() for stream in streams]
        with sim.hold(device=1):
            for _ in range(300):
                stream = chance.choice(streams)
                step = chance.randrange(5)
                if step == 0:
                    events.append(stream.record())
                elif step == 1:
                    stream.record(chance.choice(events))
                elif step == 2:
                    stream.memcpy(npu.empty(300 << 10, "uint8"), large)
                else:
                    stream.wait(chance.choice(events))
        with anyio.fail_after(60):
            for stream in streams:
                await stream
            for event in events:
                await event
            for stream in streams:
                await stream.close()
