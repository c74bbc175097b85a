# SPDX-License-Identifier: Apache-2.0
"""What no input of a model can be; nothing is reinterpreted, cut off or rounded behind the caller's back."""

from __future__ import annotations

import array
import asyncio
import ctypes
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hostile.scene import Scene

pytestmark = pytest.mark.anyio

X = np.arange(16, dtype="float32").reshape(2, 8)

BYTES = b"""
[[inputs]]
name = "x"
dtype = "uint8"
shape = [3]
[[outputs]]
name = "y"
dtype = "uint8"
shape = [3]
fill = "copy"
"""


SCALAR = b"""
[[inputs]]
name = "n"
shape = []
[[inputs]]
name = "x"
shape = [-1]
[[outputs]]
name = "y"
shape = [-1]
from = "x"
fill = "copy"
"""


def matrix(values: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.matrix(values)


def nested(depth: int) -> list[Any]:
    value: list[Any] = [1.0]
    for _ in range(depth):
        value = [value]
    return value


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "float64": (lambda: X.astype("float64"), TypeError, "must be float32, not float64; convert with astype"),
    "big endian": (lambda: X.astype(">f4"), TypeError, "must be float32, not >f4"),
    "integers": (lambda: X.astype("int32"), TypeError, "not int32"),
    "objects": (lambda: X.astype(object), TypeError, "not object"),
    "text": (lambda: X.astype("U"), TypeError, "not <U"),
    "times": (lambda: X.astype("M8[s]"), TypeError, "not datetime64"),
    "records": (lambda: np.zeros((2, 8), [("a", "f4")]), TypeError, "must be float32"),
    "scalar": (lambda: np.float32(1), ValueError, r"must have shape \(2, 8\), not \(\)"),
    "no dimensions": (lambda: np.array(1, "float32"), ValueError, r"not \(\)"),
    "flat": (lambda: X.ravel(), ValueError, r"not \(16,\)"),
    "transposed": (lambda: X.T, ValueError, r"not \(8, 2\)"),
    "empty": (lambda: X[:0], ValueError, r"not \(0, 8\)"),
    "masked": (lambda: np.ma.masked_array(X, mask=X > 3), TypeError, "masked array.* filled"),
    "memoryview of float64": (lambda: memoryview(X.astype("float64")), TypeError, "not float64"),
    "array.array": (lambda: array.array("d", range(16)), TypeError, "not float64"),
    "ctypes": (lambda: ((ctypes.c_double * 8) * 2)(), TypeError, "not float64"),
    "bytes": (lambda: X.tobytes(), TypeError, "must be float32"),
    "bytearray": (lambda: bytearray(X.tobytes()), TypeError, "not uint8"),
    "none": (lambda: None, TypeError, "else than numbers: None"),
    "string": (lambda: "1.5", TypeError, "else than numbers: '1.5'"),
    "strings": (lambda: [["1.5"] * 8] * 2, TypeError, "else than numbers"),
    "nones": (lambda: [[None] * 8] * 2, TypeError, "else than numbers"),
    "dict": (lambda: {"x": X}, TypeError, "else than numbers"),
    "set": (lambda: {1.0}, TypeError, "else than numbers"),
    "generator": (lambda: iter(()), TypeError, "else than numbers"),
    "ragged": (lambda: [[1], [1, 2]], TypeError, "cannot be made an array"),
    "deep": (lambda: nested(100), TypeError, "cannot be made an array"),
    "complex": (lambda: [[1j] * 8] * 2, TypeError, "complex"),
    "too large": (lambda: [[1e300] * 8] * 2, TypeError, r"1e\+300 does not fit"),
    "far too large": (lambda: [[10**400] * 8] * 2, TypeError, "too large"),
    "number": (lambda: 1.0, ValueError, r"not \(\)"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_no_input_is(scene: Scene, name: str) -> None:
    make, error, message = REFUSED[name]
    value = make()
    await scene.refuses(lambda: scene.model(value), error, f"input 'x' .*{message}")


async def test_a_device_buffer_is_for_execute(scene: Scene) -> None:
    buffer = scene.npu.empty((2, 8))
    await scene.refuses(lambda: scene.model(buffer), TypeError, r"model\.execute")
    await scene.refuses(lambda: scene.model([buffer]), TypeError, "device memory|else than numbers")


async def test_what_is_as_good_as_an_array(scene: Scene) -> None:
    pinned = await scene.npu.pinned((2, 8))
    pinned.array[:] = X
    wide = np.zeros((2, 16), "float32")
    wide[:, ::2] = X
    good: list[Any] = [pinned, matrix(X), memoryview(X), X.tolist(), wide[:, ::2], X.reshape(8, 2).T.reshape(2, 8)]
    for value in good:
        np.testing.assert_array_equal(await scene.model(value), np.asarray(value))
    reading = X.copy()
    reading.flags.writeable = False
    np.testing.assert_array_equal(await scene.model(reading), X)
    exact = [[Fraction(1, 2), Decimal("0.25"), True, 2**70, np.float64(3), 4, 5.0, -0.0]] * 2
    np.testing.assert_array_equal(await scene.model(exact), np.array(exact, "float32"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.5, 2, 3], "1.5 does not fit"),
        ([1, 256, 3], "256 does not fit"),
        ([1, 2, -1], "-1 does not fit"),
        ([float("nan"), 1, 2], "nan does not fit"),
        ([float("inf"), 1, 2], "inf does not fit"),
        ([2**100, 1, 2], "cannot be made an array of uint8"),
        ([Fraction(1, 2), 1, 2], "does not fit"),
        (["1", "2", "3"], "else than numbers"),
        (b"abc", "must be uint8"),
        (np.array([1, 2, 3]), "not int64"),
        (array.array("b", [1, 2, 3]), "not int8"),
    ],
    ids=str,
)
async def test_what_no_integer_is(scene: Scene, value: Any, message: str) -> None:
    async with await scene.npu.load_model(BYTES, name="bytes") as model:
        await scene.refuses(lambda: model(value), TypeError, f"input 'x' of model bytes .*{message}")


async def test_integers_without_loss(scene: Scene) -> None:
    async with await scene.npu.load_model(BYTES) as model:
        for value in ([1, 2, 255], [1.0, 2.0, 3.0], [True, False, True], b"abc", [Fraction(2), Decimal(3), 4]):
            given = bytearray(value) if isinstance(value, bytes) else value
            np.testing.assert_array_equal(await model(given), [int(item) for item in value])


async def test_names_of_inputs(scene: Scene) -> None:
    for call, message in (
        (lambda: scene.model(), "was not given 'x', it takes 1: x"),
        (lambda: scene.model(X, X), "was given 2 inputs, it takes 1: x"),
        (lambda: scene.model(y=X), "no input 'y', it takes 1: x"),
        (lambda: scene.model(X, x=X), "input 'x' twice"),
        (lambda: scene.model(**{"": X}), "no input ''"),
        (lambda: scene.model(self=X), "no input 'self'"),
    ):
        await scene.refuses(call, TypeError, f"model copy .*{message}")


@pytest.mark.parametrize("value", [5, None, "xy", {"x": 1}, iter(())], ids=lambda value: type(value).__name__)
async def test_what_is_no_list_of_buffers(scene: Scene, value: Any) -> None:
    x = scene.npu.empty((2, 8))
    await scene.refuses(lambda: scene.model.execute(value, [x]), TypeError, "inputs of model copy must be a list")
    await scene.refuses(lambda: scene.model.execute([x], value), TypeError, "outputs of model copy must be a list")


async def test_buffers_that_do_not_fit(scene: Scene) -> None:
    x, y = scene.npu.empty((2, 8)), scene.npu.empty((2, 8))
    pinned = await scene.npu.pinned((2, 8))
    model = scene.model
    for inputs, outputs, error, message in (
        (x, [y], TypeError, "inputs of model copy must be a list or tuple of DeviceBuffers, not DeviceBuffer"),
        ([x], y, TypeError, "outputs of model copy must be a list"),
        ([], [y], ValueError, r"takes 1 input \(x\), not 0"),
        ([x, x], [y], ValueError, "not 2"),
        ([x], [], ValueError, r"has 1 outputs \(y\), not 0"),
        ([x], [y, y], ValueError, "not 2"),
        ([None], [y], TypeError, "input 'x' .* must be a DeviceBuffer, not NoneType"),
        ([x], [None], TypeError, "output 'y' .* must be a DeviceBuffer, not NoneType"),
        ([pinned], [y], TypeError, "not PinnedBuffer"),
        ([X], [y], TypeError, "not ndarray"),
        ([x.view((8, 2))], [y], ValueError, r"must have shape \(2, 8\), not \(8, 2\)"),
        ([x.view((2, 8), ">f4")], [y], TypeError, "must be float32, not >f4"),
        ([x.view((2, 8), "int32")], [y], TypeError, "not int32"),
        ([x], [y[:1]], ValueError, "output 'y' .* needs 64 bytes, .* has 32"),
        ([x], [scene.npu.empty(0)], ValueError, "needs 64 bytes, .* has 0"),
    ):
        await scene.refuses(
            lambda inputs=inputs, outputs=outputs: model.execute(inputs, outputs),  # type: ignore[misc]
            error,
            message,
        )


async def test_inputs_without_dimensions_keep_none(scene: Scene) -> None:
    async with await scene.npu.load_model(SCALAR) as model:
        for number in (np.array(3, "float32"), 3.0):
            np.testing.assert_array_equal(await model(number, np.arange(3, dtype="float32")), [0, 1, 2])


async def test_hostile_calls_beside_good_ones(scene: Scene) -> None:
    values = [X if index % 3 else make() for index, (make, *_) in enumerate(REFUSED.values())]
    results = await asyncio.gather(*map(scene.model, values), return_exceptions=True)
    for index, result in enumerate(results):
        assert isinstance(result, np.ndarray) if index % 3 else isinstance(result, (TypeError, ValueError))
