# SPDX-License-Identifier: Apache-2.0
# The awaitable that every submit returns.

cdef enum State:
    PENDING, FINISHED, CANCELLED

cdef object _InvalidStateError = asyncio.InvalidStateError
cdef object _CancelledError = asyncio.CancelledError


@cython.final
cdef class Operation:
    """Work on the device, submitted when this object was made. Awaiting it waits; it starts nothing.

    It speaks the protocol of `asyncio.Future` (`asyncio.isfuture` is true), so `gather`, `wait`, `wait_for`, `shield`
    and `as_completed` take it as it is, without a task around it. `TaskGroup.create_task` takes coroutines only: await
    the operation in one. Under trio it is awaited directly. It can be awaited any number of times, before and after it
    is done.

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

    cdef rt.Ticket ticket
    cdef StreamCore stream
    cdef LoopBridge bridge       # where it is resolved; None as long as no loop has to do with it
    cdef object keep             # what the device touches
    cdef Operation follows       # done when the device is past this one, instead of having a ticket of its own
    cdef list followers
    cdef bint in_flight          # its ticket has not come back, whether or not it was cancelled
    cdef object value
    cdef object error
    cdef object failure          # FailureRecord behind `error`
    cdef list callbacks          # (callable, context), through the loop, as asyncio wants it
    cdef list waiters            # callables run at once, on the thread that resolves
    cdef object cancel_message
    cdef State state
    cdef bint quiet              # follows without taking over the failure
    cdef public object _asyncio_future_blocking
    cdef object __weakref__

    def __cinit__(self):
        self._asyncio_future_blocking = False
        self.ticket.owner = <void *>self

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
        if self.state == FINISHED:
            if self.error is None:
                return self.value
            self.tell()
            raise self.error.with_traceback(None)  # or the frames of everybody who got it would live on with it
        raise self.no_result()

    def exception(self):
        """The exception, None when it succeeded."""
        if self.state == FINISHED:
            self.tell()
            return self.error
        raise self.no_result()

    cdef object no_result(self):
        if self.state == CANCELLED:
            return self._make_cancelled_error()
        return _InvalidStateError("the operation is not done")

    def _make_cancelled_error(self):
        """Part of the Future protocol that asyncio.gather relies on."""
        return _CancelledError() if self.cancel_message is None else _CancelledError(self.cancel_message)

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
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((callback, context))
        self.ask_for_report()

    def remove_done_callback(self, callback: object) -> int:
        """Remove all instances of `callback`; returns how many there were."""
        if self.callbacks is None:
            return 0
        kept = [entry for entry in self.callbacks if entry[0] != callback]
        removed = len(self.callbacks) - len(kept)
        self.callbacks = kept
        return removed

    def cancel(self, msg: object = None) -> bool:
        """Abandon it: whoever awaits it gets CancelledError at once. False when it is done already.

        The device goes on. Buffers are kept, and the stream stays in order, until the device is past it.
        """
        if self.state != PENDING:
            return False
        self.cancel_message = msg
        self.state = CANCELLED
        self.ticket.abandoned = True
        if self.follows is not None:
            if self.follows.followers is not None:
                self.follows.followers.remove(self)
            self.follows = None
        self.wake()
        return True

    # --- awaiting ---

    def __await__(self):
        if self.state == PENDING and under_trio():
            from aioascend import _trio
            return _trio.wait(self).__await__()
        cdef Await waiting = Await.__new__(Await)
        waiting.operation = self
        return waiting

    __iter__ = __await__

    cdef object step(self):
        if self.state == PENDING:
            self.bind()
        if self.state == PENDING:
            self.check_loop()
            self.ask_for_report()
            self._asyncio_future_blocking = True
            return self
        raise StopIteration(self.result())

    def add_waiter(self, waiter: object) -> bool:
        """Call `waiter(operation)` when it gets done, on the thread that resolves it. False when it is done already."""
        self.bind()
        if self.state != PENDING:
            return False
        self.check_loop()
        if self.waiters is None:
            self.waiters = []
        self.waiters.append(waiter)
        self.ask_for_report()
        return True

    def remove_waiter(self, waiter: object) -> None:
        if self.waiters is not None and waiter in self.waiters:
            self.waiters.remove(waiter)

    cdef int bind(self) except -1:
        """Gives an operation without a loop, or whose loop is gone, the loop that runs here."""
        cdef LoopBridge bridge = current_bridge()
        if bridge is self.bridge or bridge is None or (self.bridge is not None and not self.bridge.gone()):
            return 0
        cdef bint moved = True
        if self.in_flight:
            with nogil:
                moved = self.stream.stream.get().rebind(self.ticket, deref(bridge.bridge))
        self.bridge = bridge
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
        if self.follows is not None:
            return self.follows.ask_for_report()
        if not self.in_flight:
            return 0
        cdef int status
        with nogil:
            status = self.stream.stream.get().arm(self.ticket)
        if status != 0:
            raise status_error(status, "the stream")
        return 0

    # --- resolving ---

    cdef int finish(self, object error, object failure) except -1:
        """Resolves it, unless it was cancelled; then only those are left who wait for the device."""
        followers, self.followers = self.followers, None
        if self.quiet:
            error = failure = None
        if self.state == PENDING:
            self.error = error
            self.failure = failure
            self.state = FINISHED
            self.wake()
        if followers is not None:
            for follower in followers:
                (<Operation>follower).follow(error, failure)
        return 0

    cdef int follow(self, object error, object failure) except -1:
        self.follows = None
        return self.finish(error, failure)

    cdef int wake(self) except -1:
        callbacks, self.callbacks = self.callbacks, None
        waiters, self.waiters = self.waiters, None
        if callbacks is not None:
            for callback, context in callbacks:
                self.bridge.call_soon(callback, self, context)
        if waiters is not None:
            for waiter in waiters:
                waiter(self)
        return 0

    cdef int tell(self) except -1:
        """Somebody sees the error now, so what is submitted from here on is not affected by it."""
        if self.failure is not None:
            (<FailureRecord>self.failure).tell()
        return 0

    def __repr__(self) -> str:
        state = "pending"
        if self.state == CANCELLED:
            state = "cancelled"
        elif self.state == FINISHED:
            state = "done" if self.error is None else f"failed: {self.error}"
        return f"<Operation {operation_name(self)} {state}>"


@cython.final
cdef class Await:
    """One await of an operation."""

    cdef Operation operation
    cdef bint suspended

    def __iter__(self):
        return self

    def __next__(self):
        if self.suspended and self.operation.state == PENDING:
            raise RuntimeError("an operation was resumed before it was done; await it inside an asyncio or trio task")
        self.suspended = True
        return self.operation.step()


cdef str operation_name(Operation operation):
    if operation.stream is None or operation.ticket.seq == 0:
        return "wait"
    return f"{kind_name(operation.ticket.kind)} #{operation.ticket.seq} of stream {operation.stream.id}"


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
    if followed.in_flight:
        followed.bind()
    if followed.in_flight and followed.bridge is not operation.bridge:
        # Whether that loop runs is not ours to know. A place of our own in the stream says the same.
        return operation.stream.submit_join(operation)
    if followed.in_flight:
        if followed.followers is None:
            followed.followers = []
        operation.follows = followed
        followed.followers.append(operation)
    else:
        operation.follow(followed.error, followed.failure)
    return operation


cdef Operation new_finished(StreamCore stream):
    cdef Operation operation = Operation.__new__(Operation)
    operation.stream = stream
    operation.bridge = current_bridge()
    operation.state = FINISHED
    return operation
