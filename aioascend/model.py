# SPDX-License-Identifier: Apache-2.0
"""Models: loaded once, called as coroutines."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aioascend import _debug, _native
from aioascend._arguments import whole
from aioascend._calls import Calls, ModelStatistics
from aioascend._closing import Closing, Opening, coroutine_function
from aioascend._first_calls import FirstCalls
from aioascend._instances import Instances, chain
from aioascend._threads import run_blocking
from aioascend._words import counted
from aioascend.errors import RuntimeClosedError
from aioascend.stream import Stream
from aioascend.tensors import TensorInfo, as_input, bind_arguments, check_tensor, dtype_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from aioascend._native import DeviceBuffer, Operation, Run
    from aioascend.device import Device

__all__ = ["Model", "ModelContext"]

_CALLS_OF_AN_INSTANCE = 8  # three overlap; the others bridge the time until the host has heard of one


class Model(_native.ModelCore, Closing):
    """A loaded model. Made by `Device.load_model`.

    `await model(x)` takes numpy arrays and returns numpy arrays, staged through pinned memory. Its copies overlap
    with the runs of other calls. `execute` runs it on device buffers, on any stream.

    Guaranteed: runs of one instance follow one another, in the order they were submitted, whatever stream they use (the
    library forbids one model on two streams at the same time); so do calls, in the order they were made. No more than
    `concurrency` calls have buffers on the device; others wait on the host, in their order, until the device is past
    one, whether or not somebody still waits for that. Not guaranteed: any order between several instances.

    Attributes:
        name: What messages call it.
        device: Where it is loaded.
        input_infos: `TensorInfo` of every input.
        output_infos: `TensorInfo` of every output.
        gears: For models compiled for a choice of shapes: `{"batch": [1, 4]}`, `{"size": [(h, w), ...]}` or
            `{"dims": [[...], ...]}`; empty otherwise.
        stream: The stream that calls run on; with several instances that of the first.
        streams: The streams that calls run on, one for each instance.
    """

    device: Device
    stream: Stream
    streams: tuple[Stream, ...]
    input_infos: tuple[TensorInfo, ...]
    output_infos: tuple[TensorInfo, ...]
    _calls: Calls
    _instances: Instances

    def __init__(self) -> None:
        raise TypeError("models have no public constructor; use Device.load_model")

    def _prepare(self) -> None:
        self._dynamic = "static"
        self._first_calls = FirstCalls()

    @classmethod
    async def _load(
        cls,
        device: Device,
        source: str | os.PathLike[str] | bytes,
        name: str | None,
        instances: int,
        concurrency: int | None,
        made_at: _debug.Stack | None,
    ) -> Model:
        model = cls.__new__(cls)
        model._prepare()
        model.device = device
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be text, not {name!r}")
        instances = whole("instances", instances, 1, 64, "a number of instances")
        limit = _CALLS_OF_AN_INSTANCE * instances
        if concurrency is not None:
            limit = whole("concurrency", concurrency, 1, 4096, "a number of calls")
            if limit < instances:
                raise ValueError(f"concurrency, of all {instances} instances together, is {limit}; give more, or none")
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
        model._calls = Calls(label, limit)
        model._instances = Instances(instances)

        def load() -> Model:
            model._instances.load(model, device, source, label)
            return model

        await run_blocking(load, undo=lambda made: made._instances.unload(made))
        try:
            model._describe_for_python()
            await model._instances.create_streams(device, overlapping=limit > 1)
        except BaseException:
            await model._instances.give_up(model)
            raise
        model.streams = model._instances.run_streams
        model.stream = model.streams[0]
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
        self._check_open()
        with self._calls:
            if self._dynamic == "shapes":
                results = await self._call_dynamic(arrays, where)
            else:
                results = await self._call(arrays, [size for *_, size in self._outputs], where)
        return results[0] if len(results) == 1 else tuple(results)

    _call_on.__qualname__ = "Model.__call__"  # what Python warns of when nobody awaits it

    async def _call(
        self, arrays: Sequence[NDArray[Any]], output_bytes: Sequence[int], where: _debug.Stack | None
    ) -> list[NDArray[Any]]:
        alone = await self._calls.enter()
        operations: list[Operation] = []
        try:
            self._check_usable()
            instance = self._instances.pick()
            with _debug.called_at(where):
                buffers = [self._input_buffer(index, array) for index, array in enumerate(arrays)]
                outputs = [self._empty(size, "uint8") for size in output_bytes]
                hosts = [np.empty(size, "uint8") for size in output_bytes]
                run = self._run(instance.core or self, buffers, outputs)
                copies_in, copies_out = zip(buffers, arrays, strict=True), zip(hosts, outputs, strict=True)
                refused = instance.submit(operations, copies_in, run, copies_out, alone)
            await chain(operations, refused)
        except BaseException:
            self._calls.leave_behind(operations)
            raise
        self._calls.leave()
        return [self._result(run, index, host) for index, host in enumerate(hosts)]

    def _empty(self, shape: int | Sequence[int], dtype: DTypeLike) -> DeviceBuffer:
        return self.device._core.empty(shape, dtype)  # which a call that was accepted still gets when it is closed

    def _input_buffer(self, index: int, array: NDArray[Any]) -> DeviceBuffer:
        if self._gear_index is None:
            return self._empty(array.shape, array.dtype)
        with_gear = index if index < self._gear_index else index + 1
        largest = max(self._inputs[with_gear][4], array.nbytes)
        return self._empty(largest, "uint8").view(array.shape, array.dtype)

    def _result(self, run: Run, index: int, host: NDArray[Any]) -> NDArray[Any]:
        info = self.output_infos[index]
        shape = info.shape if self._dynamic == "static" else run.output_shape(index) or info.shape
        count = int(np.prod(shape, dtype=np.int64))
        return host[: count * info.dtype.itemsize].view(info.dtype).reshape(shape)

    # --- models of dynamic shape ---

    async def _call_dynamic(self, arrays: Sequence[NDArray[Any]], where: _debug.Stack | None) -> list[NDArray[Any]]:
        shapes = tuple(array.shape for array in arrays)
        if self._first_calls.sizes(shapes) is None:
            if not await self._first_calls.turns.take():
                raise RuntimeClosedError(f"model {self._label} is closed")
            if self._first_calls.sizes(shapes) is None:
                return await self._first_calls.make(self, shapes, arrays, where)
            self._first_calls.turns.give_back()
        return await self._call(arrays, self._first_calls.sizes(shapes) or [], where)

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
            stream: Where to run; by default the model's own stream, with several instances that of the one with the
                least to do.

        Returns:
            The operation; submitted in stream order.

        Raises:
            TypeError, ValueError: a buffer does not fit, or the stream is of another device; the message names it.
            RuntimeClosedError: the model or the stream is closed.
            AclError: the library refused the run.
        """
        self._check_open()
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
        instance = self._instances.pick()
        return self._run(instance.core or self, inputs, outputs).submit(instance.run if stream is None else stream)

    def _check_buffer(self, what: str, info: TensorInfo, buffer: object) -> None:
        if not isinstance(buffer, _native.DeviceBuffer):
            given = type(buffer).__name__
            raise TypeError(f"{what} {info.name!r} of model {self._label} must be a DeviceBuffer, not {given}")

    def _run(
        self, core: _native.ModelCore, inputs: Sequence[DeviceBuffer], outputs: Sequence[DeviceBuffer | None]
    ) -> Run:
        if self._gear_index is None:
            run = core._make_run(inputs, outputs)
            if self._dynamic == "shapes":
                run.set_shapes([buffer.shape for buffer in inputs])
            return run
        kind, values = self._gear([buffer.shape for buffer in inputs])
        with_gear = list(inputs)
        with_gear.insert(self._gear_index, self._empty(self._inputs[self._gear_index][4], "uint8"))
        run = core._make_run(with_gear, outputs)
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

    @property
    def closed(self) -> bool:
        """Whether it takes no more runs."""
        return self._calls.closed or super().closed

    def _check_open(self) -> None:
        if self._calls.closed:
            raise RuntimeClosedError(f"model {self._label} is closed")
        self._check_usable()

    def statistics(self) -> ModelStatistics:
        """What became of its calls so far, `await model(...)`; `execute` is none."""
        return self._calls.statistics()

    def _give_back(self) -> None:
        self._instances.give_back_when_drained()

    def _refuse(self) -> None:
        """From here on calls and runs are refused; those that were made go on."""
        self._calls.closed = True

    async def close(self) -> None:
        """Wait for the calls that were made and the runs in flight, then unload (aclmdlUnload). May be called again.

        When a close is cancelled, also by the end of the 5 s that leaving its block by an exception waits, calls that
        wait for others raise `RuntimeClosedError`.
        """
        self._refuse()
        if _native.forked():
            return
        turns, places = self._first_calls.turns, self._calls.places
        try:
            await turns.drained()
            if await turns.take():  # behind the first call that is under way
                turns.give_back()
            await places.drained()
        except BaseException:
            turns.send_away()
            places.send_away()
            raise
        finally:
            self._instances.refuse(self)
        await self._instances.close(self)

    def __repr__(self) -> str:
        return f"<Model {self._label} on device {self.device.index}{', closed' if self.closed else ''}>"


class ModelContext(Opening[Model]):
    """A model about to be loaded: `async with` it, or `await` it and close the model yourself."""
