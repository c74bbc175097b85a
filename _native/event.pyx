# SPDX-License-Identifier: Apache-2.0


@cython.final
@cython.no_gc_clear  # its end needs the device
cdef class EventHandle:
    """One ACL event, recorded once."""

    cdef rt.aclrtEvent event
    cdef DeviceCore core

    def __dealloc__(self):
        global _events_live
        if self.event is not NULL:
            _events_live -= 1
            with nogil:
                self.core.device.destroy_event(self.event)


@cython.final
cdef class Event:
    """A point in a stream: everything submitted before it was recorded. Made by `Stream.record`.

    `await event` waits for that point, any number of times, from any coroutine and any loop; cancelling one wait leaves
    the others alone. `Stream.wait(event)` holds up another stream instead of the host.

    Raises when awaited: as `Operation`; a failure in front of the event is a DependencyError.
    """

    cdef EventHandle handle
    cdef Operation operation  # its latest record,
    cdef shared_ptr[rt.Stream] stream  # in this stream
    cdef DeviceCore core
    cdef readonly bint timing
    cdef object __weakref__

    def __init__(self) -> None:
        raise made_by("Stream.record")

    def __await__(self):
        return new_follower(self.operation).__await__()

    def done(self) -> bool:
        """Whether the device is past it. Asks the device (aclrtQueryEventStatus); does not block."""
        if self.operation.state == FINISHED:
            return True
        cdef bint complete
        check_fork()
        cdef EventHandle handle = self.handle  # another thread may record it again meanwhile
        if self.operation.ticket.seq > self.stream.get().issued_seq():
            return False  # its record still waits on the host
        with nogil:
            complete = self.core.device.event_complete(handle.event)
        return complete

    def elapsed_since(self, start: Event) -> float:
        """Milliseconds of device time from `start` to this event (aclrtEventElapsedTime).

        Both must have been recorded with `timing=True` and be done.

        Raises:
            RuntimeClosedError: the device is closed.
            ValueError: one of them was recorded without `timing=True`, or on another device.
            ArgumentError: one is not done yet, or `start` is the later one.
        """
        cdef float milliseconds = 0
        cdef int code
        self.core.check_not_closed()
        if not self.timing or not start.timing:
            raise ValueError("elapsed time needs two events recorded with timing=True")
        if start.core is not self.core:
            raise ValueError(
                f"the events belong to devices {start.core.index} and {self.core.index}, whose clocks are not the same")
        for event in (start, self):
            if (<Event>event).operation.ticket.seq > (<Event>event).stream.get().issued_seq():
                raise _errors.error_from_code(107006, "aclrtEventElapsedTime", "The event has not been reached yet.")
        cdef EventHandle first = start.handle, last = self.handle
        with nogil:
            code = self.core.device.api().aclrtEventElapsedTime(&milliseconds, first.event, last.event)
        if code != 0:
            raise self.core.error(code, "aclrtEventElapsedTime")
        return milliseconds

    def __repr__(self) -> str:
        return f"<Event of {operation_name(self.operation)}>"


cdef Event new_event(DeviceCore core, bint timing):
    cdef Event event = Event.__new__(Event)
    event.core = core
    event.timing = timing
    return event


cdef EventHandle new_handle(DeviceCore core, bint timing):
    cdef EventHandle handle = EventHandle.__new__(EventHandle)
    global _events_live
    cdef int code
    handle.core = core
    with nogil:
        code = core.device.create_event(timing, handle.event)
    if code != 0:
        raise core.error(code, "aclrtCreateEventExWithFlag")
    _events_live += 1
    return handle
