# SPDX-License-Identifier: Apache-2.0
"""Shapes, dtypes and rows that no buffer can have."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aioascend as aa
from hostile.scene import Scene

pytestmark = pytest.mark.anyio

NO_SHAPE = "a shape is an integer or a sequence of integers, not "

SHAPES: list[tuple[Any, type[Exception], str]] = [
    (2.5, TypeError, NO_SHAPE + "2.5"),
    ((2.5,), TypeError, NO_SHAPE + r"\(2.5,\)"),
    (np.float64(3), TypeError, NO_SHAPE),
    (float("nan"), TypeError, NO_SHAPE + "nan"),
    ((float("inf"),), TypeError, NO_SHAPE),
    ("12", TypeError, NO_SHAPE + "'12'"),
    (("1", "2"), TypeError, NO_SHAPE),
    (b"ab", TypeError, NO_SHAPE),
    (None, TypeError, NO_SHAPE + "None"),
    ((2, None), TypeError, NO_SHAPE),
    (((2, 3),), TypeError, NO_SHAPE),
    (True, TypeError, NO_SHAPE),
    ((2, np.True_), TypeError, NO_SHAPE),
    ({2: 3}, TypeError, NO_SHAPE),
    ({2, 3}, TypeError, NO_SHAPE),
    (np.array(3), TypeError, NO_SHAPE),
    (-1, ValueError, r"\(-1,\) has a negative extent"),
    ((3, -(2**100)), ValueError, "negative extent"),
    (2**61, ValueError, "more than any device has"),
    (2**63, ValueError, "more than any device has"),
    (2**100, ValueError, "more than any device has"),
    ((2**31, 2**31, 2**31), ValueError, "more than any device has"),
    ((0, 2**100), ValueError, "more than any device has"),
    ((2**63, 0), ValueError, "more than any device has"),
    ((1,) * 65, ValueError, "65 dimensions"),
]


@pytest.mark.parametrize(("shape", "error", "message"), SHAPES, ids=[repr(shape)[:20] for shape, *_ in SHAPES])
async def test_no_buffer_has_such_a_shape(scene: Scene, shape: Any, error: type[Exception], message: str) -> None:
    await scene.refuses(lambda: scene.npu.empty(shape), error, message)
    await scene.refuses(lambda: scene.npu.pinned(shape), error, message)
    buffer = scene.npu.empty(4)
    await scene.refuses(lambda: buffer.view(shape), error, message)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("float33", "float33"),
        (5, "5"),
        (object, "Python objects"),
        ([("a", "i4"), ("b", "O")], "Python objects"),
        ("U", "'U' has no size"),
        (bytes, "has no size"),
        ("V", "has no size"),
        (np.dtype(("f4", (2,))), r"a shape of its own, \(2,\)"),
        (np.zeros(3), "dtype"),
    ],
    ids=str,
)
async def test_no_buffer_has_such_a_dtype(scene: Scene, dtype: Any, message: str) -> None:
    await scene.refuses(lambda: scene.npu.empty(4, dtype), TypeError, message)
    await scene.refuses(lambda: scene.npu.pinned(4, dtype), TypeError, message)
    buffer = scene.npu.empty(4)
    await scene.refuses(lambda: buffer.view(1, dtype), TypeError, message)


async def test_no_dtype_is_not_float64(scene: Scene) -> None:
    await scene.refuses(lambda: scene.npu.empty(4, None), TypeError, "float64")
    assert scene.npu.empty(4).view(2, None).dtype == np.float32  # a view keeps the dtype


@pytest.mark.parametrize(
    "dtype",
    ["M8[s]", "m8[ns]", "U3", "S5", ">f4", "i4,f8", [("Other", "i4"), ("b", "f4")], "bfloat16", ml_dtypes.int4],
    ids=str,
)
async def test_unusual_dtypes_keep_their_bytes(scene: Scene, dtype: Any) -> None:
    pinned = await scene.npu.pinned(4, dtype)
    array = pinned.array
    assert (array.shape, array.dtype, array.nbytes) == ((4,), pinned.dtype, pinned.nbytes)
    content = np.arange(array.nbytes, dtype="uint8")
    array.view("uint8")[:] = content
    source = array.copy()
    buffer, target = scene.npu.empty_like(array), np.zeros_like(source)
    scene.stream.memcpy(buffer, source)
    scene.stream.memcpy(pinned, buffer.view(4, dtype))
    await scene.stream.memcpy(target, buffer)
    assert target.tobytes() == array.tobytes() == content.tobytes()


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (4, IndexError, "row 4 of a buffer with 4 rows"),
        (-5, IndexError, "row -5"),
        (2**100, IndexError, "row 1267"),
        (1.5, TypeError, "not 1.5"),
        (None, TypeError, "not None"),
        ("a", TypeError, "not 'a'"),
        ((0, 1), TypeError, r"not \(0, 1\)"),
        (..., TypeError, "not Ellipsis"),
        (slice(None, None, 2), IndexError, "step 1 only, not 2"),
        (slice(None, None, -1), IndexError, "step 1 only, not -1"),
        (slice(None, None, 0), ValueError, "zero"),
        (slice(1.5, None), TypeError, "integers"),
    ],
    ids=str,
)
async def test_no_buffer_has_such_rows(scene: Scene, index: Any, error: type[Exception], message: str) -> None:
    for buffer in (scene.npu.empty((4, 2)), await scene.npu.pinned((4, 2))):
        await scene.refuses(lambda buffer=buffer: buffer[index], error, message)  # type: ignore[misc]


async def test_a_buffer_without_dimensions_has_no_rows(scene: Scene) -> None:
    scalar = scene.npu.empty(())
    await scene.refuses(lambda: scalar[0], IndexError, "without dimensions")
    await scene.refuses(lambda: len(scalar), TypeError, "without dimensions")


@pytest.mark.parametrize("given", [5, [1, 2], None, "text"], ids=repr)
async def test_what_has_no_shape_is_not_like_an_array(scene: Scene, given: Any) -> None:
    await scene.refuses(lambda: scene.npu.empty_like(given), TypeError, "a shape and a dtype, not ")


@pytest.mark.parametrize("rows", [slice(2, 2), slice(4, None), slice(3, 1)], ids=str)
async def test_no_rows_are_an_empty_buffer(scene: Scene, rows: slice) -> None:
    pinned, buffer = await scene.npu.pinned((4, 3)), scene.npu.empty((4, 3))
    assert pinned[rows].array.shape == (0, 3)
    await scene.stream.memcpy(buffer[rows], pinned[rows])
    await scene.stream.memcpy(np.empty((0, 3), "float32"), buffer[rows])
    await scene.stream.memset(buffer[rows], 7)


async def test_memory_that_no_device_has_fails_what_needs_it(scene: Scene) -> None:
    buffer = scene.npu.empty(2**61, "uint8")
    with pytest.raises(aa.OutOfMemoryError):
        await scene.stream.memset(buffer, 0)
    with pytest.raises(aa.OutOfMemoryError, match="2305843009213693952 bytes"):
        _ = buffer.address
    with pytest.raises(aa.OutOfMemoryError):
        await scene.npu.pinned(2**61, "uint8")
