# SPDX-License-Identifier: Apache-2.0
"""The simulator through ctypes: what a C program does, in the words of tests."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from ctypes import (
    byref,
    c_char,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

HUGE_FIRST = 0
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
GEAR_INPUT = "ascend_mbatch_shape_data"
ALL_INPUTS = 2**64 - 1

# aclDataType
TYPES = {
    "float32": 0,
    "float16": 1,
    "int8": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 6,
    "uint16": 7,
    "uint32": 8,
    "int64": 9,
    "uint64": 10,
    "float64": 11,
    "bool": 12,
}
NAMES = {number: name for name, number in TYPES.items()}


class Dims(ctypes.Structure):
    _fields_ = (("name", c_char * 128), ("count", c_size_t), ("dims", c_int64 * 128))

    def list(self) -> list[int]:
        return list(self.dims[: self.count])

    @classmethod
    def of(cls, dims: Sequence[int]) -> Dims:
        return cls(b"", len(dims), (c_int64 * 128)(*dims))


class Range(ctypes.Structure):
    _fields_ = (("count", c_size_t), ("range", c_int64 * 2 * 128))

    def list(self) -> list[tuple[int, int]]:
        return [(self.range[i][0], self.range[i][1]) for i in range(self.count)]


class Batches(ctypes.Structure):
    _fields_ = (("count", c_size_t), ("batch", c_uint64 * 128))


class Sizes(ctypes.Structure):
    _fields_ = (("count", c_size_t), ("hw", c_uint64 * 2 * 128))


class Record(ctypes.Structure):
    _fields_ = (
        ("task_id", c_uint32),
        ("stream_id", c_int32),
        ("device", c_int32),
        ("code", c_int32),
        ("kind", c_char_p),
        ("name", c_char_p),
        ("unit", c_char_p),
        ("unit_index", c_int32),
        ("reserved", c_int32),
        ("queued_ns", c_uint64),
        ("start_ns", c_uint64),
        ("end_ns", c_uint64),
        ("bytes", c_uint64),
    )


# Functions that return something else than an aclError.
RETURNS: dict[str, Any] = {
    "aclCreateDataBuffer": c_void_p,
    "aclCreateTensorDesc": c_void_p,
    "aclDestroyTensorDesc": None,
    "aclDataTypeSize": c_size_t,
    "aclFloat16ToFloat": c_float,
    "aclFloatToFloat16": c_uint16,
    "aclGetDataBufferAddr": c_void_p,
    "aclGetDataBufferSizeV2": c_size_t,
    "aclGetRecentErrMsg": c_char_p,
    "aclGetTensorDescSize": c_size_t,
    "aclGetTensorDescElementCount": c_size_t,
    "aclGetTensorDescNumDims": c_size_t,
    "aclmdlCreateConfigHandle": c_void_p,
    "aclmdlCreateDataset": c_void_p,
    "aclmdlCreateDesc": c_void_p,
    "aclmdlCreateExecConfigHandle": c_void_p,
    "aclmdlGetDatasetBuffer": c_void_p,
    "aclmdlGetDatasetNumBuffers": c_size_t,
    "aclmdlGetDatasetTensorDesc": c_void_p,
    "aclmdlGetInputNameByIndex": c_char_p,
    "aclmdlGetInputSizeByIndex": c_size_t,
    "aclmdlGetNumInputs": c_size_t,
    "aclmdlGetNumOutputs": c_size_t,
    "aclmdlGetOutputNameByIndex": c_char_p,
    "aclmdlGetOutputSizeByIndex": c_size_t,
    "aclsimLive": c_int64,
    "aclsimNow": c_uint64,
}
# Functions whose arguments ctypes cannot guess.
ARGUMENTS: dict[str, Any] = {
    "aclFloat16ToFloat": [c_uint16],
    "aclFloatToFloat16": [c_float],
}


class AclError(Exception):
    def __init__(self, function: str, code: int, message: str) -> None:
        super().__init__(f"{function} -> {code}: {message}")
        self.code = code
        self.message = message


def _convert(value: Any) -> Any:
    """Handles and sizes are 64 bits wide; ctypes would pass a plain int as 32."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return c_uint64(value & (2**64 - 1))
    if isinstance(value, (str, Path)):
        return str(value).encode()
    if isinstance(value, np.ndarray):
        return c_void_p(value.ctypes.data)
    return value


class Acl:
    """`acl.aclrtSetDevice(0)`: raises AclError for a code other than 0, returns other results."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._library, name)
        is_error = name not in RETURNS
        function.restype = c_int if is_error else RETURNS[name]
        if name in ARGUMENTS:
            function.argtypes = ARGUMENTS[name]

        def call(*arguments: Any) -> Any:
            result = function(*(a if name in ARGUMENTS else _convert(a) for a in arguments))
            if is_error and result != 0:
                raise AclError(name, result, self.message())
            return result

        setattr(self, name, call)
        return call

    def value(self, name: str, *arguments: Any) -> int:
        """For functions whose int is a value and not an error."""
        return int(getattr(self._library, name)(*map(_convert, arguments)))

    def message(self) -> str:
        text = self.aclGetRecentErrMsg()
        return text.decode() if text else ""

    def live(self, what: str) -> int:
        return int(self.aclsimLive(what))


def library_path() -> Path:
    chosen = os.environ.get("AIOASCEND_SIM_LIBRARY")
    if chosen:
        return Path(chosen)
    package = find_spec("aioascend")
    assert package is not None, "install aioascend, or set AIOASCEND_SIM_LIBRARY to libascendcl.so"
    assert package.submodule_search_locations is not None
    return Path(package.submodule_search_locations[0]) / "sim" / "libascendcl.so"


def engine_path() -> Path:
    package = find_spec("openvino")
    assert package is not None, "install openvino"
    assert package.submodule_search_locations is not None
    (found,) = Path(package.submodule_search_locations[0], "libs").glob("libopenvino_c.so*")
    return found


def package_file(package: str, name: str) -> Path:
    """A file of an installed package, found without importing it."""
    spec = find_spec(package)
    assert spec is not None, f"install {package}"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / name


class DeviceMemory:
    def __init__(self, acl: Acl, size: int, content: Array | None = None) -> None:
        self.acl, self.size = acl, size
        address = c_void_p()
        acl.aclrtMalloc(byref(address), max(size, 1), HUGE_FIRST)
        assert address.value is not None
        self.address = address.value
        if content is not None:
            self.write(content)

    def write(self, content: Array) -> None:
        content = np.ascontiguousarray(content)
        self.acl.aclrtMemcpy(self.address, self.size, content, content.nbytes, HOST_TO_DEVICE)

    def read(self, dtype: str, shape: Sequence[int]) -> Array:
        out = np.empty(tuple(shape), dtype)
        assert out.nbytes <= self.size
        self.acl.aclrtMemcpy(out, out.nbytes, self.address, out.nbytes, DEVICE_TO_HOST)
        return out

    def free(self) -> None:
        self.acl.aclrtFree(self.address)


class Dataset:
    """Buffers of one side of an execution; owns datasets and buffers, not the memory."""

    def __init__(self, acl: Acl, memory: Sequence[DeviceMemory | None]) -> None:
        self.acl = acl
        self.handle = acl.aclmdlCreateDataset()
        self.buffers = []
        for block in memory:
            address, size = (block.address, block.size) if block else (0, 0)
            self.buffers.append(acl.aclCreateDataBuffer(address, size))
            acl.aclmdlAddDatasetBuffer(self.handle, self.buffers[-1])

    def describe(self, index: int, dtype: str, shape: Sequence[int]) -> None:
        dims = (c_int64 * len(shape))(*shape)
        desc = self.acl.aclCreateTensorDesc(TYPES[dtype], len(shape), dims, 2)
        self.acl.aclmdlSetDatasetTensorDesc(self.handle, desc, index)
        self.acl.aclDestroyTensorDesc(desc)

    def shape(self, index: int) -> list[int] | None:
        desc = self.acl.aclmdlGetDatasetTensorDesc(self.handle, index)
        if not desc:
            return None
        out = []
        for i in range(self.acl.aclGetTensorDescNumDims(desc)):
            size = c_int64()
            self.acl.aclGetTensorDescDimV2(desc, i, byref(size))
            out.append(size.value)
        return out

    def destroy(self) -> None:
        self.acl.aclmdlDestroyDataset(self.handle)
        for buffer in self.buffers:
            self.acl.aclDestroyDataBuffer(buffer)


class Description:
    def __init__(self, acl: Acl) -> None:
        self.acl = acl
        self.handle = acl.aclmdlCreateDesc()

    def _dims(self, function: str, index: int) -> list[int]:
        dims = Dims()
        getattr(self.acl, function)(self.handle, index, byref(dims))
        return dims.list()

    def input_dims(self, index: int) -> list[int]:
        dims = self._dims("aclmdlGetInputDims", index)
        assert self._dims("aclmdlGetInputDimsV2", index) == dims
        return dims

    def output_dims(self, index: int) -> list[int]:
        return self._dims("aclmdlGetOutputDims", index)

    def current_output_dims(self, index: int) -> list[int]:
        return self._dims("aclmdlGetCurOutputDims", index)

    def input_range(self, index: int) -> list[tuple[int, int]]:
        out = Range()
        self.acl.aclmdlGetInputDimsRange(self.handle, index, byref(out))
        return out.list()

    def inputs(self) -> list[str]:
        count = self.acl.aclmdlGetNumInputs(self.handle)
        return [self.acl.aclmdlGetInputNameByIndex(self.handle, i).decode() for i in range(count)]

    def outputs(self) -> list[str]:
        count = self.acl.aclmdlGetNumOutputs(self.handle)
        return [self.acl.aclmdlGetOutputNameByIndex(self.handle, i).decode() for i in range(count)]

    def input_size(self, index: int) -> int:
        return int(self.acl.aclmdlGetInputSizeByIndex(self.handle, index))

    def output_size(self, index: int) -> int:
        return int(self.acl.aclmdlGetOutputSizeByIndex(self.handle, index))

    def input_type(self, index: int) -> str:
        return NAMES[self.acl.value("aclmdlGetInputDataType", self.handle, index)]

    def output_type(self, index: int) -> str:
        return NAMES[self.acl.value("aclmdlGetOutputDataType", self.handle, index)]

    def index_of_input(self, name: str) -> int:
        out = c_size_t()
        self.acl.aclmdlGetInputIndexByName(self.handle, name, byref(out))
        return out.value

    def destroy(self) -> None:
        self.acl.aclmdlDestroyDesc(self.handle)


class Model:
    """A loaded model with its description."""

    def __init__(self, acl: Acl, source: Path | bytes | str) -> None:
        self.acl = acl
        number = c_uint32()
        if isinstance(source, Path):
            acl.aclmdlLoadFromFile(source, byref(number))
        else:
            content = source.encode() if isinstance(source, str) else source
            acl.aclmdlLoadFromMem(c_char_p(content), len(content), byref(number))
        self.id = number.value
        self.desc = Description(acl)
        acl.aclmdlGetDesc(self.desc.handle, self.id)

    def unload(self) -> None:
        self.acl.aclmdlUnload(self.id)
        self.desc.destroy()


class Launch:
    """Device memory and datasets for executions of a model, sized by `inputs` and `output_sizes`."""

    def __init__(self, model: Model, inputs: Sequence[Array | None], output_sizes: Sequence[int | None]) -> None:
        self.model, self.acl = model, model.acl
        self.inputs = [
            DeviceMemory(self.acl, self.model.desc.input_size(i) if array is None else array.nbytes, array)
            for i, array in enumerate(inputs)
        ]
        self.outputs = [None if size is None else DeviceMemory(self.acl, size) for size in output_sizes]
        self.input_set = Dataset(self.acl, self.inputs)
        self.output_set = Dataset(self.acl, self.outputs)

    def execute(self) -> None:
        self.acl.aclmdlExecute(self.model.id, self.input_set.handle, self.output_set.handle)

    def execute_async(self, stream: Any) -> None:
        self.acl.aclmdlExecuteAsync(self.model.id, self.input_set.handle, self.output_set.handle, stream)

    def result(self, index: int, shape: Sequence[int] | None = None) -> Array:
        memory = self.outputs[index]
        assert memory is not None
        actual = self.output_set.shape(index) if shape is None else shape
        assert actual is not None
        return memory.read(self.model.desc.output_type(index), actual)

    def close(self) -> None:
        self.input_set.destroy()
        self.output_set.destroy()
        for memory in (*self.inputs, *self.outputs):
            if memory is not None:
                memory.free()


def new_stream(acl: Acl) -> c_void_p:
    stream = c_void_p()
    acl.aclrtCreateStream(byref(stream))
    return stream


def timeline(acl: Acl) -> list[Record]:
    count = c_size_t()
    acl.aclsimTimeline(None, 0, byref(count))
    records = (Record * max(count.value, 1))()
    acl.aclsimTimeline(records, count.value, byref(count))
    return list(records[: count.value])
