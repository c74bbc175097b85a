# SPDX-License-Identifier: Apache-2.0
"""Element types, half precision, data buffers and tensor descriptions."""

from __future__ import annotations

from ctypes import byref, c_int64

import numpy as np
import pytest

from sim_models.simulator import TYPES, Acl, AclError


def test_sizes_of_element_types(acl: Acl) -> None:
    for name, number in TYPES.items():
        assert acl.aclDataTypeSize(number) == np.dtype(name).itemsize
    assert [acl.aclDataTypeSize(number) for number in (16, 17, 27, 33)] == [8, 16, 2, 4]
    assert [acl.aclDataTypeSize(number) for number in (2**32 - 1, 13, 29, 1000)] == [0, 0, 0, 0]


def test_every_half_becomes_the_float_that_it_is(acl: Acl) -> None:
    halves = np.arange(2**16, dtype=np.uint16)
    floats = np.array([acl.aclFloat16ToFloat(int(half)) for half in halves], np.float32)
    np.testing.assert_array_equal(floats, halves.view(np.float16).astype(np.float32))


def test_floats_are_rounded_to_the_nearest_half(acl: Acl) -> None:
    rng = np.random.default_rng(1)
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = np.unique(halves[np.isfinite(halves)].astype(np.float32))
    between = (finite[:-1] + finite[1:]) / 2  # ties
    random = rng.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    edges = np.array([65504, 65519.996, 65520, 1e30, -1e30, 0, -0.0, np.inf, -np.inf, 5e-8, 2.9e-8], np.float32)
    values = np.concatenate([finite, between, np.nextafter(between, np.float32(np.inf)), random, edges])
    values = values[~np.isnan(values)].astype(np.float32)
    ours = np.array([acl.aclFloatToFloat16(float(value)) for value in values], np.uint16)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(ours, values.astype(np.float16).view(np.uint16))
    assert np.isnan(np.uint16(acl.aclFloatToFloat16(float("nan"))).view(np.float16))


def test_data_buffers(acl: Acl) -> None:
    before = acl.live("data_buffers")
    buffer = acl.aclCreateDataBuffer(0x1000, 16)
    assert acl.live("data_buffers") == before + 1
    assert acl.aclGetDataBufferAddr(buffer) == 0x1000
    assert acl.aclGetDataBufferSizeV2(buffer) == 16
    acl.aclUpdateDataBuffer(buffer, None, 0)
    assert acl.aclGetDataBufferAddr(buffer) is None
    assert acl.aclGetDataBufferSizeV2(buffer) == 0
    acl.aclDestroyDataBuffer(buffer)
    for call in (acl.aclDestroyDataBuffer, lambda b: acl.aclUpdateDataBuffer(b, None, 0)):
        with pytest.raises(AclError, match=r"data buffer .* is destroyed") as caught:
            call(buffer)
        assert caught.value.code == 100000
    assert acl.aclGetDataBufferAddr(buffer) is None
    assert acl.aclGetDataBufferSizeV2(buffer) == 0


def test_tensor_descriptions(acl: Acl) -> None:
    dims = (c_int64 * 3)(2, 3, 4)
    desc = acl.aclCreateTensorDesc(TYPES["float16"], 3, dims, 0)
    assert acl.value("aclGetTensorDescType", desc) == TYPES["float16"]
    assert acl.value("aclGetTensorDescFormat", desc) == 0
    assert acl.aclGetTensorDescNumDims(desc) == 3
    assert acl.aclGetTensorDescElementCount(desc) == 24
    assert acl.aclGetTensorDescSize(desc) == 48
    size = c_int64()
    acl.aclGetTensorDescDimV2(desc, 1, byref(size))
    assert size.value == 3
    with pytest.raises(AclError, match="dimension 3 of a tensor description that has 3") as caught:
        acl.aclGetTensorDescDimV2(desc, 3, byref(size))
    assert caught.value.code == 100000
    acl.aclDestroyTensorDesc(desc)


def test_a_tensor_description_of_an_open_shape_has_no_size(acl: Acl) -> None:
    desc = acl.aclCreateTensorDesc(TYPES["int32"], 2, (c_int64 * 2)(-1, 4), 2)
    assert acl.aclGetTensorDescSize(desc) == acl.aclGetTensorDescElementCount(desc) == 0
    acl.aclDestroyTensorDesc(desc)
    scalar = acl.aclCreateTensorDesc(TYPES["int32"], 0, None, 2)
    assert acl.aclGetTensorDescSize(scalar) == 4
    acl.aclDestroyTensorDesc(scalar)


def test_tensor_descriptions_that_cannot_be_made(acl: Acl) -> None:
    assert acl.aclCreateTensorDesc(0, 2, None, 2) is None
    assert "of 2 dimensions" in acl.message()
    assert acl.aclCreateTensorDesc(0, 129, (c_int64 * 129)(), 2) is None
    assert acl.aclGetTensorDescSize(None) == 0
