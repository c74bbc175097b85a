# SPDX-License-Identifier: Apache-2.0
"""What the device touches stays what and where it is, whatever is done to it meanwhile."""

from __future__ import annotations

import gc
import random
import weakref

import anyio
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator
from lifetimes.states import MODEL

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick_collections")]

SMALL = 4 << 10  # staged when it is submitted
LARGE = 1 << 20  # staged by the worker, later


class Array(np.ndarray):
    """An array that a weak reference can be made to."""


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
async def test_nothing_in_flight_can_be_resized(npu: aa.Device, stream: aa.Stream, sim: Simulator, size: int) -> None:
    buffer = npu.empty(size, "uint8")
    await stream.memset(buffer, 1)
    array, growing = np.zeros(size, "uint8"), bytearray(size)
    for submit in (
        lambda: (stream.memcpy(buffer, array), stream.memcpy(buffer, growing)),
        lambda: (stream.memcpy(array, buffer), stream.memcpy(growing, buffer)),
    ):
        with sim.hold(stream):
            submit()
            with pytest.raises(ValueError, match="resize"):
                array.resize(2 * size)
            with pytest.raises(BufferError, match="re-sized"):
                growing.extend(b"more")
        await stream
    array.resize(2 * size)
    growing.extend(b"more")


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
async def test_a_source_that_nobody_refers_to(npu: aa.Device, stream: aa.Stream, sim: Simulator, size: int) -> None:
    buffer, target = npu.empty(size, "uint8"), np.zeros(size, "uint8")
    with sim.hold(stream):
        copy = stream.memcpy(buffer, np.full(size, 7, "uint8"))
        gc.collect()
        others = [np.full(size, 0xDB, "uint8") for _ in range(8)]  # where it lay, if it is gone
    await copy
    await stream.memcpy(target, buffer)
    assert (target == 7).all()
    assert len(others) == 8


async def test_sources_and_destinations_are_let_go_with_the_report(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    buffer = npu.empty(LARGE, "uint8")
    source, target = np.ones(LARGE, "uint8").view(Array), np.zeros(LARGE, "uint8").view(Array)
    gone = [weakref.ref(source), weakref.ref(target)]
    with sim.hold(stream):
        stream.memcpy(buffer, source)
        copy = stream.memcpy(target, buffer)
        del source, target
        gc.collect()
        assert all(array() is not None for array in gone)
    await copy
    assert all(array() is None for array in gone)


async def test_pinned_memory_is_not_handed_out_again_before_the_device_is_past_it(
    npu: aa.Device, stream: aa.Stream, sim: Simulator
) -> None:
    count = 500
    rows = npu.empty((count, SMALL), "uint8")
    await stream.memset(rows, 0)
    with sim.hold(stream):
        for value in range(count):
            pinned = await npu.pinned(SMALL, "uint8")
            pinned.array[:] = value % 251
            stream.memcpy(rows[value], pinned)
        del pinned
        gc.collect()
        for _ in range(count):
            (await npu.pinned(SMALL, "uint8")).array[:] = 0xDB
    target = np.zeros((count, SMALL), "uint8")
    await stream.memcpy(target, rows)
    assert (target == (np.arange(count) % 251)[:, None]).all()


async def test_device_memory_is_not_handed_out_again_before_the_device_is_past_it(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    target = np.zeros(SMALL, "uint8")
    with sim.hold(stream):
        buffer = npu.empty(SMALL, "uint8")
        stream.memset(buffer, 3)
        copy = stream.memcpy(target, buffer)
        del buffer
        gc.collect()
        for _ in range(20):
            await other.memset(npu.empty(SMALL, "uint8"), 0xDB)
    await copy
    assert (target == 3).all()


async def test_closing_waits_for_what_is_in_flight(npu: aa.Device, sim: Simulator) -> None:
    stream, model = await npu.create_stream(), await npu.load_model(MODEL)
    x, y = npu.empty(4, "float32"), npu.empty(4, "float32")
    results: list[np.ndarray] = []
    closed: list[object] = []

    async def call() -> None:
        results.append(await model(np.arange(4, dtype="float32")))

    async def close(what: aa.Stream | aa.Model | aa.Device) -> None:
        await what.close()
        closed.append(what)

    await stream.memset(x, 0)
    with sim.hold(device=npu):
        async with anyio.create_task_group() as group:
            runs = [model.execute([x], [y]), model.execute([x], [y], stream=stream), stream.memset(x, 1)]
            group.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            for resource in (model, stream, npu):
                group.start_soon(close, resource)
            await anyio.wait_all_tasks_blocked()
            assert closed == []
            with pytest.raises(aa.RuntimeClosedError):
                stream.memset(x, 2)
            with pytest.raises(aa.RuntimeClosedError):
                npu.empty(4)
            sim.release(device=npu)
    assert len(closed) == 3
    assert all(run.done() for run in runs)
    np.testing.assert_array_equal(results[0], np.arange(4))


async def test_closing_waits_for_a_model_that_is_being_loaded(sim: Simulator, anyio_backend: object) -> None:
    npu = await aa.open_device(0, backend="sim")
    sim.set_call_latency("aclmdlLoadFromMem", 0.05)
    refused: list[BaseException] = []

    async def load() -> None:
        with pytest.raises(aa.RuntimeClosedError) as caught:
            await npu.load_model(MODEL)
        refused.append(caught.value)

    async with anyio.create_task_group() as group:
        group.start_soon(load)
        while not sim.calls("aclmdlLoadFromMem"):
            await anyio.lowlevel.checkpoint()
        await npu.close()
        await anyio.wait_all_tasks_blocked()
    assert len(refused) == 1


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
async def test_collected_in_any_order(npu: aa.Device, sim: Simulator) -> None:
    """Whatever is let go first, alone or in cycles, with the collector at any moment."""
    chance = random.Random(5)
    for _ in range(12):
        await _let_go_in_some_order(npu, sim, chance)
    gc.unfreeze()


async def _let_go_in_some_order(npu: aa.Device, sim: Simulator, chance: random.Random) -> None:
    stream, model = await npu.create_stream(), await npu.load_model(MODEL)
    await stream.memset(npu.empty(4, "float32"), 0)
    sim.hold(device=npu)
    x, y = npu.empty(4, "float32"), npu.empty(4, "float32")
    pinned = await npu.pinned(4, "float32")
    things: dict[str, object] = {
        "stream": stream,
        "model": model,
        "input": x,
        "output": y,
        "pinned": pinned,
        "view of pinned": pinned.array,
        "array": np.ones(4, "float32"),
    }
    things["copy"] = stream.memcpy(x, things["array"])
    things["run"] = model.execute([x], [y], stream=stream)
    things["event"] = stream.record()
    things["copy out"] = stream.memcpy(pinned, y)
    things["run elsewhere"] = model.execute([x], [y])
    if chance.random() < 0.5:
        stream.itself = [stream, model, things["event"]]  # type: ignore[attr-defined]
        model.itself = [stream, model, things["run"]]  # type: ignore[attr-defined]
    if chance.random() < 0.3:
        gc.freeze()
    del stream, model, x, y, pinned
    release_at = chance.randrange(len(things) + 1)
    names: list[str] = list(things)
    chance.shuffle(names)
    for position, name in enumerate(names):
        if position == release_at:
            sim.release(device=npu)
        del things[name]
        chance.choice([gc.collect, lambda: None])()
    sim.release(device=npu)
    gc.collect()


async def test_frozen_for_good(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    buffer, target = npu.empty(SMALL, "uint8"), np.zeros(SMALL, "uint8")
    with sim.hold(stream):
        stream.memset(buffer, 5)
        copy = stream.memcpy(target, buffer)
        gc.freeze()
        gc.collect()
    await copy
    gc.unfreeze()
    assert (target == 5).all()
