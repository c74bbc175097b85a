# SPDX-License-Identifier: Apache-2.0
# The only place where an operation gets its result: from its ticket, once.

cdef complete_all(rt.Ticket *ticket):
    cdef rt.Ticket *following
    while ticket is not NULL:
        following = ticket.next
        operation = <Operation>ticket.owner
        try:
            complete(operation)
        except BaseException as error:
            report_to_loop(operation.bridge, "an operation could not be resolved", error)
        Py_DECREF(operation)  # the reference that the submit handed over
        ticket = following


cdef int complete(Operation operation) except -1:
    global _tickets_live, _tickets_late
    cdef rt.Ticket *ticket = &operation.ticket
    _tickets_live -= 1
    if ticket.extra.get() is not NULL:
        with nogil:
            rt.finish_copy(deref(ticket))
    if ticket.unreliable:
        operation.stream.quarantine(operation.keep)
    operation.in_flight = False
    operation.keep = None
    if operation.state != PENDING:
        _tickets_late += 1
    if ticket.outcome == rt.Outcome.Ok:
        return operation.finish(None, None)
    cdef FailureRecord record = record_of(operation.stream, ticket.failure)
    operation.stream.note_failure(record)
    return operation.finish(record.error_of(operation), record)


cdef object _records = weakref.WeakValueDictionary()  # Failure.id -> FailureRecord


@cython.final
cdef class FailureRecord:
    """One failure of the device as Python sees it: its exception, and whether anybody has been told."""

    cdef shared_ptr[rt.Failure] failure
    cdef DeviceCore device
    cdef list streams            # that keep it because nobody has been told
    cdef readonly object exception
    cdef readonly bint told
    cdef object __weakref__

    cdef object error_of(self, Operation operation):
        cdef rt.Ticket *ticket = &operation.ticket
        name = operation_name(operation)
        device = self.device.index
        if ticket.outcome == rt.Outcome.Dependent:
            return _errors.DependencyError.behind(self.exception, name, device=device, stream=operation.stream.id)
        if ticket.outcome == rt.Outcome.Lost:
            return _errors.ReportLostError(self.failure.get().code, name, device=device, stream=operation.stream.id)
        if self.failure.get().seq == ticket.seq:
            return self.exception
        return _errors.error_from_code(self.failure.get().code, name, device=device, stream=operation.stream.id)

    cdef int tell(self) except -1:
        if not self.told:
            self.told = True
            streams, self.streams = self.streams, []
            for stream in streams:
                (<StreamCore>stream).untold.remove(self)
            with nogil:
                self.device.device.told(self.failure)
        return 0


cdef FailureRecord record_of(StreamCore stream, const shared_ptr[rt.Failure] &failure):
    cdef FailureRecord record = _records.get(failure.get().id)
    cdef rt.Failure *facts = failure.get()
    if record is not None:
        return record
    record = FailureRecord.__new__(FailureRecord)
    record.failure = failure
    record.device = stream.core
    record.streams = []
    record.told = facts.told
    if facts.code == 0:
        record.exception = _errors.ReportLostError(0, "an operation", device=facts.device, stream=facts.stream_id)
    else:
        what = f"{kind_name(facts.kind)} #{facts.seq} of stream {facts.stream_id}"
        if facts.seq == 0:
            what = f"one of the operations in flight on stream {facts.stream_id}"
        detail = "" if facts.issued else "It was not started."
        record.exception = _errors.error_from_code(
            facts.code, what, detail, device=facts.device, stream=facts.stream_id)
    _records[facts.id] = record
    return record


cdef report_to_loop(LoopBridge bridge, str message, object error):
    """An error that no await will raise."""
    loop = None if bridge is None else bridge.loop()
    if loop is not None and not loop.is_closed():
        loop.call_exception_handler({"message": message, "exception": error})
    else:
        sys.unraisablehook(Unraisable(type(error), error, error.__traceback__, message, None))


@cython.final
cdef class Unraisable:
    """What sys.unraisablehook takes."""

    cdef readonly object exc_type, exc_value, exc_traceback, err_msg, object

    def __cinit__(self, exc_type, exc_value, exc_traceback, err_msg, obj):
        self.exc_type = exc_type
        self.exc_value = exc_value
        self.exc_traceback = exc_traceback
        self.err_msg = err_msg
        self.object = obj
