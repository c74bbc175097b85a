# SPDX-License-Identifier: Apache-2.0
"""Whatever goes to the device comes back as it was, whichever way it takes, and touches nothing beside its place."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioascend as aa
from aioascend.testing import Simulator

pytestmark = pytest.mark.anyio

GUARD = 64
INLINE = 256 << 10  # larger copies from and to pageable memory are left to the worker

DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", ">f4", ">i8", "M8[ns]", "S3", "U2", "V5"),
    *(ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float8_e4m3fn),
    [("a", "i1"), ("b", ">f8"), ("c", "u2", (3,))],
]

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
sizes = st.one_of(
    st.integers(1, 300),
    st.sampled_from([4095, 4096, 4097, 5120, 5121, INLINE - 1, INLINE, INLINE + 1, INLINE + 4096, (5 << 16) + 1]),
)
places = st.sampled_from(["pageable", "pinned", "view of pinned", "odd address", "memoryview"])


async def host_memory(npu: aa.Device, place: str, nbytes: int) -> tuple[Any, np.ndarray[Any, Any]]:
    """Host memory of a kind, as memcpy takes it, and as numpy shows its bytes."""
    if place == "pinned":
        pinned = await npu.pinned(nbytes, "uint8")
        return pinned, pinned.array
    if place == "view of pinned":
        array = (await npu.pinned(nbytes + 7, "uint8"))[3 : 3 + nbytes].array
        return array, array
    array = np.zeros(nbytes + 8, "uint8")[1 : 1 + nbytes] if place == "odd address" else np.zeros(nbytes, "uint8")
    return (memoryview(array) if place == "memoryview" else array), array


@given(dtype=st.sampled_from(DTYPES), shape=shapes, seed=st.integers(0, 2**32), way=st.tuples(places, places))
async def test_any_dtype_and_shape(
    npu: aa.Device, stream: aa.Stream, dtype: Any, shape: tuple[int, ...], seed: int, way: tuple[str, str]
) -> None:
    buffer, between = npu.empty(shape, dtype), npu.empty(shape, dtype)
    assert (buffer.shape, buffer.dtype) == (
        shape,
        np.empty(0, dtype).dtype if not isinstance(dtype, list) else np.dtype(dtype),
    )
    content = np.random.default_rng(seed).integers(0, 256, buffer.nbytes, "uint8")
    source, source_bytes = await host_memory(npu, way[0], buffer.nbytes)
    target, target_bytes = await host_memory(npu, way[1], buffer.nbytes)
    source_bytes[:] = content
    stream.memcpy(buffer, source)
    stream.memcpy(between, buffer)
    await stream.memcpy(target, between)
    np.testing.assert_array_equal(target_bytes, content)
    typed = np.empty(shape, dtype)
    await stream.memcpy(typed, between)
    assert typed.tobytes() == content.tobytes()


@given(
    nbytes=sizes, offsets=st.tuples(*[st.integers(0, GUARD)] * 2), way=st.tuples(places, places), seed=st.integers(0, 9)
)
async def test_a_part_and_nothing_beside_it(
    npu: aa.Device, stream: aa.Stream, nbytes: int, offsets: tuple[int, int], way: tuple[str, str], seed: int
) -> None:
    content = np.random.default_rng(seed).integers(0, 256, nbytes, "uint8")
    source, source_bytes = await host_memory(npu, way[0], nbytes)
    target, target_bytes = await host_memory(npu, way[1], nbytes)
    source_bytes[:] = content
    parts = []
    for value, offset in enumerate(offsets, 0xA0):
        whole = npu.empty(nbytes + GUARD, "uint8")
        stream.memset(whole, value)
        parts.append((whole, whole[offset : offset + nbytes]))
    stream.memcpy(parts[0][1], source)
    stream.memcpy(parts[1][1], parts[0][1])
    await stream.memcpy(target, parts[1][1])
    np.testing.assert_array_equal(target_bytes, content)
    for value, ((whole, _), offset) in enumerate(zip(parts, offsets, strict=True), 0xA0):
        expected = np.full(whole.nbytes, value, "uint8")
        expected[offset : offset + nbytes] = content
        everything = np.zeros_like(expected)
        await stream.memcpy(everything, whole)
        np.testing.assert_array_equal(everything, expected)


rows = st.one_of(st.integers(-7, 7), st.slices(5), st.builds(slice, st.integers(-9, 9), st.integers(-9, 9)))


@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple), taken=st.lists(rows, max_size=3))
async def test_rows_are_those_of_numpy(
    npu: aa.Device, stream: aa.Stream, shape: tuple[int, ...], taken: list[int | slice]
) -> None:
    array = np.arange(np.prod(shape), dtype="int16").reshape(shape)
    buffer, pinned = npu.empty_like(array), await npu.pinned(shape, "int16")
    stream.memcpy(buffer, array)
    await stream.memcpy(pinned, buffer)
    for index in taken:
        if isinstance(index, slice) and index.step not in (None, 1) and array.ndim:
            with pytest.raises(IndexError, match="step 1"):
                buffer[index]
            continue
        try:
            expected = array[index]
        except IndexError:
            for each in (buffer, pinned):
                with pytest.raises(IndexError):
                    each[index]
            continue
        array, buffer, pinned = np.asarray(expected), buffer[index], pinned[index]
    assert buffer.shape == pinned.shape == array.shape
    target = np.zeros_like(array, order="C")
    await stream.memcpy(target, buffer)
    np.testing.assert_array_equal(target, array)
    np.testing.assert_array_equal(pinned.array, array)


extents = st.one_of(st.integers(-2, 40), st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.none(), st.text())


@given(shape=st.one_of(extents, st.lists(extents, max_size=3).map(tuple)), dtype=st.sampled_from(["u1", "i2", "c16"]))
async def test_any_shape_is_right_or_refused(sim: Simulator, npu: aa.Device, shape: Any, dtype: str) -> None:
    sim.limit_memory(1 << 20)  # or the machine would give out gigabytes for nothing
    try:
        buffer = npu.empty(shape, dtype)
    except (TypeError, ValueError) as error:
        assert "shape" in str(error)  # noqa: PT017
        return
    dims = shape if isinstance(shape, tuple) else (shape,)
    assert all(type(extent) is int and 0 <= extent <= 2**62 for extent in dims)
    assert buffer.shape == dims
    assert buffer.nbytes == int(np.prod(dims, dtype=object)) * np.dtype(dtype).itemsize <= 2**62
