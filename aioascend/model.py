# SPDX-License-Identifier: Apache-2.0
"""Models: loaded once, called as coroutines."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np

from aioascend import _debug, _native
from aioascend._closing import Closing, Opening, coroutine_function
from aioascend._threads import run_blocking
from aioascend._words import counted
from aioascend.errors import DependencyError
from aioascend.stream import Stream
from aioascend.tensors import TensorInfo, as_input, bind_arguments, check_tensor, dtype_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aioascend._native import DeviceBuffer, Operation, Run
    from aioascend.device import Device

__all__ = ["Model", "ModelContext"]

Shapes = tuple[tuple[int, ...], ...]


class Model(_native.ModelCore, Closing):
    """A loaded model. Made by `Device.load_model`.

    `await model(x)` takes numpy arrays and returns numpy arrays; copies in and out, staged through pinned memory, and
    the run are one chain on the model's own stream. `execute` runs it on device buffers, on any stream.

    Guaranteed: calls of one model run one after the other, in the order they were made, whatever stream they use (the
    library forbids one model on two streams at the same time). Load it twice for two at once.

    Attributes:
        name: What messages call it.
        device: Where it is loaded.
        input_infos: `TensorInfo` of every input.
        output_infos: `TensorInfo` of every output.
        gears: For models compiled for a choice of shapes: `{"batch": [1, 4]}`, `{"size": [(h, w), ...]}` or
            `{"dims": [[...], ...]}`; empty otherwise.
        stream: The stream that calls run on.
    """

    device: Device
    stream: Stream
    input_infos: tuple[TensorInfo, ...]
    output_infos: tuple[TensorInfo, ...]

    def __init__(self) -> None:
        raise TypeError("models have no public constructor; use Device.load_model")

    def _prepare(self) -> None:
        self._dynamic = "static"
        self._learning = threading.Lock()
        self._learned: dict[Shapes, list[int]] = {}  # input shapes -> bytes of each output

    @classmethod
    async def _load(
        cls, device: Device, source: str | os.PathLike[str] | bytes, name: str | None, made_at: _debug.Stack | None
    ) -> Model:
        model = cls.__new__(cls)
        model._prepare()
        model.device = device
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be text, not {name!r}")
        model._made_at = made_at
        if isinstance(source, (bytes, bytearray, memoryview)):
            label = name or "from bytes"
            if len(source) == 0:
                raise ValueError(f"model {label!r} is empty: there are no bytes to load it from")
        elif isinstance(source, (str, os.PathLike)):
            label = name or Path(source).name
            source = os.fspath(source)
        else:
            raise TypeError(f"a model is loaded from a path or from bytes, not from {type(source).__name__}")

        def load() -> Model:
            if isinstance(source, str):
                _check_path(source, device.backend)
            model._load_core(device._core, source, label)
            return model

        await run_blocking(load, undo=lambda made: made._unload())
        try:
            model._describe_for_python()
            model.stream = await device.create_stream()
            model.stream._to_be_closed = False  # by the model, not by its user
        except BaseException:
            with anyio.CancelScope(shield=True):
                await run_blocking(model._unload)
            raise
        model._to_be_closed = True
        return model

    def _describe_for_python(self) -> None:
        self.input_infos = tuple(
            TensorInfo(name, shape, dtype_of(dtype, f"input {name!r} of model {self._label}"))
            for index, (name, shape, dtype, _, _) in enumerate(self._inputs)
            if index != self._gear_index
        )
        self.output_infos = tuple(
            TensorInfo(name, shape, dtype_of(dtype, f"output {name!r} of model {self._label}"))
            for name, shape, dtype, _ in self._outputs
        )
        open_shape = any(-1 in info.shape for info in self.input_infos)
        self._dynamic = "gears" if self.gears else "shapes" if open_shape else "static"

    @property
    def name(self) -> str:
        return self._label

    # --- numpy in, numpy out ---

    @coroutine_function
    def __call__(self, /, *args: object, **kwargs: object) -> Coroutine[Any, Any, Any]:
        """Run the model on numpy arrays. Nothing happens before it is awaited.

        Args:
            *args: Inputs in the model's order. Arrays must have the input's dtype and shape; lists and numbers are
                converted. Leave them alone until the call returns.
            **kwargs: Inputs by name.

        Returns:
            The output as a numpy array; a tuple of them, in the model's order, when there are several. (Annotated as
            `Any`, since only the model knows which.)

        Raises:
            TypeError, ValueError: an input is missing, unknown, or does not fit; the message names it.
            AclError: the run, or a copy, failed on the device.
            DependencyError: an earlier call failed and nobody has been told yet.
            RuntimeClosedError: the model is closed.
        """
        return self._call_on(args, kwargs, _debug.here())

    async def _call_on(self, args: Sequence[object], kwargs: Mapping[str, object], where: _debug.Stack | None) -> Any:
        values = bind_arguments(self._label, self.input_infos, args, kwargs)
        arrays = [as_input(self._label, info, value) for info, value in zip(self.input_infos, values, strict=True)]
        self._check_usable()
        if self._dynamic == "shapes":
            results = await self._call_dynamic(arrays, where)
        else:
            results = await self._call(arrays, [size for *_, size in self._outputs], where)
        return results[0] if len(results) == 1 else tuple(results)

    _call_on.__qualname__ = "Model.__call__"  # what Python warns of when nobody awaits it

    async def _call(
        self, arrays: Sequence[NDArray[Any]], output_bytes: Sequence[int], where: _debug.Stack | None
    ) -> list[NDArray[Any]]:
        stream = self.stream
        with _debug.called_at(where):
            buffers = [self._input_buffer(index, array) for index, array in enumerate(arrays)]
            outputs = [self.device.empty(size, "uint8") for size in output_bytes]
            operations = [stream.memcpy(buffer, array) for buffer, array in zip(buffers, arrays, strict=True)]
            run = self._run(buffers, outputs)
            operations.append(run.submit(stream))
            hosts = [np.empty(size, "uint8") for size in output_bytes]
            operations += [stream.memcpy(host, output) for host, output in zip(hosts, outputs, strict=True)]
        await _chain(operations)
        return [self._result(run, index, host) for index, host in enumerate(hosts)]

    def _input_buffer(self, index: int, array: NDArray[Any]) -> DeviceBuffer:
        if self._gear_index is None:
            return self.device.empty_like(array)
        with_gear = index if index < self._gear_index else index + 1
        largest = max(self._inputs[with_gear][4], array.nbytes)
        return self.device.empty(largest, "uint8").view(array.shape, array.dtype)

    def _result(self, run: Run, index: int, host: NDArray[Any]) -> NDArray[Any]:
        info = self.output_infos[index]
        shape = info.shape if self._dynamic == "static" else run.output_shape(index) or info.shape
        count = int(np.prod(shape, dtype=np.int64))
        return host[: count * info.dtype.itemsize].view(info.dtype).reshape(shape)

    # --- models of dynamic shape ---

    async def _call_dynamic(self, arrays: Sequence[NDArray[Any]], where: _debug.Stack | None) -> list[NDArray[Any]]:
        """The library cannot say how large the outputs will be. So the first run for a combination of input shapes lets
        it allocate them (aclmdlExecute, in a worker thread) and remembers their sizes; later ones are submitted."""
        shapes: Shapes = tuple(array.shape for array in arrays)
        if shapes not in self._learned:
            # A lock between threads, taken off the loop: other loops may call this model, too.
            await run_blocking(self._learning.acquire, undo=lambda _: self._learning.release())
            if shapes not in self._learned:
                return await self._learn(shapes, arrays, where)
            self._learning.release()
        return await self._call(arrays, self._learned[shapes], where)

    async def _learn(
        self, shapes: Shapes, arrays: Sequence[NDArray[Any]], where: _debug.Stack | None
    ) -> list[NDArray[Any]]:
        in_thread = False
        try:
            with _debug.called_at(where):
                buffers = [self.device.empty_like(array) for array in arrays]
                copies = [self.stream.memcpy(buffer, array) for buffer, array in zip(buffers, arrays, strict=True)]
            await _chain(copies)
            await self._hold_runs()  # what is submitted from here on waits until this run is over
            run = self._run(buffers, [None] * len(self._outputs))

            def execute() -> list[NDArray[Any]]:
                try:
                    run.execute_now()
                    return run.take_system_outputs(self.output_infos)
                finally:
                    self._end_learning()

            in_thread = True
            results = await run_blocking(execute)
        finally:
            if not in_thread:
                self._end_learning()
        if len(self._learned) >= 256:
            self._learned.pop(next(iter(self._learned)))
        self._learned[shapes] = [max(1, result.nbytes) for result in results]
        return results

    def _end_learning(self) -> None:
        self._release_runs()
        self._learning.release()

    # --- device buffers ---

    def execute(
        self, inputs: Sequence[DeviceBuffer], outputs: Sequence[DeviceBuffer], *, stream: Stream | None = None
    ) -> Operation:
        """Run the model on device buffers (aclmdlExecuteAsync).

        The shapes of the inputs choose the gear of a model with gears, and are the actual shapes for a model of dynamic
        shape; then each output must be large enough for what comes out.

        Args:
            inputs: One buffer per input, in the model's order.
            outputs: One buffer per output, in the model's order.
            stream: Where to run; by default the model's own stream.

        Returns:
            The operation; submitted in stream order.

        Raises:
            TypeError, ValueError: a buffer does not fit, or the stream is of another device; the message names it.
            RuntimeClosedError: the model or the stream is closed.
            AclError: the library refused the run.
        """
        self._check_usable()
        for what, buffers in (("inputs", inputs), ("outputs", outputs)):
            if not isinstance(buffers, (list, tuple)):
                given = type(buffers).__name__
                raise TypeError(f"{what} of model {self._label} must be a list or tuple of DeviceBuffers, not {given}")
        if len(inputs) != len(self.input_infos):
            takes = counted(len(self.input_infos), "input")
            names = ", ".join(info.name for info in self.input_infos)
            raise ValueError(f"model {self._label} takes {takes} ({names}), not {len(inputs)}")
        for info, buffer in zip(self.input_infos, inputs, strict=True):
            self._check_buffer("input", info, buffer)
            check_tensor(self._label, info, buffer.shape, buffer.dtype)
        for info, output in zip(self.output_infos, outputs, strict=False):
            self._check_buffer("output", info, output)
        return self._run(inputs, outputs).submit(self.stream if stream is None else stream)

    def _check_buffer(self, what: str, info: TensorInfo, buffer: object) -> None:
        if not isinstance(buffer, _native.DeviceBuffer):
            given = type(buffer).__name__
            raise TypeError(f"{what} {info.name!r} of model {self._label} must be a DeviceBuffer, not {given}")

    def _run(self, inputs: Sequence[DeviceBuffer], outputs: Sequence[DeviceBuffer | None]) -> Run:
        if self._gear_index is None:
            run = self._make_run(inputs, outputs)
            if self._dynamic == "shapes":
                run.set_shapes([buffer.shape for buffer in inputs])
            return run
        kind, values = self._gear([buffer.shape for buffer in inputs])
        with_gear = list(inputs)
        with_gear.insert(self._gear_index, self.device.empty(self._inputs[self._gear_index][4], "uint8"))
        run = self._make_run(with_gear, outputs)
        run.set_gear(kind, values)
        return run

    def _gear(self, shapes: Sequence[tuple[int, ...]]) -> tuple[str, list[int]]:
        """Which gear the inputs ask for, from the extents that the model leaves open."""
        open_extents = [
            extent
            for info, shape in zip(self.input_infos, shapes, strict=True)
            for want, extent in zip(info.shape, shape, strict=True)
            if want == -1
        ]
        kind, gears = next(iter(self.gears.items()))
        if kind == "batch":
            wanted, known = open_extents[:1], [[batch] for batch in gears]
            fits = wanted in known and all(extent == wanted[0] for extent in open_extents)
        elif kind == "size":
            wanted, known = open_extents[:2], [list(size) for size in gears]
            fits = wanted in known
        else:
            wanted = [extent for shape in shapes for extent in shape]
            known = [list(dims) for dims in gears]
            fits = wanted in known
        if not fits:
            raise ValueError(f"model {self._label} is compiled for {kind} {gears}, the inputs have {wanted}")
        return kind, wanted

    # --- life cycle ---

    def _give_back(self) -> None:
        self.stream._destroy_when_drained()

    async def close(self) -> None:
        """Wait for the runs in flight, then unload (aclmdlUnload). May be called again."""
        self._close()
        if _native.forked():
            return
        await self.stream.close()
        await self._drained()
        await run_blocking(self._unload)

    def __repr__(self) -> str:
        return f"<Model {self._label} on device {self.device.index}{', closed' if self.closed else ''}>"


class ModelContext(Opening[Model]):
    """A model about to be loaded: `async with` it, or `await` it and close the model yourself."""


def _check_path(path: str, backend: str) -> None:
    if not path:
        raise ValueError("the path of a model is empty; give the path of a file")
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path!r} is a directory, not a model file")
    simulated = backend == "sim" and path.endswith(".om")
    stand_ins = [Path(path).with_suffix(suffix) for suffix in (".onnx", ".toml", ".json")] if simulated else []
    candidates = [Path(path), *stand_ins]
    if not any(candidate.exists() for candidate in candidates):
        beside = ", and none with .onnx, .toml or .json beside it, which the simulator would take" if simulated else ""
        raise FileNotFoundError(f"no model file {path!r} in {os.getcwd()}{beside}")
    if not any(candidate.is_file() for candidate in candidates):
        raise ValueError(f"{path!r} is a pipe or a device, which might never end; give the path of a regular file")


async def _chain(operations: Sequence[Operation]) -> None:
    """Awaits the last operation of a chain on one stream; raises the error of the first that failed by itself."""
    try:
        with contextlib.suppress(DependencyError):
            await operations[-1]
            return
    except BaseException:
        for operation in operations:
            operation.cancel()  # nobody goes by them any more
        raise
    for operation in operations:  # out of the block, or the traceback would begin with what has just been caught
        await operation
