# SPDX-License-Identifier: Apache-2.0
"""Streams, events, models and buffers that are closed, of another device, or something else altogether."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator
from hostile.scene import COPY, Scene

pytestmark = pytest.mark.anyio

GONE = "dst was allocated before the device was reset or closed; allocate it again"


async def test_events_of_another_device(scene: Scene) -> None:
    event, timed = scene.its_stream.record(), scene.its_stream.record(timing=True)
    await timed
    mine = scene.stream.record(timing=True)
    await mine
    for call, message in (
        (lambda: scene.stream.wait(event), "device 1, the stream to device 0; await the event on the host"),
        (lambda: scene.stream.record(event), "device 1, the stream to device 0"),
        (lambda: mine.elapsed_since(timed), "devices 1 and 0"),
        (lambda: timed.elapsed_since(mine), "devices 0 and 1"),
    ):
        await scene.refuses(call, ValueError, message)
    await event  # on the host any event will do


@pytest.mark.parametrize("value", [None, 5, "event", object()], ids=lambda value: type(value).__name__)
async def test_what_is_no_event(scene: Scene, value: Any) -> None:
    event = scene.stream.record(timing=True)
    await event
    await scene.refuses(lambda: scene.stream.wait(value), TypeError, "Event")
    await scene.refuses(lambda: event.elapsed_since(value), TypeError, "Event")
    if value is not None:
        await scene.refuses(lambda: scene.stream.record(value), TypeError, "Event")


async def test_time_that_was_not_taken(scene: Scene) -> None:
    plain, timed = scene.stream.record(), scene.stream.record(timing=True)
    await timed
    await scene.refuses(lambda: timed.elapsed_since(plain), ValueError, "timing=True")
    await scene.refuses(lambda: scene.stream.record(plain, timing=True), ValueError, "timing=True")


async def test_models_of_another_device(scene: Scene) -> None:
    x, y = scene.npu.empty((2, 8)), scene.npu.empty((2, 8))
    message = "model copy is loaded on device 0, the stream belongs to device 1"
    await scene.refuses(lambda: scene.model.execute([x], [y], stream=scene.its_stream), ValueError, message)
    await scene.refuses(lambda: scene.its_stream.execute(scene.model, [x], [y]), ValueError, message)
    there = scene.elsewhere.empty((2, 8))
    await scene.refuses(lambda: scene.model.execute([there], [y]), ValueError, "input 'x' lies on another device")
    await scene.refuses(lambda: scene.model.execute([x], [there]), ValueError, "output 'y' lies on another device")


@pytest.mark.parametrize("value", [None, 5, "copy", object()], ids=lambda value: type(value).__name__)
async def test_what_is_no_model_and_no_stream(scene: Scene, value: Any) -> None:
    x, y = scene.npu.empty((2, 8)), scene.npu.empty((2, 8))
    await scene.refuses(lambda: scene.stream.execute(value, [x], [y]), TypeError, "runs a Model")
    if value is not None:
        await scene.refuses(lambda: scene.model.execute([x], [y], stream=value), TypeError, "stream")


async def test_a_closed_stream(scene: Scene) -> None:
    stream = await scene.npu.create_stream()
    buffer, x = scene.npu.empty((2, 8)), np.zeros((2, 8), "float32")
    event = stream.record()
    await stream.close()
    for call in (
        lambda: stream.memcpy(buffer, x),
        lambda: stream.memset(buffer, 0),
        lambda: stream.record(),
        lambda: stream.record(event),
        lambda: stream.wait(event),
        lambda: stream.query(),
        lambda: stream.execute(scene.model, [buffer], [buffer]),
    ):
        await scene.refuses(call, aa.RuntimeClosedError, "closed")
    await event
    await stream
    await stream.close()
    assert event.done()
    await scene.stream.wait(event)


async def test_a_closed_device(scene: Scene) -> None:
    npu = scene.elsewhere
    buffer, pinned = npu.empty(16), await npu.pinned(16)
    start, end = scene.its_stream.record(timing=True), scene.its_stream.record(timing=True)
    await end
    await npu.close()
    calls: list[Callable[[], Any]] = [
        lambda: npu.empty(4),
        lambda: npu.empty_like(pinned),
        lambda: npu.pinned(4),
        lambda: npu.create_stream(),
        lambda: npu.wrap_stream(scene.stream.handle),
        lambda: npu.load_model(COPY),
        lambda: npu.memory_info(),
        lambda: end.elapsed_since(start),
        lambda: buffer.address,
        lambda: scene.its_stream.memset(buffer, 0),
    ]
    for call in calls:
        await scene.refuses(call, aa.RuntimeClosedError, "closed")
    assert end.done()
    assert pinned.address != 0
    await scene.refuses(lambda: scene.stream.memset(buffer, 0), ValueError, GONE)
    scene.elsewhere = await aa.open_device(1, backend="sim")
    scene.its_stream = await scene.elsewhere.create_stream()
    try:
        # A buffer of the device as it was before; its memory is gone.
        await scene.refuses(lambda: scene.its_stream.memset(buffer, 0), ValueError, GONE)
        await scene.works()
        await scene.its_stream.memcpy(scene.elsewhere.empty(16), pinned)  # pinned memory stays
    finally:
        await scene.elsewhere.close()
        scene.elsewhere, scene.its_stream = scene.npu, scene.stream


async def test_a_closed_model(scene: Scene) -> None:
    model = await scene.npu.load_model(COPY, name="closed")
    x, y = scene.npu.empty((2, 8)), scene.npu.empty((2, 8))
    await model.close()
    await scene.refuses(lambda: model(np.zeros((2, 8), "float32")), aa.RuntimeClosedError, "model closed is closed")
    await scene.refuses(lambda: model.execute([x], [y]), aa.RuntimeClosedError, "model closed is closed")
    await scene.refuses(lambda: scene.stream.execute(model, [x], [y]), aa.RuntimeClosedError, "closed")


async def test_a_thread_without_a_loop(scene: Scene) -> None:
    event = scene.stream.record()
    await event

    def refused() -> list[str]:
        messages = []
        operation = scene.stream.memset(scene.npu.empty(4), 0)  # submitting needs no loop
        later = scene.stream.record()
        for call in (
            operation.get_loop,
            lambda: operation.add_done_callback(print),
            lambda: operation.add_waiter(print),
            lambda: next(iter(operation.__await__())),
            lambda: next(iter(later.__await__())),
            lambda: next(iter(scene.stream.__await__())),
        ):
            with pytest.raises(RuntimeError) as caught:
                call()
            messages.append(str(caught.value))
        assert isinstance(scene.stream.query(), bool)
        return messages

    with scene.sim.hold(scene.stream):
        messages = await anyio.to_thread.run_sync(refused)
    assert all("loop" in message for message in messages), messages
    await scene.stream


@pytest.mark.parametrize("case", ["of another device", "destroyed by its owner"])
async def test_a_wrapped_stream_that_takes_no_work(sim: Simulator, case: str) -> None:
    async with aa.open_device(0, backend="sim") as npu, aa.open_device(1, backend="sim") as elsewhere:
        owner = await (elsewhere if case == "of another device" else npu).create_stream()
        wrapped = await npu.wrap_stream(owner.handle)
        if owner.device is npu:
            await wrapped.memset(npu.empty(4), 0)
            await owner.close()
        target = np.full(4, 7, "float32")
        refused, behind = wrapped.memset(npu.empty(4), 0), wrapped.memcpy(target, npu.empty(4))
        with pytest.raises((aa.ContextError, aa.ArgumentError)) as caught:
            await refused
        assert caught.value.retry == "caller"
        with pytest.raises(aa.DependencyError):
            await behind
        assert (target == 7).all()
        await wrapped.close()
        async with npu.create_stream() as stream:
            await stream.memset(npu.empty(4), 0)
