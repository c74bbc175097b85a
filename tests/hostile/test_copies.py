# SPDX-License-Identifier: Apache-2.0
"""What cannot be copied or set: no memory, not in one piece, of another size, not writable, not apart."""

from __future__ import annotations

import array
import ctypes
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hostile.scene import Scene

pytestmark = pytest.mark.anyio


def released() -> memoryview:
    view = memoryview(b"x" * 64)
    view.release()
    return view


def reading_only() -> np.ndarray[Any, Any]:
    numbers = np.zeros(16, "float32")
    numbers.flags.writeable = False
    return numbers


# As source and as destination of a copy of 64 bytes.
EITHER: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "list": (lambda: [0.0] * 16, TypeError, "not list"),
    "number": (lambda: 5, TypeError, "not int"),
    "none": (lambda: None, TypeError, "not NoneType"),
    "text": (lambda: "x" * 64, TypeError, "not str"),
    "objects": (lambda: np.zeros(8, object), TypeError, "Python objects"),
    "record with an object": (lambda: np.zeros(4, [("a", "i8"), ("b", "O")]), TypeError, "Python objects"),
    "objects of ctypes": (lambda: (ctypes.py_object * 8)(), TypeError, "Python objects"),
    "objects in a memoryview": (lambda: memoryview(np.zeros(8, object)), TypeError, "Python objects"),
    "masked": (lambda: np.ma.masked_array(np.zeros(16, "float32"), mask=True), TypeError, "masked array"),
    "every other": (lambda: np.zeros((16, 2), "float32")[:, 0], ValueError, "is not contiguous .*ascontiguousarray"),
    "backwards": (lambda: np.zeros(16, "float32")[::-1], ValueError, "is not contiguous"),
    "by columns": (lambda: np.zeros((4, 4), "float32", order="F"), ValueError, "is not contiguous"),
    "transposed": (lambda: np.zeros((2, 8), "float32").T, ValueError, "is not contiguous"),
    "broadcast": (lambda: np.broadcast_to(np.zeros(1, "float32"), 16), ValueError, "is not contiguous|read-only"),
    "stepping memoryview": (lambda: memoryview(bytearray(128))[::2], ValueError, "contiguous"),
    "too small": (lambda: np.zeros(15, "float32"), ValueError, "64 bytes .*60|60 bytes .*64"),
    "too large": (lambda: bytearray(65), ValueError, "64 bytes .*65|65 bytes .*64"),
    "empty": (lambda: bytearray(), ValueError, "64 bytes .* 0|0 bytes .* 64"),
    "without dimensions": (lambda: np.array(1.0, "float32"), ValueError, "64 bytes .* 4|4 bytes .* 64"),
    "released": (released, ValueError, "released"),
}

DESTINATIONS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "bytes": (lambda: b"x" * 64, ValueError, "dst is read-only"),
    "array for reading": (reading_only, ValueError, "dst is read-only"),
    "memoryview for reading": (lambda: memoryview(b"x" * 64), ValueError, "dst is read-only"),
    "scalar": (lambda: np.float64(1), ValueError, "dst is read-only"),
}


@pytest.mark.parametrize("name", EITHER)
async def test_what_is_no_side_of_a_copy(scene: Scene, name: str) -> None:
    make, error, message = EITHER[name]
    buffer, given = scene.npu.empty(16), make()
    await scene.refuses(lambda: scene.stream.memcpy(buffer, given), error, message)
    await scene.refuses(lambda: scene.stream.memcpy(given, buffer), error, message)


@pytest.mark.parametrize("name", DESTINATIONS)
async def test_what_cannot_be_written(scene: Scene, name: str) -> None:
    make, error, message = DESTINATIONS[name]
    buffer, given = scene.npu.empty(16), make()
    await scene.refuses(lambda: scene.stream.memcpy(given, buffer), error, message)


async def test_files(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    np.arange(16, dtype="float32").tofile(path)
    buffer = scene.npu.empty(16)
    mapped = np.memmap(path, "float32", "r")
    await scene.refuses(lambda: scene.stream.memcpy(mapped, buffer), ValueError, "dst is read-only")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 64, access=mmap.ACCESS_READ) as bare:
        await scene.refuses(lambda: scene.stream.memcpy(bare, buffer), ValueError, "dst is read-only")
    path.unlink()  # its contents stay for as long as it is mapped
    await scene.stream.memcpy(buffer, mapped)
    target = np.zeros(16, "float32")
    await scene.stream.memcpy(target, buffer)
    assert (target == np.arange(16)).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: array.array("f", range(16)),
        lambda: (ctypes.c_float * 16)(*range(16)),
        lambda: memoryview(bytearray(range(64))),
        lambda: memoryview(np.zeros(8, [("Other", "i4"), ("b", "f4")])),  # an O in a name is no object
        lambda: np.arange(16, dtype=">f4"),
        lambda: np.arange(16, dtype="float32").reshape(2, 8).view(np.recarray),
        lambda: np.arange(8).astype("M8[s]"),
        lambda: np.array(["abcd"] * 4),
    ],
)
async def test_bytes_are_bytes(scene: Scene, make: Callable[[], Any]) -> None:
    source, target = make(), make()
    buffer = scene.npu.empty(64, "uint8")
    await scene.stream.memset(buffer, 0)
    await scene.stream.memcpy(target, buffer)
    assert bytes(np.asarray(target).tobytes()) == bytes(64)
    scene.stream.memcpy(buffer, source)
    await scene.stream.memcpy(target, buffer)
    assert np.asarray(target).tobytes() == np.asarray(source).tobytes()


async def test_sides_that_are_not_of_this_device(scene: Scene) -> None:
    here, there = scene.npu.empty(16), scene.elsewhere.empty(16)
    for dst, src, which in ((here, there, "src"), (there, here, "dst"), (there, np.zeros(16, "float32"), "dst")):
        await scene.refuses(
            lambda dst=dst, src=src: scene.stream.memcpy(dst, src),  # type: ignore[misc]
            ValueError,
            f"{which} lies on device 1, the stream belongs to device 0; copy through host memory",
        )
    await scene.refuses(lambda: scene.stream.memset(there, 0), ValueError, "dst lies on device 1")
    await scene.refuses(lambda: scene.stream.memcpy(bytearray(4), b"1234"), ValueError, "both host memory")


@pytest.mark.parametrize(("dst", "src"), [((8, 40), (0, 32)), ((0, 32), (8, 40)), ((0, 32), (31, 63))])
async def test_sides_that_overlap(scene: Scene, dst: tuple[int, int], src: tuple[int, int]) -> None:
    buffer = scene.npu.empty(64, "uint8")
    apart = abs(dst[0] - src[0])
    message = f"dst and src overlap: 32 bytes each of the same memory, {apart} bytes apart.* third buffer"
    await scene.refuses(lambda: scene.stream.memcpy(buffer[slice(*dst)], buffer[slice(*src)]), ValueError, message)


async def test_sides_that_touch_or_are_the_same(scene: Scene) -> None:
    buffer, target = scene.npu.empty(64, "uint8"), np.zeros(64, "uint8")
    scene.stream.memcpy(buffer[:32], np.arange(32, dtype="uint8"))
    scene.stream.memcpy(buffer[32:], buffer[:32])
    scene.stream.memcpy(buffer, buffer)
    await scene.stream.memcpy(target, buffer)
    assert (target == np.tile(np.arange(32), 2)).all()


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (-1, ValueError),
        (256, ValueError),
        (2**64, ValueError),
        (-(2**100), ValueError),
        (1.5, TypeError),
        (float("nan"), TypeError),
        (None, TypeError),
        ("1", TypeError),
        (b"1", TypeError),
        ([1], TypeError),
        (np.float32(1), TypeError),
    ],
    ids=repr,
)
async def test_what_is_no_byte(scene: Scene, value: Any, error: type[Exception]) -> None:
    buffer = scene.npu.empty(4)
    await scene.refuses(lambda: scene.stream.memset(buffer, value), error, "0 to 255, not ")


@pytest.mark.parametrize("dst", [None, 5, bytearray(4), np.zeros(4)], ids=str)
async def test_what_cannot_be_set(scene: Scene, dst: Any) -> None:
    await scene.refuses(lambda: scene.stream.memset(dst, 0), TypeError, "dst must be a DeviceBuffer, not ")
