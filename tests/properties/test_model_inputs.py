# SPDX-License-Identifier: Apache-2.0
"""What goes into a model arrives as what it is, or is refused with the name of the input."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioascend as aa

pytestmark = pytest.mark.anyio

DTYPES = [
    *("float32", "float16", "bfloat16", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

dtypes = st.sampled_from(DTYPES)
shapes = st.lists(st.integers(1, 4), max_size=3)


def dtype_named(name: str) -> np.dtype[Any]:
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def model_of(dtype: str, shape: list[int]) -> bytes:
    port = f'name = "{{}}"\ndtype = "{dtype}"\nshape = {shape}\n'
    return f'[[inputs]]\n{port.format("x")}[[outputs]]\n{port.format("y")}fill = "copy"\n'.encode()


@given(wanted=dtypes, given_=dtypes, shape=shapes, other=st.none() | shapes, order=st.sampled_from(["=", ">"]))
async def test_arrays(
    npu: aa.Device, wanted: str, given_: str, shape: list[int], other: list[int] | None, order: str
) -> None:
    array = np.arange(math.prod(shape if other is None else other)).reshape(shape if other is None else other)
    array = array.astype(dtype_named(given_))
    if order == ">" and array.dtype.itemsize > 1 and array.dtype != BFLOAT16:
        array = array.astype(array.dtype.newbyteorder(">"))
    async with await npu.load_model(model_of(wanted, shape)) as model:
        if array.dtype == dtype_named(wanted) and list(array.shape) == shape:
            result = await model(array)
            assert result.dtype == array.dtype
            np.testing.assert_array_equal(result, array)
            return
        with pytest.raises((TypeError, ValueError), match="input 'x'"):
            await model(array)


numbers = st.one_of(
    st.integers(-300, 300),
    st.integers(),
    st.floats(),
    st.floats(width=16),
    st.booleans(),
    st.fractions(),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-1000, max_value=1000),
)
values = numbers | st.none() | st.text(max_size=2) | st.complex_numbers()


def converted(value: Any, dtype: np.dtype[Any]) -> Any:
    """What a number is in the dtype; None when it would not be itself any more."""
    if isinstance(value, complex) or not isinstance(value, (int, float, Fraction, Decimal)):
        return None
    if dtype.kind in "biu":
        if not math.isfinite(value) or value != int(value):
            return None
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return dtype.type(int(value)) if low <= int(value) <= high else None
    try:
        as_float = float(value)
    except OverflowError:
        return None
    with np.errstate(all="ignore"):
        number = np.asarray(as_float).astype(dtype)[()]
    return number if math.isfinite(float(number)) or not math.isfinite(as_float) else None


@given(wanted=dtypes, items=st.lists(values, min_size=1, max_size=3) | st.lists(numbers, min_size=1, max_size=3))
async def test_lists_of_numbers(npu: aa.Device, wanted: str, items: list[Any]) -> None:
    dtype = dtype_named(wanted)
    expected = [converted(item, dtype) for item in items]
    async with await npu.load_model(model_of(wanted, [len(items)])) as model:
        try:
            result = await model(items)
        except TypeError as error:
            assert "input 'x'" in str(error)  # noqa: PT017
            # Integers too large for 64 bits make numpy give up on a list of integers.
            assert None in expected or any(abs(item) >= 2**63 for item in items)
        else:
            assert None not in expected
            np.testing.assert_allclose(result.astype("float64"), np.array(expected, dtype).astype("float64"), rtol=1e-2)
            if dtype.kind in "biu":
                assert result.tolist() == expected


@given(shape=shapes, items=st.recursive(numbers, lambda inner: st.lists(inner, max_size=3), max_leaves=12))
async def test_nested_lists(npu: aa.Device, shape: list[int], items: Any) -> None:
    def shape_of(value: Any) -> list[int] | None:
        if not isinstance(value, list):
            return []
        inner = [shape_of(item) for item in value]
        if any(other is None or other != inner[0] for other in inner):
            return None
        return [len(value), *((inner[0] or []) if inner else [])]

    async with await npu.load_model(model_of("float64", shape)) as model:
        try:
            result = await model(items)
        except (TypeError, ValueError) as error:
            assert "input 'x'" in str(error)  # noqa: PT017
        else:
            assert shape_of(items) == shape == list(result.shape)
