# SPDX-License-Identifier: Apache-2.0


@cython.final
cdef class DeviceCore:
    """What `aioascend.Device` is made of. Opening and closing block; they are for worker threads."""

    cdef rt.Device *device
    cdef readonly Library library
    cdef readonly int index
    cdef list kept  # what the device may use and nobody can tell; goes with this object
    cdef object __weakref__

    def __cinit__(self, library: Library, index: int, **options: int):
        cdef rt.Options settings
        for name, value in options.items():
            if value < 0:
                raise ValueError(f"{name} must not be negative, got {value}")
            if name == "flight_limit":
                settings.flight_limit = value
            elif name == "report_timeout_ms":
                settings.report_timeout_ms = value
            elif name == "stage_inline_bytes":
                settings.stage_inline_bytes = value
            elif name == "device_cache_bytes":
                settings.device_cache_bytes = value
            elif name == "pinned_cache_bytes":
                settings.pinned_cache_bytes = value
            else:
                raise TypeError(f"unknown device option {name!r}")
        self.library = library
        self.index = index
        self.kept = []
        self.device = new rt.Device(deref(library.library), index, settings)

    def __dealloc__(self):
        # An open device is leaked on purpose: its threads and the device itself may still use it.
        if self.device is not NULL and self.device.ended():
            del self.device

    cdef object error(self, int code, str where, object stream=None):
        return acl_error(&self.library.library.api, &self.library.library.can, code, where, self.index, stream)

    def open(self) -> None:
        cdef int code
        if rt.forked():
            raise status_error(rt.kForked, "")
        with nogil:
            code = self.device.open()
        if code != 0:
            raise self.error(code, "aclrtSetDevice")

    def close(self) -> None:
        cdef int code
        with nogil:
            code = self.device.close()
        if self.device.ended():
            self.kept.clear()  # it has been reset, and a way from there back to this object would never be collected
        if code != 0:
            raise self.error(code, "aclrtResetDevice")

    def close_later(self) -> bool:
        """Close it once its streams are drained, without anybody waiting; False when it can be closed at once."""
        cdef bint left
        with nogil:
            left = self.device.close_later()
        return left

    @property
    def closed(self) -> bool:
        return self.device.closed()

    @property
    def context(self) -> int:
        return <uintptr_t>self.device.context()

    @property
    def callbacks_launched(self) -> int:
        """Reports asked of the device so far (aclrtLaunchCallback)."""
        return self.device.reports_requested()

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes of device memory (aclrtGetMemInfo)."""
        cdef size_t free = 0, total = 0
        cdef int code
        with nogil:
            code = self.device.memory_info(free, total)
        if code != 0:
            raise self.error(code, "aclrtGetMemInfo")
        return free, total

    def pool_statistics(self) -> dict:
        """Bytes and blocks of the device and pinned memory pools."""
        cdef rt.MemoryStatistics device, pinned
        with nogil:
            device = self.device.device_memory().statistics()
            pinned = self.device.pinned_memory().statistics()
        return {
            "device_live_bytes": device.live_bytes, "device_cached_bytes": device.cached_bytes,
            "device_live_blocks": device.live_blocks, "pinned_live_bytes": pinned.live_bytes,
            "pinned_cached_bytes": pinned.cached_bytes, "pinned_live_blocks": pinned.live_blocks,
        }

    def empty(self, shape: object, dtype: object) -> DeviceBuffer:
        """See `aioascend.Device.empty`."""
        cdef DeviceBuffer buffer = DeviceBuffer.__new__(DeviceBuffer)
        self.check_open()
        fill_buffer(buffer, self, shape, dtype, &self.device.device_memory())
        return buffer

    def pinned(self, shape: object, dtype: object) -> PinnedBuffer:
        """Blocks until the memory is there, unless the pool has it; see `aioascend.Device.pinned`."""
        cdef PinnedBuffer buffer = PinnedBuffer.__new__(PinnedBuffer)
        self.check_open()
        fill_buffer(buffer, self, shape, dtype, &self.device.pinned_memory())
        buffer_address(buffer)
        return buffer

    cdef int check_open(self) except -1:
        if rt.forked():
            raise status_error(rt.kForked, "")
        if self.device.closed():
            raise _errors.RuntimeClosedError(f"device {self.index} is closed")
        return 0
