# SPDX-License-Identifier: Apache-2.0


@cython.final
cdef class DeviceCore:
    """What `aioascend.Device` is made of. Opening and closing block; they are for worker threads."""

    cdef rt.Device *device
    cdef readonly Library library
    cdef readonly int index
    cdef size_t staged_copies, staged_bytes
    cdef dict pinned_buffers  # in debug mode: address of a Block -> repr, bytes and maker of its buffer; else None
    cdef public bint awaits_reset  # a reset of it was begun, and has not succeeded
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
        self.pinned_buffers = {} if _debugging else None
        self.device = new rt.Device(deref(library.library), index, settings)

    def __dealloc__(self):
        # An open device is leaked on purpose: its threads and the device itself may still use it.
        if self.device is not NULL and self.device.ended():
            del self.device

    cdef object error(self, int code, str where, object stream=None):
        if self.device.fault() != 0:  # whatever the library says when it is reset under a call
            return out_of_service(self, where, stream)
        return acl_error(&self.library.library.api, &self.library.library.can, code, where, self.index, stream)

    def open(self) -> None:
        cdef int code
        check_fork()
        with nogil:
            code = self.device.open()
        if code != 0:
            raise self.error(code, "aclrtSetDevice")
        if _debugging:
            _debug.watch_stalls(self)

    def _stream_states(self) -> list | None:
        return stream_states(self)

    def close(self) -> None:
        cdef int code
        with nogil:
            code = self.device.close()
        if self.device.ended():
            self.kept.clear()  # it has been reset, and a way from there back to this object would never be collected
        if code != 0:
            raise self.error(code, "aclrtResetDevice")

    def reset_by_force(self) -> None:
        """Give everything up and reset the device (aclrtResetDeviceForce). This object is closed from then on."""
        cdef int code
        check_fork()
        with nogil:
            code = self.device.reset_by_force()
        if self.device.ended():
            self.kept.clear()  # or it would never be collected
        if code == 207000:  # there is no such call
            raise self.error(code, "aclrtResetDeviceForce")
        if code != 0:
            raise out_of_service(self, "aclrtResetDeviceForce")

    def health(self) -> tuple[int, float, float, int, int, int]:
        """Code of the fault or 0, seconds since it and since the last progress, in flight, queued, orphaned streams."""
        cdef rt.Health health
        check_fork()
        with nogil:
            health = self.device.health()
        now = rt.monotonic_ns()
        since = now - health.failed_ns if health.fault else 0
        return (health.fault, since / 1e9, (now - health.progress_ns) / 1e9, health.in_flight, health.queued,
                health.orphans)

    def check(self, what: str) -> None:
        """Raises what a call of this name would raise because the device is closed or out of service."""
        self.check_open(what)

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

    def ai_cores(self) -> int | None:
        """How many AI cores it has (aclrtGetDeviceInfo), None where the library does not say. Blocks."""
        cdef int64_t cores
        self.check_open("ai_cores")
        with nogil:
            cores = self.device.ai_cores()
        return cores if cores > 0 else None

    def pool_statistics(self) -> dict:
        """Bytes and blocks of the device and pinned memory pools."""
        cdef rt.MemoryStatistics device, pinned
        check_fork()
        with nogil:
            device = self.device.device_memory().statistics()
            pinned = self.device.pinned_memory().statistics()
        return {
            "device_live_bytes": device.live_bytes, "device_cached_bytes": device.cached_bytes,
            "device_live_blocks": device.live_blocks, "pinned_live_bytes": pinned.live_bytes,
            "pinned_cached_bytes": pinned.cached_bytes, "pinned_live_blocks": pinned.live_blocks,
            "staged_copies": self.staged_copies, "staged_bytes": self.staged_bytes,
        }

    def live_pinned(self) -> list:
        """In debug mode: repr, bytes and where it was made, of each pinned buffer whose memory is still in use."""
        return [] if self.pinned_buffers is None else list(self.pinned_buffers.values())

    def empty(self, shape: object, dtype: object) -> DeviceBuffer:
        """See `aioascend.Device.empty`."""
        cdef DeviceBuffer buffer = DeviceBuffer.__new__(DeviceBuffer)
        self.check_open("empty")
        fill_buffer(buffer, self, shape, dtype, &self.device.device_memory(), None)
        return buffer

    def pinned(self, shape: object, dtype: object, made_at: object = None) -> PinnedBuffer:
        """Blocks until the memory is there, unless the pool has it; see `aioascend.Device.pinned`."""
        cdef PinnedBuffer buffer = PinnedBuffer.__new__(PinnedBuffer)
        self.check_open("pinned")
        fill_buffer(buffer, self, shape, dtype, &self.device.pinned_memory(), made_at)
        buffer_address(buffer)
        return buffer

    cdef Block take_stage(self, size_t nbytes):
        """Pinned memory that a copy of pageable memory goes through."""
        self.staged_copies += 1
        self.staged_bytes += nbytes
        return take_block(self, &self.device.pinned_memory(), nbytes)

    cdef int check_open(self, str what) except -1:
        check_fork()
        if self.device.fault() != 0:
            raise out_of_service(self, what)
        return self.check_not_closed()

    cdef int check_not_closed(self) except -1:
        check_fork()
        if self.device.closed():
            raise _errors.RuntimeClosedError(f"device {self.index} is closed")
        return 0
