# SPDX-License-Identifier: Apache-2.0
# A stand-in for `acl.rt` of pyACL, for machines without it: the same names, arguments and results, and, what matters
# here, the same use of the GIL. It is given up in synchronize_stream, synchronize_event and process_report, and nowhere
# else; a callback takes it.

cdef struct Call:
    PyObject *function
    PyObject *data


cdef void trampoline(void *address) noexcept with gil:
    cdef Call *call = <Call *>address
    function, data = <object>call.function, <object>call.data
    Py_DECREF(function)
    Py_DECREF(data)
    c_free(call)
    function(data)


def init() -> int:
    return acl().aclInit(NULL)


def set_device(int32_t device) -> int:
    return acl().aclrtSetDevice(device)


def reset_device(int32_t device) -> int:
    return acl().aclrtResetDevice(device)


def get_context() -> tuple:
    cdef aclrtContext context = NULL
    cdef aclError code = acl().aclrtGetCurrentContext(&context)
    return <uintptr_t>context, code


def set_context(uintptr_t context) -> int:
    return acl().aclrtSetCurrentContext(<aclrtContext>context)


def create_stream_with_config(uint32_t priority, uint32_t flag) -> tuple:
    cdef aclrtStream stream = NULL
    cdef aclError code = acl().aclrtCreateStreamWithConfig(&stream, priority, flag)
    return <uintptr_t>stream, code


def destroy_stream(uintptr_t stream) -> int:
    return acl().aclrtDestroyStream(<aclrtStream>stream)


def synchronize_stream(uintptr_t stream) -> int:
    cdef const AclApi *api = acl()
    cdef aclError code
    with nogil:
        code = api.aclrtSynchronizeStream(<aclrtStream>stream)
    return code


def stream_query(uintptr_t stream) -> tuple:
    cdef aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY
    cdef aclError code = acl().aclrtStreamQuery(<aclrtStream>stream, &status)
    return <int>status, code


def create_event_with_flag(uint32_t flag) -> tuple:
    cdef aclrtEvent event = NULL
    cdef aclError code = acl().aclrtCreateEventWithFlag(&event, flag)
    return <uintptr_t>event, code


def destroy_event(uintptr_t event) -> int:
    return acl().aclrtDestroyEvent(<aclrtEvent>event)


def record_event(uintptr_t event, uintptr_t stream) -> int:
    return acl().aclrtRecordEvent(<aclrtEvent>event, <aclrtStream>stream)


def query_event_status(uintptr_t event) -> tuple:
    cdef aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY
    cdef aclError code = acl().aclrtQueryEventStatus(<aclrtEvent>event, &status)
    return <int>status, code


def synchronize_event(uintptr_t event) -> int:
    cdef const AclApi *api = acl()
    cdef aclError code
    with nogil:
        code = api.aclrtSynchronizeEvent(<aclrtEvent>event)
    return code


def malloc(size_t size, int policy) -> tuple:
    cdef void *address = NULL
    cdef aclError code = acl().aclrtMalloc(&address, size, <aclrtMemMallocPolicy>policy)
    return <uintptr_t>address, code


def free(uintptr_t address) -> int:
    return acl().aclrtFree(<void *>address)


def malloc_host(size_t size) -> tuple:
    cdef void *address = NULL
    cdef aclError code = acl().aclrtMallocHost(&address, size)
    return <uintptr_t>address, code


def free_host(uintptr_t address) -> int:
    return acl().aclrtFreeHost(<void *>address)


def memcpy_async(uintptr_t dst, size_t dst_max, uintptr_t src, size_t count, int kind, uintptr_t stream) -> int:
    return acl().aclrtMemcpyAsync(<void *>dst, dst_max, <void *>src, count, <aclrtMemcpyKind>kind, <aclrtStream>stream)


def memset_async(uintptr_t address, size_t max_count, int32_t value, size_t count, uintptr_t stream) -> int:
    return acl().aclrtMemsetAsync(<void *>address, max_count, value, count, <aclrtStream>stream)


def subscribe_report(uint64_t thread, uintptr_t stream) -> int:
    return acl().aclrtSubscribeReport(thread, <aclrtStream>stream)


def unsubscribe_report(uint64_t thread, uintptr_t stream) -> int:
    return acl().aclrtUnSubscribeReport(thread, <aclrtStream>stream)


def process_report(int32_t timeout) -> int:
    cdef const AclApi *api = acl()
    cdef aclError code
    with nogil:
        code = api.aclrtProcessReport(timeout)
    return code


def launch_callback(object function, object data, int block_type, uintptr_t stream) -> int:
    if not callable(function):
        raise TypeError("parameter must be callable")
    cdef const AclApi *api = acl()
    cdef Call *call = <Call *>c_malloc(sizeof(Call))
    if call is NULL:
        raise MemoryError
    call.function = <PyObject *>function
    call.data = <PyObject *>data
    Py_INCREF(function)
    Py_INCREF(data)
    # What a callback that is refused leaves behind is lost, as in pyACL.
    return api.aclrtLaunchCallback(
        <aclrtCallback>trampoline, call, <aclrtCallbackBlockType>block_type, <aclrtStream>stream)
