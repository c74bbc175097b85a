# SPDX-License-Identifier: Apache-2.0
"""Buffers, views, staging, and what cannot be copied."""

from __future__ import annotations

import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aioascend as aa
from aioascend.testing import Simulator

pytestmark = pytest.mark.anyio

DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool", "complex64"]


@pytest.mark.parametrize("dtype", [*DTYPES, ml_dtypes.bfloat16], ids=str)
async def test_dtypes_go_there_and_back(npu: aa.Device, stream: aa.Stream, dtype: Any) -> None:
    source = np.arange(24).reshape(2, 3, 4).astype(dtype)
    buffer, pinned = npu.empty_like(source), await npu.pinned(source.shape, dtype)
    target = np.zeros_like(source)
    stream.memcpy(buffer, source)
    stream.memcpy(pinned, buffer)
    await stream.memcpy(target, buffer)
    np.testing.assert_array_equal(target, source)
    np.testing.assert_array_equal(pinned.array, source)
    np.testing.assert_array_equal(np.asarray(pinned), source)
    assert buffer.dtype == pinned.dtype == source.dtype
    assert buffer.shape == (2, 3, 4)
    assert buffer.nbytes == source.nbytes
    assert (buffer.ndim, buffer.size, len(buffer)) == (3, 24, 2)


async def test_pinned_memory_is_shared_with_numpy(npu: aa.Device, stream: aa.Stream) -> None:
    pinned = await npu.pinned((2, 4), "int32")
    array = pinned.array
    array[:] = 7
    assert (np.asarray(pinned) == 7).all()
    view = memoryview(pinned)
    assert view.shape == (2, 4)
    assert view.format == "i"
    assert not view.readonly
    assert np.array(pinned, dtype="float64").dtype == np.float64
    del pinned
    gc.collect()
    array[:] = 8  # the array keeps the memory
    buffer = npu.empty((2, 4), "int32")
    await stream.memcpy(buffer, array)
    target = np.zeros((2, 4), "int32")
    await stream.memcpy(target, buffer)
    assert (target == 8).all()


@pytest.mark.parametrize("nbytes", [1, 4097, (256 << 10) + 1, 3 << 20])
async def test_pageable_arrays_are_staged(npu: aa.Device, stream: aa.Stream, sim: Simulator, nbytes: int) -> None:
    # In this mode the library would block and consume the errors of a stream if pageable memory reached it.
    syncs = sim.calls("aclrtSynchronizeStream")
    source = np.random.default_rng(0).integers(0, 256, nbytes, "uint8")
    buffer = npu.empty(nbytes, "uint8")
    target = np.zeros_like(source)
    stream.memcpy(buffer, source)
    await stream.memcpy(target, buffer)
    np.testing.assert_array_equal(target, source)
    assert sim.calls("aclrtSynchronizeStream") == syncs


async def test_many_sizes_in_order(npu: aa.Device, stream: aa.Stream) -> None:
    """Large staged copies take another way than small ones, and must not overtake or be overtaken."""
    order: list[int] = []
    targets = []
    for index in range(30):
        nbytes = (1 << 20) if index % 3 == 0 else 64
        buffer = npu.empty(nbytes, "uint8")
        stream.memset(buffer, index)
        targets.append(np.zeros(nbytes, "uint8"))
        stream.memcpy(targets[-1], buffer).add_waiter(lambda _, index=index: order.append(index))
    await stream
    assert order == list(range(30))
    for index, target in enumerate(targets):
        assert (target == index).all()


async def test_bytes_and_bytearrays(npu: aa.Device, stream: aa.Stream) -> None:
    buffer = npu.empty(5, "uint8")
    target = bytearray(5)
    stream.memcpy(buffer, b"hello")
    await stream.memcpy(target, buffer)
    assert target == b"hello"
    with pytest.raises(ValueError, match="read-only"):
        stream.memcpy(b"hello", buffer)


async def test_device_to_device_and_parts(npu: aa.Device, stream: aa.Stream) -> None:
    a, b = npu.empty((4, 2), "int32"), npu.empty((4, 2), "int32")
    source = np.arange(8, dtype="int32").reshape(4, 2)
    stream.memcpy(a, source)
    stream.memcpy(b, a)
    stream.memcpy(b[0], a[3])
    stream.memcpy(b[1:3], np.full((2, 2), -1, "int32"))
    target = np.zeros_like(source)
    await stream.memcpy(target, b)
    np.testing.assert_array_equal(target, [[6, 7], [-1, -1], [-1, -1], [6, 7]])
    assert a[1:3].shape == (2, 2)
    assert a[-1].shape == (2,)
    assert a.view((2, 2), "int64").nbytes == 32
    with pytest.raises(ValueError, match="needs 64 bytes"):
        a.view((4, 4), "int32")
    with pytest.raises(IndexError, match="row 4"):
        a[4]
    with pytest.raises(IndexError, match="step"):
        a[::2]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: np.zeros(3, "float32"), ValueError, "dst has 16 bytes and src has 12"),
        (lambda: np.zeros((8, 2), "float32")[::2, 0], ValueError, "not contiguous"),
        (lambda: [1, 2, 3, 4], TypeError, "src must be .* not list"),
        (lambda: None, TypeError, "not NoneType"),
    ],
)
async def test_what_cannot_be_copied(
    npu: aa.Device, stream: aa.Stream, make: Any, error: type[Exception], message: str
) -> None:
    buffer = npu.empty(4)
    with pytest.raises(error, match=message):
        stream.memcpy(buffer, make())
    await stream.memcpy(buffer, np.ones(4, "float32"))


async def test_other_bad_arguments(npu: aa.Device, stream: aa.Stream) -> None:
    buffer = npu.empty(4)
    read_only = np.zeros(4, "float32")
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        stream.memcpy(read_only, buffer)
    with pytest.raises(ValueError, match="both host memory"):
        stream.memcpy(np.zeros(4), np.zeros(4))
    with pytest.raises(ValueError, match="256"):
        stream.memset(buffer, 256)
    with pytest.raises(TypeError):
        stream.memset(np.zeros(4), 0)  # type: ignore[arg-type]
    for shape in ((-1,), (2, -3)):
        with pytest.raises(ValueError, match="negative"):
            npu.empty(shape)
    with pytest.raises(ValueError, match="more than any device"):
        npu.empty((2**40, 2**40))
    with pytest.raises(TypeError, match="objects"):
        npu.empty(4, object)
    await stream.memset(buffer, 255)


async def test_empty_arrays(npu: aa.Device, stream: aa.Stream) -> None:
    nothing = npu.empty((0, 3))
    await stream.memcpy(nothing, np.zeros((0, 3), "float32"))
    await stream.memcpy(np.zeros((0, 3), "float32"), nothing)
    await stream.memset(nothing, 0)
    assert nothing.address == 0
    pinned = await npu.pinned(0)
    assert pinned.array.shape == (0,)


async def test_memory_is_reused_and_given_back(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    for _ in range(20):
        await stream.memset(npu.empty(1 << 20, "uint8"), 0)
    assert sim.calls("aclrtMalloc") >= 1
    before = sim.calls("aclrtMalloc")
    for _ in range(20):
        await stream.memset(npu.empty(1 << 20, "uint8"), 0)
    assert sim.calls("aclrtMalloc") == before
    assert npu.statistics().device_live_bytes == 0
    info = await npu.memory_info()
    assert info.total > info.free > 0


async def test_an_array_cannot_be_resized_under_a_copy(npu: aa.Device, stream: aa.Stream, sim: Simulator) -> None:
    target = bytearray(4)
    with sim.hold(stream):
        operation = stream.memcpy(target, npu.empty(4, "uint8"))
        with pytest.raises(BufferError):
            target.extend(b"more")
    await operation
    target.extend(b"more")


async def test_buffers_outlive_their_device(sim: Simulator, anyio_backend: object) -> None:
    async with aa.open_device(0, backend="sim") as npu:
        buffer = npu.empty(64, "uint8")
        pinned = await npu.pinned(64, "uint8")
        async with npu.create_stream() as stream:
            await stream.memset(buffer, 3)
            await stream.memcpy(pinned, buffer)
    assert (pinned.array == 3).all()
    with pytest.raises(aa.RuntimeClosedError):
        npu.empty(4)
    async with aa.open_device(0, backend="sim") as npu, npu.create_stream() as stream:
        with pytest.raises(ValueError, match="device"):
            stream.memset(buffer, 1)
    del buffer, pinned
    gc.collect()


def test_handles_are_not_made_by_hand() -> None:
    for kind in (aa.Operation, aa.Event, aa.DeviceBuffer, aa.PinnedBuffer, aa.Stream, aa.Model):
        with pytest.raises(TypeError, match=r"use (Device|the methods|Stream)"):
            kind()


async def test_a_copy_on_a_closed_stream_takes_no_memory(npu: aa.Device, sim: Simulator) -> None:
    stream = await npu.create_stream()
    buffer = npu.empty(1 << 20, "uint8")
    await stream.close()
    for _ in range(100):
        with pytest.raises(aa.RuntimeClosedError):
            stream.memcpy(buffer, np.zeros(1 << 20, "uint8"))
    assert npu.statistics().pinned_live_bytes == 0
    with pytest.raises(aa.RuntimeClosedError):
        stream.query()


async def test_objects_are_refused(npu: aa.Device, stream: aa.Stream) -> None:
    objects = np.array(["a", "b"], object)
    for target, source in ((npu.empty(16, "uint8"), objects), (objects, npu.empty(16, "uint8"))):
        with pytest.raises(TypeError, match="Python objects"):
            stream.memcpy(target, source)
    with pytest.raises(TypeError, match="device memory"):
        np.asarray(npu.empty(1000))
    for value in (1.5, "1"):
        with pytest.raises(TypeError):
            stream.memset(npu.empty(4), value)  # type: ignore[arg-type]


async def test_a_buffer_that_found_no_memory_can_be_used_when_there_is_some(
    npu: aa.Device, stream: aa.Stream, other: aa.Stream, sim: Simulator
) -> None:
    sim.limit_memory(1 << 20)
    buffer = npu.empty(8 << 20, "uint8")
    for each in (stream, other):
        with pytest.raises(aa.OutOfMemoryError) as caught:
            await each.memset(buffer, 1)
        assert caught.value.retry == "retry"
    sim.limit_memory(None)
    target = np.zeros(8 << 20, "uint8")
    await stream.memset(buffer, 2)
    await other.memcpy(target, buffer)
    assert (target == 2).all()
