# SPDX-License-Identifier: Apache-2.0
# The awaitable that every submit returns.

cdef enum State:
    PENDING, FINISHED, CANCELLED

cdef object _InvalidStateError = asyncio.InvalidStateError
cdef object _CancelledError = asyncio.CancelledError


@cython.final
@cython.freelist(64)
cdef class Operation:
    """Work on the device, submitted when this object was made. Awaiting it waits; it starts nothing.

    It speaks the protocol of `asyncio.Future` (`asyncio.isfuture` is true), so `gather`, `wait`, `wait_for`, `shield`
    and `as_completed` take it as it is, without a task around it. `TaskGroup.create_task` takes coroutines only: await
    the operation in one. Under trio it is awaited directly. It can be awaited any number of times, done or not.

    Guaranteed: what the device touches stays alive until the device is past it, whatever becomes of this object.
    A report from the device is asked for when somebody waits (`await`, `add_done_callback`), not before. An operation
    that nobody waits for costs none; its failure surfaces at the next awaited operation of its stream, or through the
    exception handler of the loop when the stream is closed.

    Not guaranteed: that cancelling stops anything. Device work cannot be called back: `cancel` abandons the wait, the
    buffers are kept until the device is done. A cancelled copy into pinned memory may still arrive there.

    Raises when awaited (the classes are in `aioascend.errors`):
        AclError: the operation failed; the class tells the family, `code` the ACL code.
        DependencyError: it was queued behind one that failed; `__cause__` is that failure.
        ReportLostError: the device went past it, or stopped, without a report.
        asyncio.CancelledError: it was cancelled.
    """

    # Small, for a hundred thousand may be in flight.
    cdef rt.Ticket ticket
    cdef StreamCore stream       # None once it has succeeded
    cdef LoopBridge bridge       # where it is resolved; None as long as no loop has to do with it
    cdef object keep, source     # what the device touches
    cdef object linked           # a follower: the Operation it follows; others: None or the list of their followers
    cdef object detail           # FINISHED: None or how it Failed; CANCELLED: the message
    cdef object callback         # the first that is to be told, and
    cdef object context          # the context to call it in; None: a waiter, called at once on the thread that resolves
    cdef list more_callbacks     # further (callback, context)
    cdef State state
    cdef bint in_flight          # its ticket has not come back, whether or not it was cancelled
    cdef bint asked              # a report is on its way, and the loop that resolves it is known
    cdef bint quiet              # follows without taking over the failure
    cdef public bint _asyncio_future_blocking
    cdef object __weakref__

    # What an operation refers to while it is pending can be no garbage, as the runtime or another operation refers to
    # it; later only a failed or a cancelled one refers to what might refer to it. The collector need not know others.

    def __cinit__(self):
        self.ticket.owner = <void *>self
        PyObject_GC_UnTrack(self)

    cdef void track(self):
        if not PyObject_GC_IsTracked(self):
            PyObject_GC_Track(self)

    def __init__(self) -> None:
        raise made_by("the methods of a Stream")

    # --- the Future protocol ---

    def done(self) -> bool:
        """Whether it is resolved or cancelled."""
        return self.state != PENDING

    def cancelled(self) -> bool:
        """Whether it was cancelled before it was resolved."""
        return self.state == CANCELLED

    def result(self):
        """The result; raises what the await would.

        Raises:
            asyncio.InvalidStateError: it is not done.
        """
        if self.state != FINISHED:
            raise self.no_result()
        if self.detail is not None:
            # Without the frames of everybody who got it before, which would live on with it.
            raise (<Failed>self.detail).tell().with_traceback(None)
        return None

    def exception(self):
        """The exception, None when it succeeded."""
        if self.state != FINISHED:
            raise self.no_result()
        return None if self.detail is None else (<Failed>self.detail).tell()

    cdef object no_result(self):
        if self.state == CANCELLED:
            return self._make_cancelled_error()
        return _InvalidStateError("the operation is not done")

    def _make_cancelled_error(self):
        """Part of the Future protocol that asyncio.gather relies on."""
        return _CancelledError() if self.detail is None else _CancelledError(self.detail)

    @property
    def _cancel_message(self):
        """Part of the Future protocol that asyncio.gather relies on, too, to collect what was cancelled."""
        return self.detail if self.state == CANCELLED else None

    def get_loop(self):
        """The event loop that resolves it: the one that ran when it was submitted, else when it was first awaited.

        Raises:
            RuntimeError: it has no asyncio loop.
        """
        self.bind()
        loop = None if self.bridge is None else self.bridge.loop()
        if loop is None:
            raise RuntimeError("this operation belongs to no running asyncio event loop")
        return loop

    def add_done_callback(self, callback: object, *, context: object = None) -> None:
        """Call `callback(operation)` through the event loop once it is done."""
        if context is None:
            context = copy_context()
        self.bind()
        if self.bridge is None or self.bridge.token is not None:
            raise RuntimeError("a done-callback needs a running asyncio event loop; under trio await the operation")
        if self.state != PENDING:
            self.bridge.call_soon(callback, self, context)
            return
        self.add_callback(callback, context)
        self.ask_for_report()

    def remove_done_callback(self, callback: object) -> int:
        """Remove all instances of `callback`; returns how many there were."""
        return self.remove_callbacks(callback)

    def cancel(self, msg: object = None) -> bool:
        """Abandon it: whoever awaits it gets CancelledError at once. False when it is done already.

        The device goes on. Buffers are kept, and the stream stays in order, until the device is past it.
        """
        if self.state != PENDING:
            return False
        self.detail = msg
        self.track()
        self.state = CANCELLED
        self.ticket.abandoned = True
        if isinstance(self.linked, Operation):
            followed, self.linked = <Operation>self.linked, None
            if followed.linked is not None:
                (<list>followed.linked).remove(self)
        self.wake(False)
        return True

    def _past(self) -> Operation:
        """An operation that is done when the device is past this one, even if this one was cancelled."""
        return new_follower(self, quiet=True)

    # --- who is to be told ---

    cdef int add_callback(self, object callback, object context) except -1:
        if self.callback is None:
            self.callback = callback
            self.context = context
        else:
            if self.more_callbacks is None:
                self.more_callbacks = []
            self.more_callbacks.append((callback, context))
        return 0

    cdef int remove_callbacks(self, object callback) except -1:
        cdef list entries = self.take_callbacks()
        cdef int removed = 0
        for entry in entries:
            if entry[0] == callback:
                removed += 1
            else:
                self.add_callback(entry[0], entry[1])
        return removed

    cdef list take_callbacks(self):
        if self.callback is None:
            return []
        cdef list entries = [(self.callback, self.context)]
        if self.more_callbacks is not None:
            entries.extend(self.more_callbacks)
        self.callback = self.context = self.more_callbacks = None
        return entries

    cdef int wake(self, bint step_tasks) except -1:
        """step_tasks: the loop runs this as a callback of its own, so that no task is running."""
        if self.callback is None:
            return 0
        if step_tasks and self.context is not None and self.more_callbacks is None and is_wakeup_of_task(self.callback):
            callback, self.callback = self.callback, None
            context, self.context = self.context, None
            # The shared future saves the task from asking us for the result, of which there is none.
            call_in_context(context, callback, _succeeded if self.detail is None else self)
            return 0
        for callback, context in self.take_callbacks():
            if context is None:
                callback(self)
            else:
                self.bridge.call_soon(callback, self, context)
        return 0

    # --- awaiting ---

    def __await__(self):
        if self.state == PENDING and awaited_by_trio():
            from aioascend import _trio
            return _trio.wait(self).__await__()
        cdef Await waiting = Await.__new__(Await)
        waiting.operation = self
        return waiting

    __iter__ = __await__

    cdef bint suspend(self) except -1:
        """Sees to it that whoever awaits will be woken. False when there is nothing to wait for any more."""
        self.bind()
        if self.state != PENDING:
            return False
        self.check_loop()
        self.ask_for_report()
        self._asyncio_future_blocking = True
        return True

    def add_waiter(self, waiter: object) -> bool:
        """Call `waiter(operation)` when it gets done, on the thread that resolves it. False when it is done already."""
        self.bind()
        if self.state != PENDING:
            return False
        self.check_loop()
        self.add_callback(waiter, None)
        self.ask_for_report()
        return True

    def remove_waiter(self, waiter: object) -> None:
        self.remove_callbacks(waiter)

    cdef int bind(self) except -1:
        """Gives an operation without a loop, or whose loop is gone, the loop that runs here."""
        if self.state == PENDING:
            check_fork()
        cdef LoopBridge bridge = current_bridge()
        if bridge is self.bridge or bridge is None or (self.bridge is not None and not self.bridge.gone()):
            return 0
        cdef bint moved = True
        cdef shared_ptr[rt.Stream] stream
        if self.in_flight:
            stream = self.stream.stream  # without a loop it may finish on any thread meanwhile
            with nogil:
                moved = stream.get().rebind(self.ticket, deref(bridge.bridge))
        self.bridge = bridge
        self.asked = False
        if isinstance(self.linked, Operation):
            (<Operation>self.linked).bind()
        if not moved:
            forget_closed_loops()  # it has finished already, where nobody looks any more
        return 0

    cdef int check_loop(self) except -1:
        """Only the loop that resolves it can await it; another one would never be woken."""
        if self.bridge is None or self.bridge is not current_bridge():
            raise RuntimeError(
                f"{self!r} belongs to another event loop, or none runs here; await an Event or the stream instead, "
                "which any loop can"
            )
        return 0

    cdef int ask_for_report(self) except -1:
        if self.asked:
            return 0
        if isinstance(self.linked, Operation):
            return (<Operation>self.linked).ask_for_report()
        if not self.in_flight:
            return 0
        self.asked = self.bridge is not None
        if in_drain() and self.bridge is current_bridge():
            return self.bridge.ask_later(self)
        return self.arm()

    cdef int arm(self) except -1:
        cdef int status
        with nogil:  # its loop runs here, so it stays in flight meanwhile
            status = self.stream.stream.get().arm(self.ticket)
        if status != 0:
            self.asked = False
            raise refusal(status, self.stream, "the wait")
        return 0

    # --- resolving ---

    cdef int finish(self, Failed failed, bint step_tasks=False) except -1:
        """Resolves it and its followers."""
        linked, self.linked = self.linked, None
        if not isinstance(linked, list):
            return self.resolve(failed, step_tasks)
        leaving = None
        for operation in [self, *linked]:
            try:
                (<Operation>operation).resolve(failed, step_tasks)
            except (KeyboardInterrupt, SystemExit) as error:  # of a task; the others must not miss theirs
                leaving = error
                step_tasks = False
        if leaving is not None:
            raise leaving
        return 0

    cdef int resolve(self, Failed failed, bint step_tasks) except -1:
        self.linked = None
        if self.state != PENDING:
            return 0  # cancelled
        if failed is None or self.quiet:
            self.stream = None
        else:
            self.detail = failed
            self.track()
        self.state = FINISHED
        return self.wake(step_tasks)

    def __repr__(self) -> str:
        state = "pending"
        if self.state == CANCELLED:
            state = "cancelled"
        elif self.state == FINISHED:
            state = "done" if self.detail is None else f"failed: {(<Failed>self.detail).error}"
        return f"<Operation {operation_name(self)} {state}>"


@cython.final
@cython.freelist(64)
cdef class Await:
    """One await of an operation."""

    cdef Operation operation
    cdef bint suspended

    def __iter__(self):
        return self

    def __next__(self):
        cdef Operation operation = self.operation
        if operation.state == PENDING:
            if self.suspended:
                raise RuntimeError(
                    "an operation was resumed before it was done; await it inside an asyncio or trio task")
            self.suspended = True
            if operation.suspend():
                return operation
        if operation.state != FINISHED or operation.detail is not None:
            operation.result()
        raise StopIteration


@cython.final
cdef class Failed:
    """How an operation failed."""

    cdef object error
    cdef FailureRecord record

    cdef object tell(self):
        """The error. Somebody sees it now, so what is submitted from here on is not affected by it."""
        self.record.tell()
        return self.error


cdef str operation_name(Operation operation):
    if operation.ticket.seq == 0:  # it was refused, or only follows another one
        return kind_name(operation.ticket.kind)
    where = "" if operation.stream is None else f" of stream {operation.stream.id}"
    return f"{kind_name(operation.ticket.kind)} #{operation.ticket.seq}{where}"


cdef str kind_name(rt.Kind kind):
    if kind == rt.Kind.Memcpy:
        return "memcpy"
    if kind == rt.Kind.Memset:
        return "memset"
    if kind == rt.Kind.Execute:
        return "execute"
    if kind == rt.Kind.Record:
        return "record"
    return "wait"


cdef Operation new_follower(Operation followed, bint quiet=False):
    """An operation that is done when the device is past another one; cancelling it leaves the other alone.

    quiet: it does not take over the failure of the other.
    """
    cdef Operation operation = Operation.__new__(Operation)
    operation.stream = followed.stream
    operation.bridge = current_bridge()
    operation.quiet = quiet
    operation.ticket.kind = rt.Kind.Join
    if followed.in_flight:
        check_fork()
        followed.bind()
    if followed.in_flight and followed.bridge is not operation.bridge:
        # Whether that loop runs is not ours to know. A place of our own in the stream says the same.
        return operation.stream.submit_join(operation)
    if followed.in_flight:
        if followed.linked is None:
            followed.linked = []
        operation.linked = followed
        (<list>followed.linked).append(operation)
    else:
        operation.finish(None if followed.state == CANCELLED else followed.detail)
    return operation


cdef Operation new_finished():
    cdef Operation operation = Operation.__new__(Operation)
    operation.bridge = current_bridge()
    operation.state = FINISHED
    return operation
