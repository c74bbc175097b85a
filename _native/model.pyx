# SPDX-License-Identifier: Apache-2.0
# A loaded model: its description, and the datasets of its runs.

cdef str GEAR_INPUT = "ascend_mbatch_shape_data"  # the extra input of models with gears


@cython.no_gc_clear  # its end needs the device
cdef class ModelCore:
    """What `aioascend.Model` is made of. Loading, unloading and blocking runs are for worker threads."""

    cdef rt.LoadedModel *loaded
    cdef DeviceCore core
    cdef Operation latest       # its last run
    cdef Event end              # recorded behind that run; None as long as it is not shared
    cdef bint shared            # runs have come from more than one stream
    cdef readonly str _label
    cdef readonly list _inputs   # (name, shape, acl dtype, acl format, bytes) each, the gear input included
    cdef readonly list _outputs  # (name, shape, acl dtype, bytes) each
    cdef readonly dict gears    # {"batch": [...]}, {"size": [(h, w), ...]}, {"dims": [[...], ...]} or {}
    cdef readonly object _gear_index
    cdef bint is_closed         # takes no more runs
    cdef object submitting      # a lock: see submit_execution
    cdef bint counted           # among those that are loaded
    cdef object data            # the bytes it was loaded from: the library may read them until it is unloaded
    cdef object __weakref__

    def __cinit__(self):
        self.submitting = threading.Lock()

    def __dealloc__(self):
        if self.loaded is not NULL:
            self.count(False)
            with nogil:
                if not self.loaded.unloaded:  # nobody closed it; runs in flight would keep this object
                    self.core.device.unload_model_soon(self.loaded.id)
                del self.loaded

    def _load_core(self, core: DeviceCore, source: object, label: str) -> None:
        """Blocks. `source`: a path (str), or the bytes of a model."""
        cdef rt.Device *device = core.device
        cdef bint begun
        if not core.library.library.can.models:
            raise _errors.UnsupportedError(
                200001, "load_model", "This library lacks functions for models: " + ", ".join(core.library.missing))
        core.check_open("load_model")
        self.core = core
        self._label = label
        with nogil:
            begun = device.begin_call(False)
        if not begun:
            core.check_open("load_model")
        try:  # until it is there whole, the device is not closed under it
            self.load_and_describe(source, label)
        finally:
            with nogil:
                device.end_call()

    cdef int load_and_describe(self, object source, str label) except -1:
        cdef uint32_t id = 0
        cdef int code
        cdef string path
        cdef HostView host
        cdef rt.Device *device = self.core.device
        if isinstance(source, str):
            path = os.fsencode(source)
            with nogil:
                code = device.load_model(path, id)
            call = "aclmdlLoadFromFile"
        else:
            host = view_host(source, False, "model")
            self.data = host
            with nogil:
                code = device.load_model_bytes(host.view.buf, host.view.len, id)
            call = "aclmdlLoadFromMem"
        if code != 0:
            self.core.check_open("load_model")  # it may have been closed meanwhile
            raise self.core.error(code, f"{call}({label})")
        self.loaded = new rt.LoadedModel(device.api(), id)
        self.count(True)
        try:
            self.describe()
            self.core.check_open("load_model")
        except BaseException:
            self._unload()
            raise
        return 0

    def _unload(self) -> None:
        """Blocks. Nothing may be in flight."""
        cdef int code
        self.is_closed = True
        self.end = None
        with nogil:
            code = self.core.device.unload_model(deref(self.loaded))
        if code != 0:
            raise self.core.error(code, f"aclmdlUnload({self._label})")
        self.count(False)

    cdef void count(self, bint loaded):
        global _models_live
        _models_live += <int>loaded - <int>self.counted
        self.counted = loaded

    @property
    def closed(self) -> bool:
        """Whether it takes no more runs."""
        return self.is_closed or self.core.device.ended()

    def _check_usable(self) -> None:
        check_fork()
        if self.is_closed:
            raise _errors.RuntimeClosedError(f"model {self._label} is closed")
        if self.core.device.ended():
            raise ended_with_device(self.core, f"model {self._label}")

    def _close(self) -> None:
        """From here on runs are refused; those in flight go on."""
        self.is_closed = True

    def _hold_runs(self) -> Operation:
        """From here on runs that are submitted wait on the host. Returns what is done when those before are."""
        with self.submitting:
            with nogil:
                self.core.device.hold_runs(deref(self.loaded), True)
            return self._drained()

    def _release_runs(self) -> None:
        with nogil:
            self.core.device.hold_runs(deref(self.loaded), False)

    def _drained(self) -> Operation:
        """An operation that is done when the device is past the last run; it tells nothing of failures."""
        return new_finished() if self.latest is None else new_follower(self.latest, quiet=True)

    cdef int describe(self) except -1:
        cdef rt.ModelDescription description
        cdef string where
        cdef int code
        cdef rt.Device *device = self.core.device
        with nogil:
            code = device.describe_model(deref(self.loaded), description, where)
        if code != 0:
            raise self.core.error(code, f"{where.decode()}({self._label})")
        self._inputs = [
            (entry.name.decode(errors="backslashreplace"), tuple(entry.shape), <int>entry.dtype, <int>entry.format,
             entry.bytes)
            for entry in description.inputs
        ]
        self._outputs = [
            (entry.name.decode(errors="backslashreplace"), tuple(entry.shape), <int>entry.dtype, entry.bytes)
            for entry in description.outputs
        ]
        for index, entry in enumerate(self._inputs):
            if entry[0] == GEAR_INPUT:
                self._gear_index = index
        gears = [tuple(gear) for gear in description.gears]
        if description.gear_kind == rt.DynamicKind.Batch:
            self.gears = {"batch": [batch for batch, in gears]}
        elif description.gear_kind == rt.DynamicKind.Size:
            self.gears = {"size": gears}
        else:
            self.gears = {"dims": gears} if gears else {}
        return 0

    cdef Run new_run(self, DeviceCore core, object inputs, object outputs):
        """A run on these buffers; sizes are checked, nothing dynamic is set yet."""
        if core is not self.core:
            raise ValueError(f"model {self._label} is loaded on device {self.core.index}, not on {core.index}")
        check_fork()
        inputs = tuple(inputs)
        outputs = tuple(outputs)
        if len(inputs) != len(self._inputs):
            names = ", ".join(entry[0] for entry in self._inputs)
            raise ValueError(f"model {self._label} takes {len(self._inputs)} inputs ({names}), not {len(inputs)}")
        if len(outputs) != len(self._outputs):
            names = ", ".join(entry[0] for entry in self._outputs)
            raise ValueError(f"model {self._label} has {len(self._outputs)} outputs ({names}), not {len(outputs)}")
        cdef Run run = Run.__new__(Run)
        cdef size_t index
        run.model = self
        cdef size_t input_count = len(inputs), output_count = len(outputs)
        with nogil:
            run.execution = rt.Execution.take(deref(self.loaded), input_count, output_count)
        if run.execution is NULL:
            raise MemoryError("the library could not make the datasets of a model run")
        run.execution.dynamic = rt.DynamicKind.Static
        for index in range(len(inputs)):
            name, *_, needed = self._inputs[index]
            self.fill(run.execution.inputs[index], inputs[index], f"input {name!r}", needed)
        for index in range(len(outputs)):
            name, *_, needed = self._outputs[index]
            self.fill(run.execution.outputs[index], outputs[index], f"output {name!r}", needed)
        run.buffers = (inputs, outputs)
        return run

    cdef int fill(self, rt.Execution.Tensor &tensor, object buffer, str name, size_t needed) except -1:
        if buffer is None:  # an output that the library allocates
            tensor.size = 0
            tensor.place.memory = NULL
            return 0
        if not isinstance(buffer, DeviceBuffer):
            raise TypeError(f"{name} of model {self._label} must be a DeviceBuffer, not {type(buffer).__name__}")
        if (<Buffer>buffer).core is not self.core:
            raise ValueError(f"{name} lies on another device than model {self._label}")
        cdef Buffer given = buffer
        cdef size_t room = given.block.memory.size - given.offset if given.block is not None else 0
        tensor.size = given.nbytes
        if self.gears and room >= needed:
            tensor.size = needed  # of the largest gear; buffers of models with gears are that large by convention
        elif not self.gears and given.nbytes < needed:
            raise ValueError(
                f"{name} of model {self._label} needs {needed} bytes, the buffer {given!r} has {given.nbytes}"
            )
        given.place(tensor.place)
        return 0

    def _make_run(self, inputs: object, outputs: object) -> Run:
        """A run to be submitted or executed; `None` for an output that the library allocates."""
        return self.new_run(self.core, inputs, outputs)


@cython.final
@cython.no_gc_clear  # its end needs the device
cdef class Run:
    """One run of a model: its datasets and buffers, and the dynamic setting that belongs to it."""

    cdef rt.Execution *execution
    cdef ModelCore model
    cdef object buffers

    def __init__(self) -> None:
        raise made_by("Model.execute")

    def __dealloc__(self):
        if self.execution is not NULL:
            with nogil:
                self.execution.give_back()

    def set_gear(self, kind: str, values: object) -> None:
        """kind: "batch", "size" (height, width) or "dims" (all dynamic extents)."""
        self.execution.dynamic = {
            "batch": rt.DynamicKind.Batch, "size": rt.DynamicKind.Size, "dims": rt.DynamicKind.Dims,
        }[kind]
        self.execution.dynamic_index = self.model._gear_index
        self.execution.dynamic_values = values

    def set_shapes(self, shapes: object) -> None:
        """The actual shape of every input, for models of dynamic shape."""
        cdef size_t index
        if not self.model.core.library.library.can.dataset_tensor_desc:
            raise _errors.UnsupportedError(
                200001, f"a run of {self.model._label}", "This library has no models of dynamic shape.")
        self.execution.dynamic = rt.DynamicKind.Shape
        for index, shape in enumerate(shapes):
            self.execution.inputs[index].shape = shape
            self.execution.inputs[index].dtype = <rt.aclDataType><int>self.model._inputs[index][2]
            self.execution.inputs[index].format = <rt.aclFormat><int>self.model._inputs[index][3]

    def submit(self, stream: StreamCore) -> Operation:
        """Submit it to a stream (aclmdlExecuteAsync)."""
        if stream.core is not self.model.core:
            raise ValueError(
                f"model {self.model._label} is loaded on device {self.model.core.index}, the stream belongs to device "
                f"{stream.core.index}; load it there, too"
            )
        return submit_execution(stream, self.model, self)

    def execute_now(self) -> None:
        """Run it and wait (aclmdlExecute). Blocks."""
        cdef int code
        cdef rt.Device *device = self.model.core.device
        with nogil:
            code = device.execute_now(deref(self.execution))
        if code != 0:
            raise self.model.core.error(code, f"aclmdlExecute({self.model._label})")

    def output_shape(self, index: int) -> tuple | None:
        """Actual shape of an output after the run; None where the library does not tell."""
        cdef vector[int64_t] shape
        cdef size_t output = index
        cdef bint known
        with nogil:
            known = self.execution.output_shape(output, shape)
        return tuple(shape) if known else None

    def take_system_outputs(self, infos: object) -> list:
        """The outputs that the library allocated, as numpy arrays; their memory is freed (aclrtFree). Blocks."""
        cdef size_t output, size = 0
        cdef void *address
        cdef HostView host
        cdef int code
        cdef rt.Device *device = self.model.core.device
        results = []
        failure = None
        for output, info in enumerate(infos):
            shape = self.output_shape(output)
            array = np.empty(shape or (), info.dtype)
            host = view_host(array, True, "output")
            with nogil:
                address = self.execution.system_output(output, size)
                code = 0
                if <size_t>host.view.len <= size:
                    code = device.copy_now(host.view.buf, address, host.view.len, rt.ACL_MEMCPY_DEVICE_TO_HOST)
                device.api().aclrtFree(address)
            if code != 0:
                failure = failure or self.model.core.error(code, "aclrtMemcpy")
            elif shape is None or <size_t>host.view.len > size:
                failure = failure or RuntimeError(
                    f"the library does not tell the shape of output {info.name!r} of {self.model._label}")
            results.append(array)
        if failure is not None:
            raise failure
        return results


cdef Operation submit_execution(StreamCore stream, ModelCore model, Run run):
    cdef rt.Command command
    cdef Operation operation
    stream.check_usable()
    model._check_usable()
    command.kind = rt.Kind.Execute
    command.subject = run.execution
    command.may_block = run.execution.dynamic == rt.DynamicKind.Shape
    operation = stream.new_operation()
    operation.keep = run
    with model.submitting:  # one run after the other, whatever threads and streams they come from
        last = model.latest
        if last is not None and (<Operation>last).in_flight and (<Operation>last).stream is not stream:
            if model.end is None:
                if (<Operation>last).stream.closed:
                    raise _errors.RuntimeClosedError(
                        f"model {model._label} still runs on a stream that is being closed; await that first")
                model.end = (<Operation>last).stream.record()
            model.shared = True
            stream.wait(model.end)
        run.execution.held = model.loaded.hold
        stream.submit(operation, command)
        if operation.in_flight:
            model.latest = operation
            model.end = end_of_run(stream) if model.shared else None
    return operation


cdef Event end_of_run(StreamCore stream):
    """An event right behind the run just submitted: one recorded later would wait for what follows it, too."""
    cdef Event event
    try:
        event = stream.record()
    except _errors.AioascendError:  # no event is left: the next run tries again, or tells
        return None
    return event if event.operation.in_flight else None  # None: the stream has failed
