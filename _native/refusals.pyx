# SPDX-License-Identifier: Apache-2.0
# How what the library or the runtime refuses becomes an exception.


cdef object acl_error(
    const rt.AclApi *api, const rt.Capabilities *can, int code, str where, object device=None, object stream=None
):
    # The library keeps the message per thread and forgets it when asked, so it is fetched here, on the thread that
    # made the call.
    cdef const char *message = NULL
    if rt.forked():
        return fork_error()
    if can.error_message:
        with nogil:
            message = api.aclGetRecentErrMsg()
    detail = _errors.newest_message(message.decode(errors="replace")) if message is not NULL else ""
    return _errors.error_from_code(code, where, detail, device=device, stream=stream)


cdef object refusal(int status, StreamCore stream, str what):
    """For what the runtime itself has refused, a negative SubmitStatus."""
    if status == rt.kForked:
        return fork_error()
    if status == rt.kOutOfService:
        return out_of_service(stream.core, what, stream.id)
    if status == rt.kAborting:
        return _errors.TaskError(107023, what, device=stream.core.index, stream=stream.id)
    return closed_stream(stream)


cdef object behind(FailureRecord record, str what):
    """For somebody to raise, who is told of the failure by it."""
    record.tell()
    return _errors.DependencyError.behind(record.exception, what, device=record.device.index)


cdef object fork_error():
    return _errors.ForkError(
        "this process was forked after the ACL runtime was started; it cannot use the device. "
        "Start worker processes with the 'spawn' method, or open the device after the fork"
    )


def forked() -> bool:
    """Whether this is a child made by fork after the runtime was started, in which nothing can be used."""
    return rt.forked()


cpdef int check_fork() except -1:
    """Raises ForkError in such a child: its locks may be held for ever, by threads that stayed with the parent."""
    if rt.forked():
        raise fork_error()
    return 0


cdef object out_of_service(DeviceCore device, str what, object stream=None):
    """For somebody to raise, who is told by it of everything that this device has given up."""
    record_of(device, device.device.fault_failure()).tell()
    return lost(device, what, stream)


cdef object lost(DeviceCore device, str what, object stream=None):
    return _errors.DeviceLostError(device.device.fault(), what, device=device.index, stream=stream)


cdef bint was_given_up(StreamCore stream):
    cdef bint given_up
    with nogil:
        given_up = stream.stream.get().given_up()
    return given_up


cdef object ended_with_device(DeviceCore device, str what):
    if device.awaits_reset:
        return out_of_service(device, what)
    return _errors.RuntimeClosedError(f"{what} is closed: its device was closed or reset")


cdef object closed_stream(StreamCore stream):
    what = f"stream {stream.id}"
    why = ""
    if stream.stream.get() is not NULL:
        if stream.core.device.ended():
            if not stream.is_closed:
                return ended_with_device(stream.core, what)
        elif was_given_up(stream):
            why = ": it was given up, as its work can be neither waited for nor stopped; create another one"
    return _errors.RuntimeClosedError(f"{what} is closed{why}")


cdef object made_by(str maker):
    return TypeError(f"this class has no public constructor; use {maker}")
