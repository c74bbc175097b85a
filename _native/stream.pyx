# SPDX-License-Identifier: Apache-2.0
# Submitting: arguments are checked, a ticket is made, the ACL call is issued without the GIL.


@cython.no_gc_clear  # its end needs the device
cdef class StreamCore:
    """What `aioascend.Stream` is made of."""

    cdef shared_ptr[rt.Stream] stream
    cdef DeviceCore core
    cdef Operation latest        # the last one submitted
    cdef list untold             # FailureRecords nobody has been told of
    cdef bint is_closed          # takes no more operations
    cdef object __weakref__

    def __cinit__(self):
        self.untold = []

    @property
    def id(self) -> int:
        """The library's id of the stream (aclrtStreamGetId), -1 where it does not tell. Recycled after close."""
        return self.stream.get().id() if self.stream.get() is not NULL else -1

    @property
    def closed(self) -> bool:
        """Whether it takes no more operations."""
        if self.is_closed or self.stream.get() is NULL:
            return self.is_closed
        return self.core.device.ended() or self.stream.get().closed()  # the latter when it was given up, for one

    @property
    def handle(self) -> int:
        """The `aclrtStream`, for foreign code. Valid until the stream is closed."""
        return <uintptr_t>self.stream.get().handle() if self.stream.get() is not NULL else 0

    @property
    def in_flight(self) -> int:
        """Operations that the device has not finished."""
        return self.stream.get().in_flight() if self.stream.get() is not NULL else 0

    @property
    def queued(self) -> int:
        """Operations that wait on the host because the device's queue is full or memory is still being allocated."""
        cdef size_t count = 0
        check_fork()
        if self.stream.get() is not NULL:
            with nogil:
                count = self.stream.get().queued()
        return count

    # --- blocking; for worker threads ---

    def _create(self, core: DeviceCore, priority: int, flags: int) -> None:
        cdef uint32_t c_priority = priority, c_flags = flags
        cdef int code
        core.check_open("create_stream")
        self.core = core
        with nogil:
            code = core.device.create_stream(c_priority, c_flags, self.stream)
        if code != 0:
            raise core.error(code, "aclrtCreateStreamWithConfig")

    def _wrap(self, core: DeviceCore, handle: int) -> None:
        cdef uintptr_t address = handle
        cdef int code
        core.check_open("wrap_stream")
        if address == 0:
            raise ValueError(
                "0 stands for the default stream of whichever context is current; give its handle "
                "(aclrtCtxGetCurrentDefaultStream)"
            )
        self.core = core
        with nogil:
            code = core.device.wrap_stream(<rt.aclrtStream>address, self.stream)
        if code != 0:
            raise core.error(code, "wrap_stream")

    def _destroy(self) -> None:
        cdef int code
        with nogil:
            code = self.stream.get().destroy()
        if code != 0:
            raise self.core.error(code, "aclrtDestroyStream")

    def _abort(self) -> bool:
        cdef bint stopped
        self.check_usable()
        with nogil:
            stopped = self.stream.get().abort()
        self.is_closed = self.is_closed or not stopped
        return stopped

    # --- life cycle ---

    def _close(self) -> None:
        """From here on submits raise; what was accepted is still resolved."""
        self.is_closed = True
        if self.stream.get() is not NULL and not rt.forked():
            with nogil:
                self.stream.get().close()

    def _report_untold(self) -> None:
        """Failures that no await has raised go to the exception handler of the loop."""
        cdef FailureRecord record
        if rt.forked() or rt.shutting_down():
            return  # the parent tells; a process that ends does not
        for record in list(self.untold):
            record.tell()
            report_to_loop(
                current_bridge(), "an operation that nobody awaited has failed", record.exception, record.submitted_at)

    def _report_open(self) -> None:
        """As `_report_untold`, for a stream with nothing in flight: also what became known only after all was over."""
        cdef shared_ptr[rt.Failure] failure
        cdef FailureRecord record
        if rt.forked():
            return
        self._report_untold()
        while self.stream.get() is not NULL:
            with nogil:
                failure = self.stream.get().open_failure()
            if failure.get() is NULL:
                return
            record = record_of(self.core, failure)
            if record.told:
                return  # the device has forgotten the stream meanwhile
            self.note_failure(record)
            self._report_untold()
            if not record.told:
                return  # the process ends

    def _destroy_when_drained(self) -> None:
        """Leaves giving the stream back to the runtime, as soon as the device is past what was accepted."""
        if self.stream.get() is not NULL:
            with nogil:
                self.stream.get().destroy_when_drained()

    def __dealloc__(self):
        if self.stream.get() is not NULL:
            with nogil:
                self.stream.get().destroy_when_drained()

    cdef int note_failure(self, FailureRecord record) except -1:
        if not record.told and record not in self.untold:
            self.untold.append(record)
            record.streams.append(self)
        return 0

    # --- submitting ---

    def memcpy(self, dst: object, src: object) -> Operation:
        """Copy `src` to `dst` in stream order (aclrtMemcpyAsync).

        One of them, or both, lie on the stream's device; the other is a `PinnedBuffer`, a numpy array or any object
        with a contiguous buffer. The direction follows from that. Pinned memory is copied directly, pageable memory
        is staged through pinned memory: small sources mostly when they are submitted, others by a worker thread later.
        Leave a source alone until the operation is done; a destination is complete when the operation is.

        Raises:
            TypeError: an argument has no buffer.
            ValueError: the sizes in bytes differ, one is not contiguous, `dst` is read-only, both are host memory, one
                lies on another device, or they overlap.
            RuntimeClosedError: the stream is closed.
            AclError: the library refused the copy.
        """
        self.check_usable()
        cdef Side to, source
        cdef object keep_to = side_of(dst, self.core, True, "dst", &to)
        cdef object keep_source = side_of(src, self.core, False, "src", &source)
        if to.nbytes != source.nbytes:
            raise ValueError(
                f"dst has {to.nbytes} bytes and src has {source.nbytes}; they must be equal. "
                "Copy a part with buffer[a:b]"
            )
        if to.where != ON_DEVICE and source.where != ON_DEVICE:
            raise ValueError("dst and src are both host memory; copy them with numpy, or give a DeviceBuffer")
        check_apart(to, source)
        cdef rt.Command command
        cdef Block stage = None
        command.kind = rt.Kind.Memcpy
        command.size = to.nbytes
        set_place(command.dst, to)
        set_place(command.src, source)
        cdef Operation operation = self.new_operation()
        operation.keep = keep_to
        operation.source = keep_source
        if to.where == source.where:
            command.value = rt.ACL_MEMCPY_DEVICE_TO_DEVICE
        elif to.where == ON_DEVICE:
            command.value = rt.ACL_MEMCPY_HOST_TO_DEVICE
            if source.where == PAGEABLE and source.nbytes:
                stage = self.core.take_stage(source.nbytes)
                operation.source = (keep_source, stage)
                command.stage_from = <void *>source.at
                command.src.memory = stage.memory
                command.src.at = 0
                command.may_block = source.nbytes > self.core.device.options().stage_inline_bytes
        else:
            command.value = rt.ACL_MEMCPY_DEVICE_TO_HOST
            if to.where == PAGEABLE and to.nbytes:
                stage = self.core.take_stage(to.nbytes)
                operation.keep = (keep_to, stage)
                operation.ticket.more().copy_to = <void *>to.at
                operation.ticket.more().copy_from = stage.memory
                operation.ticket.more().copy_size = to.nbytes
                command.dst.memory = stage.memory
                command.dst.at = 0
        return self.submit(operation, command)

    def memset(self, dst: object, value: object) -> Operation:
        """Set every byte of `dst` to `value`, 0 to 255, in stream order (aclrtMemsetAsync).

        Raises:
            TypeError: `dst` is no DeviceBuffer, or `value` no integer.
            ValueError: `value` is not a byte, or `dst` lies on another device.
            RuntimeClosedError, AclError: as `memcpy`.
        """
        self.check_usable()
        cdef int overflow
        cdef long byte = PyLong_AsLongAndOverflow(value if type(value) is int else as_integer(value), &overflow)
        if not isinstance(dst, DeviceBuffer):
            raise TypeError(f"memset sets device memory: dst must be a DeviceBuffer, not {type(dst).__name__}")
        if overflow or not 0 <= byte <= 255:
            raise ValueError(f"memset sets bytes: value must be 0 to 255, not {value}")
        cdef Side to
        cdef object keep = side_of(dst, self.core, True, "dst", &to)
        cdef rt.Command command
        command.kind = rt.Kind.Memset
        set_place(command.dst, to)
        command.size = to.nbytes
        command.value = byte
        cdef Operation operation = self.new_operation()
        operation.keep = keep
        return self.submit(operation, command)

    def record(self, event: Event | None = None, *, timing: bool = False) -> Event:
        """Mark this point of the stream (aclrtRecordEvent); returns the event, a new one unless `event` is given.

        Recording an event again moves it: later waits mean the new point, waits submitted before keep the old one.

        Args:
            event: An event of this device to record again.
            timing: Take a time stamp, for `Event.elapsed_since`.
        """
        self.check_usable()
        if event is None:
            event = new_event(self.core, timing)
        elif timing and not event.timing:
            raise ValueError("this event was made without timing; record a new one with timing=True")
        elif event.core is not self.core:
            raise ValueError(f"the event belongs to device {event.core.index}, the stream to device {self.core.index}")
        # A point of its own: what was queued for an old one, even on the host, goes on meaning that.
        cdef EventHandle handle = new_handle(self.core, event.timing)
        cdef rt.Command command
        command.kind = rt.Kind.Record
        command.subject = handle.event
        cdef Operation operation = self.new_operation()
        operation.keep = handle
        self.submit(operation, command)  # may refuse, and then the event is what it was
        # The old ones go when all three are in place: their end gives up the GIL, and others may look at the event.
        _before = (event.handle, event.operation)
        event.handle = handle
        event.operation = operation
        event.stream = self.stream
        return event

    def wait(self, event: Event) -> Operation:
        """What is submitted to this stream from here on waits on the device for `event` (aclrtStreamWaitEvent).

        Raises:
            DependencyError: `event` was recorded behind a failed operation.
            ValueError: the event belongs to another device; await it on the host instead.
        """
        self.check_usable()
        if event.core is not self.core:
            raise ValueError(
                f"the event belongs to device {event.core.index}, the stream to device {self.core.index}; "
                "await the event on the host instead"
            )
        # All three at once: another thread may record it again while we are without the GIL.
        cdef Operation recorded = event.operation
        cdef EventHandle handle = event.handle
        cdef shared_ptr[rt.Stream] source = event.stream
        cdef shared_ptr[rt.Failure] failure
        if not recorded.in_flight:
            failure = recorded.ticket.failure()  # of a record that was not even issued
        if failure.get() is NULL:
            with nogil:
                failure = source.get().failure_of(recorded.ticket.seq)
        if failure.get() is not NULL:
            raise behind(record_of(self.core, failure), f"wait for {event!r}")
        cdef rt.Command command
        command.kind = rt.Kind.Wait
        command.subject = handle.event
        cdef Operation operation = self.new_operation()
        operation.keep = handle
        if source.get() is not self.stream.get():
            operation.ticket.more().source = source
            operation.ticket.more().source_seq = recorded.ticket.seq
        return self.submit(operation, command)

    def _follow(self, source: StreamCore) -> tuple:
        """What is submitted from here on waits on the device for all of `source` so far. The record and the wait."""
        cdef Event event = source.record()
        try:
            return event.operation, self.wait(event)
        except BaseException:
            event.operation.cancel()  # nobody goes by it
            raise

    cdef Operation submit_join(self, Operation operation):
        """Makes the operation done when everything submitted before is, closed stream or not."""
        cdef rt.Command command
        command.kind = rt.Kind.Join
        operation.ticket.bridge = operation.bridge.bridge if operation.bridge is not None else NULL
        try:
            self.submit(operation, command)
        except _errors.RuntimeClosedError:  # destroyed: there is nothing left to wait for
            operation.finish(None)
        return operation

    cdef int check_usable(self) except -1:
        check_fork()
        if self.is_closed or self.stream.get() is NULL or self.core.device.ended():
            raise closed_stream(self)
        return 0

    cdef Operation new_operation(self):
        cdef Operation operation = Operation.__new__(Operation)
        operation.stream = self
        operation.bridge = current_bridge()
        if operation.bridge is not None:
            operation.ticket.bridge = operation.bridge.bridge
        return operation

    cdef Operation submit(self, Operation operation, const rt.Command &command):
        global _tickets_live, _tickets_total
        cdef int status
        cdef FailureRecord record
        Py_INCREF(operation)  # handed to the runtime; complete_all takes it back
        operation.in_flight = True  # from here on another thread may already resolve it
        _tickets_live += 1
        _tickets_total += 1
        if _debugging:
            take_note(operation)
        cdef Operation before = None
        if operation.bridge is not None:
            before, operation.bridge.to_be_asked = operation.bridge.to_be_asked, None
        if before is not None and before.in_flight:  # it may have finished in this very drain
            with nogil:
                status = rt.arm_and_submit(
                    deref(before.stream.stream), before.ticket, deref(self.stream), operation.ticket, command)
        else:
            with nogil:
                status = self.stream.get().submit(operation.ticket, command)
        if status == rt.kSubmitted:
            if self.latest is None or operation.ticket.seq > self.latest.ticket.seq:  # threads may come in any order
                self.latest = operation
            if operation.bridge is None:
                collect_orphans()
            return operation
        _tickets_live -= 1
        _tickets_total -= 1
        Py_DECREF(operation)
        operation.in_flight = False
        operation.keep = operation.source = None
        if status == rt.kPoisoned:
            record = record_of(self.core, operation.ticket.failure())
            self.note_failure(record)
            operation.finish(record.failed(operation))
            drop_note(operation)
            return operation
        drop_note(operation)
        if status == rt.kBehind:
            raise behind(record_of(self.core, operation.ticket.failure()), kind_name(command.kind))
        if status < 0:
            raise refusal(status, self, kind_name(command.kind))
        raise self.core.error(status, kind_name(command.kind), self.id)

    # --- waiting ---

    def query(self) -> bool:
        """Whether everything submitted so far is done (aclrtStreamQuery). Does not block; tells nothing of failures.

        Raises:
            AclError: the stream or its device has failed for good.
        """
        cdef cbool complete = False
        cdef int code
        self.check_usable()
        if self.queued:
            return False
        with nogil:
            code = self.stream.get().query(complete)
        if code != 0:
            raise self.core.error(code, "aclrtStreamQuery", self.id)
        return complete

    def join(self) -> Operation:
        """An operation that is done when everything submitted so far is. `await stream` awaits it.

        It raises when what was submitted last has failed or ran behind a failure.
        """
        if self.latest is None:
            return new_finished()
        return new_follower(self.latest)

    def _drained(self) -> Operation:
        """As `join`, but failures are left to those who await the operations."""
        cdef bint gone = self.latest is None
        if not gone:
            with nogil:  # with its device, perhaps under a call of the library that never returns
                gone = self.stream.get().destroyed()
        return new_finished() if gone else new_follower(self.latest, quiet=True)

    def __await__(self):
        return self.join().__await__()
