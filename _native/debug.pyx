# SPDX-License-Identifier: Apache-2.0
# What debug mode needs of the runtime. Without it this costs a look at one flag for each submit.

cdef bint _debugging = _debug.settings.enabled
cdef dict _notes = {}  # address of an Operation in flight -> (the Operation, where it was submitted)
cdef dict _failed_at = {}  # Failure.id -> where the operation was submitted; of the newest
cdef size_t FAILURES_REMEMBERED = 256

cdef long long _events_live = 0
cdef long long _models_live = 0
cdef long long _bridges_live = 0
cdef long long _device_blocks_live = 0
cdef long long _pinned_blocks_live = 0


def set_debugging(on: bool) -> None:
    """For what is submitted, opened and loaded from here on. The environment has said so at import already."""
    global _debugging
    _debugging = on


def live_counts() -> dict:
    """What is alive in this process, by name; see `aioascend.debug.Counters`."""
    cdef rt.OpenDevices open
    with nogil:
        open = rt.count_open_devices()
    return {
        "tickets": _tickets_live, "events": _events_live, "streams": open.streams, "models": _models_live,
        "device_blocks": _device_blocks_live, "pinned_blocks": _pinned_blocks_live, "devices": open.devices,
        "bridges": _bridges_live, "fds": rt.live_descriptors, "threads": rt.live_threads,
    }


def going_away() -> bool:
    """Whether nothing can be given back any more: the process ends, or is the child of one that used the runtime."""
    return rt.shutting_down() or rt.forked()


# --- where operations were submitted ---

cdef int take_note(Operation operation) except -1:
    operation.ticket.more().noted = True
    _notes[<uintptr_t><void *>operation] = (operation, _debug.here())
    return 0


cdef int drop_note(Operation operation) except -1:
    if operation.ticket.extra.get() is not NULL and operation.ticket.extra.get().noted:
        _notes.pop(<uintptr_t><void *>operation, None)
    return 0


cdef object submitted_at(Operation operation):
    """Where it was; None outside of debug mode, and once its ticket has come back."""
    noted = _notes.get(<uintptr_t><void *>operation)
    return None if noted is None else noted[1]


cdef object failed_at(const rt.Failure *failure):
    """Where the operation that failed was submitted, if that is known."""
    stack = _failed_at.get(failure.id)
    if stack is not None or failure.owner is NULL:
        return stack
    noted = _notes.get(<uintptr_t>failure.owner)
    if noted is None or (<Operation>noted[0]).ticket.seq != failure.seq:
        return None  # it is long over, and another one lies where it lay
    if len(_failed_at) >= FAILURES_REMEMBERED:
        del _failed_at[next(iter(_failed_at))]
    _failed_at[failure.id] = noted[1]
    return noted[1]


# --- calls that block a loop ---

cdef void note_blocking_call(const char *function) noexcept nogil:
    if PyGILState_GetThisThreadState() is not NULL:  # else no loop can run here, and the GIL is not for this thread
        with gil:
            report_blocking_call(function)


cdef void report_blocking_call(const char *function) noexcept:
    try:
        if _running_loop() is None and not under_trio():
            return
        name = function.decode()
        stack = _debug.stack_here()
        if _debug.reported.new(stack, name):
            _debug.logger.warning(
                "%s is called on the thread of an event loop, which stands still meanwhile\n%s",
                name, _debug.shown(stack))
    except BaseException as error:
        write_unraisable("a report of debug mode is lost", error)


# --- how far streams are ---

cdef dict _held = {
    <int>rt.Held.Nothing: "", <int>rt.Held.Full: "full", <int>rt.Held.Launch: "launch", <int>rt.Held.Record: "record",
    <int>rt.Held.Model: "model", <int>rt.Held.Memory: "memory", <int>rt.Held.Worker: "worker",
}


cdef object task_name(Operation operation):
    name = f"{kind_name(operation.ticket.kind)} #{operation.ticket.seq}"
    keep = operation.keep
    return f"{name} ({(<Run>keep).model._label})" if isinstance(keep, Run) else name


cdef object stream_states(DeviceCore core):
    """For aioascend._debug.stalls: the streams of a device as they are now; None when it is closed."""
    cdef vector[rt.StreamSnapshot] found
    cdef rt.StreamSnapshot *snapshot
    cdef rt.SnapshotWait *wait
    cdef Operation operation
    cdef size_t index, other
    if going_away() or core.device.ended():
        return None
    with nogil:
        found = rt.snapshots(deref(core.device))
    operations = {}  # by key of the stream and position
    for operation, stack in list(_notes.values()):
        if operation.stream is not None and operation.stream.core is core and operation.ticket.seq:
            key = <uintptr_t>operation.stream.stream.get()
            operations.setdefault(key, {})[operation.ticket.seq] = (operation, stack)
    states = []
    for index in range(found.size()):
        snapshot = &found[index]
        mine = operations.get(snapshot.key, {})
        waits = []
        for other in range(snapshot.waits.size()):
            wait = &snapshot.waits[other]
            over = wait.seq > snapshot.issued_seq or event_is_over(mine.get(wait.seq))
            waits.append(_debug.Wait(wait.seq, wait.source, wait.source_seq, over))
        tasks = {seq: _debug.Task(task_name(operation), stack) for seq, (operation, stack) in mine.items()}
        states.append(_debug.StreamState(
            key=snapshot.key, id=snapshot.id, foreign=snapshot.foreign, retired=snapshot.retired_seq,
            issued=snapshot.issued_seq, wanted=snapshot.wanted_seq, idle=snapshot.idle,
            held=_held[<int>snapshot.held], held_for=(snapshot.held_source, snapshot.held_source_seq),
            waits=tuple(waits), tasks=tasks))
    return states


cdef bint event_is_over(object noted) except -1:
    """Whether the device is past the event that this operation waits for."""
    if noted is None:
        return False
    cdef object keep = (<Operation>noted[0]).keep
    cdef bint complete
    if not isinstance(keep, EventHandle):
        return True  # the wait itself is over
    cdef EventHandle handle = keep
    with nogil:
        complete = handle.core.device.event_complete(handle.event)
    return complete
