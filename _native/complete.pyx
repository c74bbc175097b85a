# SPDX-License-Identifier: Apache-2.0
# The only place where an operation gets its result: from its ticket, once.

cdef PyCFunction _task_wakeup = NULL


class _NoLoop:
    """What a future needs to know of its loop in order to be made."""

    def get_debug(self) -> bool:
        return False


cdef object _succeeded = asyncio.Future(loop=_NoLoop())
_succeeded.set_result(None)


cdef bint is_wakeup_of_task(object callback):
    """Whether it is how a Task of asyncio asks to be woken up: such a task is stepped at once.

    That is as good as through call_soon, and saves the handle: the loop itself runs us, and no task is running.
    """
    global _task_wakeup
    if not PyCFunction_Check(callback):
        return False
    if PyCFunction_GetFunction(callback) == _task_wakeup:
        return True
    if callback.__name__ != "task_wakeup" or not isinstance(callback.__self__, asyncio.Task):
        return False
    _task_wakeup = PyCFunction_GetFunction(callback)
    return True


cdef int call_in_context(object context, object callback, object argument) except -1:
    PyContext_Enter(context)
    try:
        callback(argument)
    finally:
        PyContext_Exit(context)
    return 0


cdef complete_all(rt.Ticket *ticket, bint step_tasks):
    """step_tasks: the loop runs this as a callback of its own."""
    cdef rt.Ticket *following
    cdef object leaving = None
    while ticket is not NULL:
        following = ticket.next
        operation = <Operation>ticket.owner
        try:
            complete(operation, step_tasks)
        except (KeyboardInterrupt, SystemExit) as error:  # of a task: the loop stops, once nothing is left here
            leaving = error
            step_tasks = False
        except BaseException as error:
            report_to_loop(operation.bridge, "an operation could not be resolved", error)
        Py_DECREF(operation)  # the reference that the submit handed over
        ticket = following
    if leaving is not None:
        raise leaving


cdef int complete(Operation operation, bint step_tasks) except -1:
    global _tickets_live, _tickets_late
    cdef rt.Ticket *ticket = &operation.ticket
    _tickets_live -= 1
    cdef object failed
    if ticket.extra.get() is not NULL:
        with nogil:
            rt.finish_copy(deref(ticket))
        if ticket.outcome == rt.Outcome.Ok:
            drop_note(operation)
    if ticket.unreliable:
        quarantine(operation.stream.core, operation.keep)
        quarantine(operation.stream.core, operation.source)
    operation.in_flight = False
    operation.keep = operation.source = None
    if operation.state != PENDING:
        _tickets_late += 1
    if ticket.outcome == rt.Outcome.Ok:
        return operation.finish(None, step_tasks)
    cdef FailureRecord record = record_of(operation.stream.core, ticket.failure())
    operation.stream.note_failure(record)
    failed = record.failed(operation)
    drop_note(operation)
    return operation.finish(failed, step_tasks)


cdef int quarantine(DeviceCore device, object keep) except -1:
    """The device may still use this; nobody can tell. Its memory is not reused before the device is reset."""
    if keep is None:
        return 0
    for item in keep if isinstance(keep, tuple) else (keep,):
        if isinstance(item, Block):
            (<Block>item).unreliable = True
        elif isinstance(item, Run):
            for buffer in (<Run>item).buffers[0] + (<Run>item).buffers[1]:
                if buffer is not None and (<Buffer>buffer).block is not None:
                    (<Buffer>buffer).block.unreliable = True
    if not device.device.ended():
        device.kept.append(keep)
    return 0


cdef object _records = weakref.WeakValueDictionary()  # Failure.id -> FailureRecord


@cython.final
cdef class FailureRecord:
    """One failure of the device as Python sees it: its exception, and whether anybody has been told."""

    cdef shared_ptr[rt.Failure] failure
    cdef DeviceCore device
    cdef list streams            # that keep it because nobody has been told
    cdef readonly object exception
    cdef readonly object submitted_at  # in debug mode: the stack; None where it is not known
    cdef readonly bint told
    cdef object __weakref__

    cdef Failed failed(self, Operation operation):
        """As the operation sees it."""
        cdef Failed failed = Failed.__new__(Failed)
        failed.error = self.error_of(operation)
        failed.record = self
        return failed

    cdef object error_of(self, Operation operation):
        error = self.new_error(operation)
        if error is not self.exception:
            _debug.annotate(error, submitted_at(operation))
        return error

    cdef object new_error(self, Operation operation):
        cdef rt.Ticket *ticket = &operation.ticket
        name = operation_name(operation)
        device = self.device.index
        if ticket.outcome == rt.Outcome.Dependent:
            return _errors.DependencyError.behind(self.exception, name, device=device, stream=operation.stream.id)
        if ticket.outcome == rt.Outcome.Lost:
            return _errors.ReportLostError(self.failure.get().code, name, device=device, stream=operation.stream.id)
        if self.failure.get().of_device:
            return lost(self.device, name, operation.stream.id)
        if self.failure.get().seq == ticket.seq:
            return self.exception
        return _errors.error_from_code(self.failure.get().code, name, device=device, stream=operation.stream.id)

    cdef int tell(self) except -1:
        if not self.told:
            with nogil:  # first: another thread that finds it told may submit at once
                self.device.device.told(self.failure)
            self.told = True
            streams, self.streams = self.streams, []
            for stream in streams:
                (<StreamCore>stream).untold.remove(self)
        return 0


cdef FailureRecord record_of(DeviceCore device, const shared_ptr[rt.Failure] &failure):
    cdef FailureRecord record = _records.get(failure.get().id)
    cdef rt.Failure *facts = failure.get()
    if record is not None:
        return record
    record = FailureRecord.__new__(FailureRecord)
    record.failure = failure
    record.device = device
    record.streams = []
    record.told = facts.told
    if facts.of_device:
        record.exception = lost(device, "everything in flight")
    elif facts.code == 0:
        record.exception = _errors.ReportLostError(0, "an operation", device=facts.device, stream=facts.stream_id)
    else:
        what = f"{kind_name(facts.kind)} #{facts.seq} of stream {facts.stream_id}"
        if facts.seq == 0:
            what = f"one of the operations in flight on stream {facts.stream_id}"
        detail = "" if facts.issued else "It was not started."
        record.exception = _errors.error_from_code(
            facts.code, what, detail, device=facts.device, stream=facts.stream_id)
    record.submitted_at = failed_at(facts)
    _debug.annotate(record.exception, record.submitted_at)
    _records[facts.id] = record
    return record


cdef report_to_loop(LoopBridge bridge, str message, object error, object stack=None):
    """An error that no await will raise. stack: where it comes from, if that is known."""
    loop = None if bridge is None else bridge.loop()
    if loop is not None and not loop.is_closed():
        context = {"message": message, "exception": error}
        if stack is not None:
            context["source_traceback"] = stack
        loop.call_exception_handler(context)
    else:
        write_unraisable(message, error)


cdef write_unraisable(str message, object error):
    """For sys.unraisablehook, which takes only what the interpreter itself makes."""
    kind, traceback = type(error), error.__traceback__
    Py_INCREF(kind)  # PyErr_Restore takes references over
    Py_INCREF(error)
    if traceback is None:
        PyErr_Restore(<PyObject *>kind, <PyObject *>error, NULL)
    else:
        Py_INCREF(traceback)
        PyErr_Restore(<PyObject *>kind, <PyObject *>error, <PyObject *>traceback)
    PyErr_WriteUnraisable(message)
