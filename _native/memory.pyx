# SPDX-License-Identifier: Apache-2.0
# Device memory, pinned host memory, and views of the caller's own host memory.

cdef object _MaskedArray = np.ma.MaskedArray
cdef object _MOST_BYTES = 2**62
cdef object _MOST_DIMENSIONS = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32


@cython.final
cdef class HostView:
    """Holds the buffer of a host object, so that it can neither move nor go away while the device uses it."""

    cdef Py_buffer view

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef HostView view_host(object source, bint writable, str name):
    if not PyObject_CheckBuffer(source):
        raise TypeError(
            f"{name} must be a DeviceBuffer, a PinnedBuffer, a numpy array or another object with a buffer, "
            f"not {type(source).__name__}"
        )
    if isinstance(source, _MaskedArray):
        raise TypeError(f"{name} is a masked array, and a copy would leave its mask behind; copy its data, array.data")
    # numpy gives no format for some of its dtypes, and no buffer when asked for one.
    dtype = getattr(source, "dtype", None)
    cdef int flags = PyBUF_SIMPLE if dtype is not None else PyBUF_ND | PyBUF_FORMAT
    cdef HostView host = HostView.__new__(HostView)
    try:
        PyObject_GetBuffer(source, &host.view, flags | PyBUF_WRITABLE if writable else flags)
    except (BufferError, ValueError) as error:
        if isinstance(source, np.ndarray) and not source.flags.c_contiguous:
            raise ValueError(
                f"{name} is not contiguous (shape {source.shape}, strides {source.strides}); "
                "pass numpy.ascontiguousarray(...) of it"
            ) from None
        if writable:
            raise ValueError(f"{name} is read-only, so nothing can be copied into it: {error}") from None
        raise ValueError(f"{name} gives no contiguous buffer: {error}") from None
    if getattr(dtype, "hasobject", False) or (dtype is None and format_has_objects(host.view.format)):
        raise TypeError(f"{name} holds Python objects, whose addresses mean nothing to a device")
    return host


cdef bint format_has_objects(const char *format):
    """Whether there is an O in the format of a buffer; names of fields stand between colons."""
    return format is not NULL and b"O" in b"".join((<bytes>format).split(b":")[::2])


cdef tuple normal_shape(object shape):
    cdef list dims = []
    if isinstance(shape, (int, np.integer)):
        shape = (shape,)
    try:
        # Text is a sequence and a bool an integer to Python; neither is meant as a shape, nor what has no order.
        if isinstance(shape, (str, bytes, bytearray, set, frozenset, dict)):
            raise TypeError
        for extent in shape:
            if isinstance(extent, (bool, np.bool_)):
                raise TypeError
            dims.append(operator.index(extent))
    except TypeError:
        raise TypeError(f"a shape is an integer or a sequence of integers, not {shape!r}") from None
    if len(dims) > _MOST_DIMENSIONS:
        raise ValueError(f"a shape of {len(dims)} dimensions; numpy has {_MOST_DIMENSIONS} at most")
    for extent in dims:
        if extent < 0:
            raise ValueError(f"shape {tuple(dims)} has a negative extent")
        if extent > _MOST_BYTES:
            raise ValueError(f"shape {tuple(dims)} has an extent that is more than any device has")
    return tuple(dims)


cdef object normal_dtype(object dtype):
    if dtype is None:
        raise TypeError("dtype is None, which numpy takes for float64; name the one that is meant")
    if isinstance(dtype, str) and dtype == "bfloat16":
        import ml_dtypes  # which is where numpy gets it from
        dtype = ml_dtypes.bfloat16
    normal = np.dtype(dtype)
    if normal.hasobject:
        raise TypeError(f"dtype {normal} holds Python objects, which a device cannot")
    if normal.itemsize == 0:
        raise TypeError(f"dtype {dtype!r} has no size; give it one, as in 'S8'")
    if normal.subdtype is not None:
        raise TypeError(f"dtype {normal} has a shape of its own, {normal.shape}; give {normal.base} and a larger shape")
    return normal


cdef object count_bytes(tuple shape, object dtype):
    total = dtype.itemsize
    for extent in shape:
        total *= extent
    if total > _MOST_BYTES:
        raise ValueError(f"shape {shape} of {dtype} is {total} bytes, more than any device has")
    return total


@cython.final
@cython.no_gc_clear  # its end needs the device
cdef class Block:
    """Owns one block of pool memory; the buffers that look into it share it."""

    cdef rt.Memory *memory
    cdef rt.MemoryPool *pool
    cdef DeviceCore device  # keeps the pool
    cdef bint unreliable    # the device may still write here, nobody knows

    def __dealloc__(self):
        global _device_blocks_live, _pinned_blocks_live
        cdef rt.MemoryPool *pool = self.pool
        cdef rt.Memory *memory = self.memory
        cdef bint unreliable = self.unreliable
        if memory is not NULL:
            if self.on_device():
                _device_blocks_live -= 1
            else:
                _pinned_blocks_live -= 1
            if self.device.pinned_buffers is not None:
                self.device.pinned_buffers.pop(<uintptr_t><void *>self, None)
            with nogil:
                if unreliable:
                    pool.quarantine(memory)
                else:
                    pool.release(memory)

    cdef bint on_device(self):
        return self.pool is &self.device.device.device_memory()


cdef Block take_block(DeviceCore device, rt.MemoryPool *pool, size_t size):
    global _device_blocks_live, _pinned_blocks_live
    cdef Block block = Block.__new__(Block)
    block.device = device
    block.pool = pool
    with nogil:
        block.memory = pool.acquire(size)
    if block.on_device():
        _device_blocks_live += 1
    else:
        _pinned_blocks_live += 1
    return block


cdef class Buffer:
    """What device and pinned buffers share: shape, dtype and where they lie."""

    cdef readonly tuple shape
    cdef readonly object dtype
    cdef readonly size_t nbytes
    cdef Block block  # None when empty
    cdef size_t offset
    cdef DeviceCore core
    cdef object __weakref__

    def __init__(self) -> None:
        raise made_by("Device.empty or Device.pinned")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.nbytes // self.dtype.itemsize if self.dtype.itemsize else 0

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a buffer without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dtype.name}{list(self.shape)} on device {self.core.index}>"

    cdef rt.Memory *memory(self):
        """For a command. When there was none before, it is asked for again: that may have changed."""
        if self.block is None:
            return NULL
        if self.block.memory.state.load() == rt.MemoryFailed:
            self.block.pool.try_again(self.block.memory)
        return self.block.memory

    cdef void place(self, rt.Place &place):
        place.memory = self.memory()
        place.at = self.offset if self.block is not None else 0

    cdef Buffer part(self, size_t offset, tuple shape, object dtype, size_t nbytes):
        cdef Buffer part = type(self).__new__(type(self))
        part.shape = shape
        part.dtype = dtype
        part.nbytes = nbytes
        part.block = self.block
        part.offset = self.offset + offset
        part.core = self.core
        return part

    def view(self, shape: object, dtype: object = None):
        """The same memory under another shape and dtype; it must not need more bytes than there are.

        Raises:
            TypeError: no shape, or a dtype that a device cannot hold.
            ValueError: the view needs more than `nbytes`.
        """
        new_dtype = self.dtype if dtype is None else normal_dtype(dtype)
        new_shape = normal_shape(shape)
        nbytes = count_bytes(new_shape, new_dtype)
        if nbytes > self.nbytes:
            raise ValueError(
                f"a view of shape {new_shape} and {new_dtype} needs {nbytes} bytes, {self!r} has {self.nbytes}")
        return self.part(0, new_shape, new_dtype, nbytes)

    def __getitem__(self, index: object):
        """Rows of the first dimension: an integer drops it, a slice of step 1 keeps it. Shares the memory."""
        if not self.shape:
            raise IndexError("a buffer without dimensions has no rows")
        rows = self.shape[0]
        row_bytes = self.nbytes // rows if rows else 0
        if isinstance(index, slice):
            start, stop, step = index.indices(rows)
            if step != 1:
                raise IndexError(f"rows can be taken with step 1 only, not {step}")
            count = max(0, stop - start)
            return self.part(start * row_bytes, (count, *self.shape[1:]), self.dtype, count * row_bytes)
        try:
            row = operator.index(index)
        except TypeError:
            raise TypeError(f"only rows can be taken, with buffer[i] or buffer[a:b], not {index!r}") from None
        if not -rows <= row < rows:
            raise IndexError(f"row {row} of a buffer with {rows} rows")
        return self.part((row % rows) * row_bytes, self.shape[1:], self.dtype, row_bytes)


cdef int fill_buffer(
    Buffer buffer, DeviceCore core, object shape, object dtype, rt.MemoryPool *pool, object made_at
) except -1:
    buffer.shape = normal_shape(shape)
    buffer.dtype = normal_dtype(dtype)
    buffer.nbytes = count_bytes(buffer.shape, buffer.dtype)
    buffer.core = core
    if buffer.nbytes:
        buffer.block = take_block(core, pool, buffer.nbytes)
        if core.pinned_buffers is not None and isinstance(buffer, PinnedBuffer):
            core.pinned_buffers[<uintptr_t><void *>buffer.block] = (repr(buffer), buffer.nbytes, made_at)
    return 0


@cython.final
cdef class DeviceBuffer(Buffer):
    """An array in device memory. Made by `Device.empty`; released when nothing refers to it.

    Guaranteed: the memory outlives every operation that was submitted with it, whatever becomes of this object, and is
    not handed to anybody else before the device is past them. Not guaranteed: what it contains before it is written.

    Attributes:
        shape: Extents, as a tuple.
        dtype: The numpy dtype; float16 and, with ml_dtypes, bfloat16 included.
        nbytes: Size in bytes.
    """

    def __array__(self, dtype=None, copy=None):
        # Without this numpy would walk over the rows, for a long time, and make an array of buffers.
        raise TypeError("this is device memory; copy it to the host first: await stream.memcpy(array, buffer)")

    @property
    def address(self) -> int:
        """The device address, for foreign code. 0 when empty. May block until the memory is allocated.

        Raises:
            OutOfMemoryError: it could not be allocated (aclrtMalloc).
            RuntimeClosedError: the device is closed, and its memory freed.
        """
        self.core.check_not_closed()
        return buffer_address(self)


@cython.final
cdef class PinnedBuffer(Buffer):
    """An array in pinned host memory, which the device reads and writes directly. Made by `Device.pinned`.

    `numpy.asarray(buffer)`, `memoryview(buffer)` and `buffer.array` are views without a copy; the memory lives as long
    as any of them. Lifetime and contents as for `DeviceBuffer`.
    """

    @property
    def address(self) -> int:
        """The host address; 0 when empty."""
        return buffer_address(self)

    @property
    def array(self):
        """A numpy array over this memory; no copy."""
        if self.block is None:
            return np.empty(self.shape, self.dtype)
        cdef RawBytes raw = RawBytes.__new__(RawBytes)
        raw.owner = self
        return np.frombuffer(raw, np.uint8).view(self.dtype).reshape(self.shape)

    def __array__(self, dtype=None, copy=None):
        array = self.array
        if dtype is not None and np.dtype(dtype) != array.dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __getbuffer__(self, Py_buffer *view, int flags):
        # The array knows how to describe itself; it keeps this memory.
        PyObject_GetBuffer(self.array, view, flags)


@cython.final
cdef class RawBytes:
    """The bytes of a pinned buffer, for numpy to look into."""

    cdef PinnedBuffer owner

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.owner.block.memory.address(self.owner.offset), self.owner.nbytes, 0, flags)


cdef object buffer_address(Buffer buffer):
    if buffer.block is None:
        return 0
    cdef rt.MemoryPool *pool = buffer.block.pool
    cdef rt.Memory *memory = buffer.block.memory
    cdef int code
    check_fork()
    if _debugging and memory.state.load() == rt.MemoryPending:
        note_blocking_call(b"buffer.address, which waits for the allocation (aclrtMalloc),")
    with nogil:
        code = pool.wait(memory)
    if code != 0:
        raise _errors.error_from_code(
            code, f"allocation of {buffer.nbytes} bytes", device=buffer.core.index)
    return <uintptr_t>memory.address(buffer.offset)


cdef enum Where:
    ON_DEVICE, PINNED, PAGEABLE


cdef struct Side:
    # One end of a copy: where it lies (as an rt.Place), and how large it is.
    rt.Memory *memory
    uintptr_t at
    size_t nbytes
    Where where


cdef inline void set_place(rt.Place &place, const Side &side):
    place.memory = side.memory
    place.at = side.at


cdef object side_of(object value, DeviceCore core, bint writable, str name, Side *side):
    """Fills in the side; returns what keeps it there."""
    cdef Buffer buffer
    cdef HostView host
    cdef bint pinned
    if isinstance(value, Buffer):
        buffer = value
        side.where = ON_DEVICE if isinstance(value, DeviceBuffer) else PINNED
        if side.where == ON_DEVICE and buffer.core is not core:
            if buffer.core.device.ended():
                raise ValueError(f"{name} was allocated before the device was reset or closed; allocate it again")
            raise ValueError(
                f"{name} lies on device {buffer.core.index}, the stream belongs to device {core.index}; "
                "copy through host memory"
            )
        side.memory = buffer.memory()
        side.at = buffer.offset if buffer.block is not None else 0
        side.nbytes = buffer.nbytes
        return buffer.block
    host = view_host(value, writable, name)
    side.memory = NULL
    side.at = <uintptr_t>host.view.buf
    side.nbytes = host.view.len
    with nogil:
        pinned = core.device.is_pinned(host.view.buf, host.view.len)
    side.where = PINNED if pinned else PAGEABLE
    return host


cdef int check_apart(const Side &dst, const Side &source) except -1:
    """Both on the device. A copy of a buffer onto itself does nothing, and is none of the device."""
    if dst.memory is NULL or dst.memory is not source.memory or dst.at == source.at:
        return 0
    cdef size_t apart = dst.at - source.at if dst.at > source.at else source.at - dst.at
    if apart < dst.nbytes:
        raise ValueError(
            f"dst and src overlap: {dst.nbytes} bytes each of the same memory, {apart} bytes apart. What the device "
            "makes of that is not defined; copy through a third buffer"
        )
    return 0


cdef object as_integer(object value):
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"memset sets bytes: value must be an integer, 0 to 255, not {value!r}") from None
