# SPDX-License-Identifier: Apache-2.0
# The floor, see floor.h.

cdef extern from "floor.h" namespace "aioascend::bench" nogil:
    const size_t kLaneBytes
    const size_t kCopyBytes
    const int kChainKernels

    cdef cppclass CLane "aioascend::bench::Lane":
        aclrtStream stream
        void *device
        void *source
        void *result

    cdef enum class Work:
        Copy, Chain

    cdef cppclass Counts:
        uint64_t callbacks, wakeups

    cdef cppclass CFloor "aioascend::bench::Floor":
        @staticmethod
        CFloor *start(const AclApi &, aclrtContext, vector[CLane], aclError &)
        aclError run(Work, size_t, Counts &)

    aclError time_submits(const AclApi &, const CLane &, size_t, size_t, int64_t &)

LANE_BYTES = kLaneBytes
COPY_BYTES = kCopyBytes
CHAIN_KERNELS = kChainKernels


cdef CLane lane_of(object lane):
    """(stream, device, source, result), as addresses."""
    cdef CLane out
    out.stream = <aclrtStream><uintptr_t>lane[0]
    out.device = <void *><uintptr_t>lane[1]
    out.source = <void *><uintptr_t>lane[2]
    out.result = <void *><uintptr_t>lane[3]
    return out


cdef int check(aclError code, str what) except -1:
    if code != 0:
        raise RuntimeError(f"the floor: {what} failed with {code}")
    return 0


@cython.final
cdef class Floor:
    """An event loop in C++ that does on each lane one operation after the other, and all lanes at once.

    Args:
        context: Of the device, an address.
        lanes: For each a tuple (stream, device, source, result): a stream, and `LANE_BYTES` of device and of pinned
            memory. Nobody may be subscribed to the streams.
    """

    cdef CFloor *floor

    def __init__(self, uintptr_t context, list lanes) -> None:
        cdef const AclApi *api = acl()
        cdef vector[CLane] places
        cdef aclError code = 0
        for lane in lanes:
            places.push_back(lane_of(lane))
        with nogil:
            self.floor = CFloor.start(api[0], <aclrtContext>context, places, code)
        check(code, "aclrtSubscribeReport")

    def run(self, size_t times, *, bint chains=False) -> tuple:
        """Copies `COPY_BYTES`, or runs a chain, so many times on each lane; returns callbacks and wake-ups."""
        cdef Counts counts
        cdef aclError code
        cdef Work work = Work.Chain if chains else Work.Copy
        if self.floor is NULL:
            raise RuntimeError("the floor is closed")
        with nogil:
            code = self.floor.run(work, times, counts)
        check(code, "a submit")
        return counts.callbacks, counts.wakeups

    def close(self) -> None:
        """Ends its thread. May be called again."""
        cdef CFloor *floor = self.floor
        self.floor = NULL
        with nogil:
            del floor

    def __dealloc__(self):
        if self.floor is not NULL:
            with nogil:
                del self.floor


def submit_seconds(lane: tuple, size_t calls, size_t batch) -> float:
    """Seconds that one aclrtMemsetAsync takes in C: the library's own price of a submit.

    Args:
        calls: How many are timed.
        batch: How many of them are submitted to an empty stream; they must fit into its queue.
    """
    cdef const AclApi *api = acl()
    cdef CLane place = lane_of(lane)
    cdef int64_t nanoseconds = 0
    cdef aclError code
    with nogil:
        code = time_submits(api[0], place, calls, batch, nanoseconds)
    check(code, "aclrtMemsetAsync")
    return nanoseconds * 1e-9 / calls
