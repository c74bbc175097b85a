# SPDX-License-Identifier: Apache-2.0
# How finished operations reach an event loop: one bridge per loop, watched by the loop itself.

cdef object _running_loop = asyncio._get_running_loop
cdef dict _modules = sys.modules
cdef dict _bridges = {}  # id of an asyncio loop or trio token -> LoopBridge
cdef LoopBridge _latest_bridge = None
cdef Py_ssize_t _modules_seen = 0
cdef object _sniffio_local = None  # set once trio is there; its `name` says which library runs this thread

cdef extern from *:
    """
    static thread_local void *aioascend_draining = nullptr;
    """
    void *_draining "aioascend_draining"  # the LoopBridge that resolves what has finished, on this thread

cdef long long _tickets_live = 0
cdef long long _tickets_late = 0
cdef long long _tickets_total = 0


@cython.final
cdef class LoopBridge:
    """One event loop as the runtime sees it."""

    cdef rt.Bridge *bridge
    cdef object loop_ref      # asyncio: a weak reference to the loop
    cdef readonly object token  # trio: its token
    # In a drain: what is awaited, but asked for a report only together with the next submit, or when the drain ends.
    # Before that the loop could do nothing with it, and so the GIL is given up once for both.
    cdef Operation to_be_asked
    cdef dict library         # in a drain: where sniffio keeps what runs this thread, looked up once as that is slow
    cdef bint is_closed
    cdef object __weakref__

    def __cinit__(self):
        self.bridge = new rt.Bridge()

    def __dealloc__(self):
        # Every operation in flight holds its bridge, so nothing can be queued here any more.
        with nogil:
            del self.bridge

    def __init__(self) -> None:
        raise made_by("open_device")

    cdef object loop(self):
        return None if self.loop_ref is None else dereference_weak(self.loop_ref)

    cdef bint gone(self):
        """Whether its loop will never run again."""
        if self.token is not None:
            return self.is_closed
        loop = self.loop()
        return loop is None or loop.is_closed()

    @property
    def fd(self) -> int:
        return self.bridge.fd()

    @property
    def wakeups(self) -> int:
        """How often the loop was woken up: writes to the descriptor."""
        return self.bridge.wakeups()

    def drain(self) -> None:
        """Resolve everything that has finished. Runs on the loop's thread when the descriptor is readable."""
        global _draining
        cdef rt.Ticket *ticket
        with nogil:
            ticket = self.bridge.drain()
        if self.token is not None:
            complete_all(ticket, False)
            return
        self.library = None if _sniffio_local is None else _sniffio_local.__dict__
        _draining = <void *>self
        try:
            complete_all(ticket, True)
        finally:
            _draining = NULL
            self.ask_now()

    cdef int ask_later(self, Operation operation) except -1:
        self.ask_now()
        self.to_be_asked = operation
        return 0

    cdef int ask_now(self) except -1:
        cdef Operation operation = self.to_be_asked
        self.to_be_asked = None
        if operation is not None and operation.in_flight:  # it may have finished in this very drain
            operation.arm()
        return 0

    def close(self) -> None:
        """No more wake-ups; what still finishes is collected by whoever uses the runtime next."""
        global _bridges_live
        cdef rt.Ticket *ticket
        if not self.is_closed:
            _bridges_live -= 1
        self.is_closed = True
        if self.token is not None:
            _bridges.pop(id(self.token), None)
        with nogil:
            ticket = self.bridge.close()
        complete_all(ticket, False)

    cdef int call_soon(self, object callback, object argument, object context) except -1:
        loop = self.loop()
        if loop is None:
            return 0  # the loop is gone, and with it whoever waited
        try:
            if _running_loop() is loop:
                loop.call_soon(callback, argument, context=context)
            else:
                loop.call_soon_threadsafe(callback, argument, context=context)
        except RuntimeError:
            if not loop.is_closed():
                raise
        return 0


cdef bint under_trio():
    global _sniffio_local, _modules_seen
    if _sniffio_local is None:
        if len(_modules) == _modules_seen:
            return False
        _modules_seen = len(_modules)
        if "trio" not in _modules:
            return False
        import sniffio
        _sniffio_local = sniffio.thread_local
    return _sniffio_local.name == "trio"


cpdef bint in_drain():
    """Whether this runs in a task that a loop of asyncio steps while it resolves what has finished."""
    return _draining is not NULL


cdef bint awaited_by_trio():
    cdef LoopBridge here
    if not in_drain():
        return under_trio()
    here = current_bridge()
    return here is not None and here.token is not None


cdef LoopBridge current_bridge():
    """The bridge of the loop that runs on this thread; None when no loop does."""
    global _latest_bridge
    cdef LoopBridge draining
    if in_drain():  # saves asking asyncio, which asks the kernel
        draining = <LoopBridge>_draining
        if draining.library is None or draining.library.get("name") != "trio":
            return draining
    loop = _running_loop()
    if loop is None:
        return trio_bridge() if under_trio() else None
    if _latest_bridge is not None and _latest_bridge.loop() is loop:
        if _sniffio_local is not None and under_trio():  # trio as a guest of this loop
            return trio_bridge()
        return _latest_bridge
    if under_trio():
        return trio_bridge()
    cdef LoopBridge bridge = _bridges.get(id(loop))
    if bridge is None or bridge.loop() is not loop:
        bridge = new_bridge()
        bridge.loop_ref = weakref.ref(loop)
        loop.add_reader(bridge.bridge.fd(), bridge.drain)
        _bridges[id(loop)] = bridge
        if _debugging:
            _debug.watch_asyncio(loop)
    _latest_bridge = bridge
    return bridge


cdef LoopBridge trio_bridge():
    from aioascend import _trio
    token = _trio.current_token()
    cdef LoopBridge bridge = _bridges.get(id(token))
    if bridge is None or bridge.token is not token:
        bridge = new_bridge()
        bridge.token = token
        _trio.watch(bridge)
        _bridges[id(token)] = bridge
        if _debugging:
            _debug.watch_trio(token)
    return bridge


cdef LoopBridge new_bridge():
    global _bridges_live
    forget_closed_loops()
    cdef LoopBridge bridge = LoopBridge.__new__(LoopBridge)
    if bridge.bridge.fd() < 0:
        raise OSError("cannot watch for completions: the process has no file descriptor left (eventfd)")
    _bridges_live += 1
    return bridge


def forget_closed_loops() -> None:
    """Collect what finished for loops that are gone, and close their descriptors."""
    global _latest_bridge
    cdef LoopBridge bridge
    _latest_bridge = None
    for key, bridge in list(_bridges.items()):
        if bridge.gone():
            if _bridges.get(key) is bridge:  # another thread may have a new loop of the same id by now
                del _bridges[key]
            bridge.close()
    collect_orphans()


cdef collect_orphans():
    cdef rt.Ticket *ticket
    with nogil:
        ticket = rt.Bridge.orphans().drain()
    complete_all(ticket, False)


def running_bridge() -> LoopBridge | None:
    """The bridge of the loop that runs on this thread; None when no loop does."""
    return current_bridge()


def ticket_counts() -> dict:
    """Tickets: `live` now, `total` ever, `late` those that finished after they had been cancelled."""
    return {"live": _tickets_live, "total": _tickets_total, "late": _tickets_late}
