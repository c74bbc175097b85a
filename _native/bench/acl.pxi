# SPDX-License-Identifier: Apache-2.0
# The ACL functions that the benchmarks call, and the library they belong to.

cdef extern from "acl/acl.h" nogil:
    ctypedef int aclError
    ctypedef void *aclrtContext
    ctypedef void *aclrtStream
    ctypedef void *aclrtEvent
    ctypedef void (*aclrtCallback)(void *)
    ctypedef enum aclrtMemcpyKind:
        pass
    ctypedef enum aclrtMemMallocPolicy:
        pass
    ctypedef enum aclrtCallbackBlockType:
        pass
    ctypedef enum aclrtEventRecordedStatus:
        ACL_EVENT_RECORDED_STATUS_NOT_READY
    ctypedef enum aclrtStreamStatus:
        ACL_STREAM_STATUS_NOT_READY


cdef extern from "loader.h" namespace "aioascend" nogil:
    cdef cppclass AclApi:
        cbool has(const char *)
        aclError aclInit(const char *)
        aclError aclrtSetDevice(int32_t)
        aclError aclrtResetDevice(int32_t)
        aclError aclrtGetCurrentContext(aclrtContext *)
        aclError aclrtSetCurrentContext(aclrtContext)
        aclError aclrtCreateStreamWithConfig(aclrtStream *, uint32_t, uint32_t)
        aclError aclrtDestroyStream(aclrtStream)
        aclError aclrtSynchronizeStream(aclrtStream)
        aclError aclrtStreamQuery(aclrtStream, aclrtStreamStatus *)
        aclError aclrtCreateEventWithFlag(aclrtEvent *, uint32_t)
        aclError aclrtDestroyEvent(aclrtEvent)
        aclError aclrtRecordEvent(aclrtEvent, aclrtStream)
        aclError aclrtQueryEventStatus(aclrtEvent, aclrtEventRecordedStatus *)
        aclError aclrtSynchronizeEvent(aclrtEvent)
        aclError aclrtMalloc(void **, size_t, aclrtMemMallocPolicy)
        aclError aclrtFree(void *)
        aclError aclrtMallocHost(void **, size_t)
        aclError aclrtFreeHost(void *)
        aclError aclrtMemcpyAsync(void *, size_t, const void *, size_t, aclrtMemcpyKind, aclrtStream)
        aclError aclrtMemsetAsync(void *, size_t, int32_t, size_t, aclrtStream)
        aclError aclrtSubscribeReport(uint64_t, aclrtStream)
        aclError aclrtUnSubscribeReport(uint64_t, aclrtStream)
        aclError aclrtProcessReport(int32_t)
        aclError aclrtLaunchCallback(aclrtCallback, void *, aclrtCallbackBlockType, aclrtStream)

    cdef cppclass Library:
        AclApi api

    const Library *load_library(const string &, string &)


cdef const AclApi *in_use = NULL  # by way of acl()


cdef inline const AclApi *acl() except NULL:
    if in_use is NULL:
        raise RuntimeError("which library is measured has not been said: call use(path) first")
    return in_use


cdef tuple OPTIONAL = (
    b"aclrtCreateStreamWithConfig", b"aclrtStreamQuery", b"aclrtCreateEventWithFlag", b"aclrtQueryEventStatus",
    b"aclrtSynchronizeEvent", b"aclrtSubscribeReport", b"aclrtUnSubscribeReport", b"aclrtProcessReport",
    b"aclrtLaunchCallback",
)


def use(path: str) -> None:
    """Measure the library at this path, which is the one that the runtime has loaded.

    Raises:
        RuntimeError: it lacks a function that the benchmarks need.
    """
    global in_use
    cdef string where = path.encode()
    cdef string error
    cdef const Library *library = load_library(where, error)
    if library is NULL:
        raise RuntimeError(error.decode())
    missing = [name.decode() for name in OPTIONAL if not library.api.has(name)]
    if missing:
        raise RuntimeError(f"the benchmarks cannot run on {path}: it lacks {', '.join(missing)}")
    in_use = &library.api
