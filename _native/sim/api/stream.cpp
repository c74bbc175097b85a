// SPDX-License-Identifier: Apache-2.0
// Streams: create, destroy, query, synchronise, abort.
#include <algorithm>

#include "core/context.h"
#include "core/device.h"
#include "core/launch.h"
#include "core/thread_state.h"
#include "export.h"

using namespace aclsim;

namespace {

constexpr uint32_t lowest_priority = 7;

aclError create_stream(const char *function, aclrtStream *out, uint32_t priority, uint32_t flags) {
    if (out == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "%s: stream is NULL", function);
    }
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    if ((flags & ACL_STREAM_PERSISTENT) != 0) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    "%s: the simulator has no persistent streams (flag 0x%x); they "
                    "belong to graph capture",
                    function, flags);
    }
    std::lock_guard<std::mutex> list(context->stream_list);
    Lock lock(context->device->mutex);
    Stream *stream = nullptr;
    if (aclError code = context->device->make_stream(*context, std::min(priority, lowest_priority), flags,
                                                     false, &stream)) {
        const uint32_t limit = context->device->stream_limit();
        lock.unlock();
        if (code == ACL_ERROR_RT_CONTEXT_NULL) {
            return fail(code, "%s: %s", function, explain_blocked(code));
        }
        return fail(code, "%s: all %u streams of device %d are in use; destroy some", function, limit,
                    context->device->id);
    }
    count_live("streams", 1);
    *out = stream->handle;
    return 0;
}

aclError destroy_stream(const char *function, aclrtStream handle, bool force) {
    if (handle == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "%s: stream is NULL; a default stream cannot be destroyed",
                    function);
    }
    Stream *stream = nullptr;
    Context *context = nullptr;
    if (aclError code = current_context(&context)) {
        return code;
    }
    if (aclError code = find_stream(handle, *context, &stream)) {
        return code;
    }
    if (stream->context != context) {
        return fail(ACL_ERROR_RT_STREAM_CONTEXT,
                    "%s: stream %p belongs to another context than the current one", function, handle);
    }
    if (stream->is_default) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: %p is a default stream, which goes with its context",
                    function, handle);
    }
    Device &device = *stream->device;
    std::lock_guard<std::mutex> list(context->stream_list);
    {
        Lock lock(device.mutex);
        if (stream_table().find(handle) != stream) {
            lock.unlock();
            return fail(ACL_ERROR_RT_INVALID_HANDLE, "%s: %p was destroyed meanwhile", function, handle);
        }
        // Where nothing completes any more there is nothing to wait for.
        if (!force) {
            device.synchronize(lock, *stream, -1, stream->submitted);
        }
        stream->closing = true;
        if (!device.abort(lock, *stream)) {
            stream->closing = false;
            lock.unlock();
            return fail(ACL_ERROR_RT_WAIT_TIMEOUT, "%s: the running task does not end", function);
        }
    }
    drop_subscription(*stream);
    Lock lock(device.mutex);
    device.free_stream(*stream);
    count_live("streams", -1);
    return 0;
}

// Synchronising a stream of another context moves the thread there and back; after a failure of that context
// it stays there, as on the real runtime.
aclError synchronize_stream(const char *function, aclrtStream handle, int32_t timeout_ms) {
    Context *context = nullptr;
    Stream *stream = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    if (aclError code = find_stream(handle, *context, &stream)) {
        return code;
    }
    Device &device = *stream->device;
    Lock lock(device.mutex);
    if (stream->context != context && device.blocked_code(*stream) != 0) {
        set_current_context(stream->context);
    }
    const aclError code = device.synchronize(lock, *stream, timeout_ms, stream->submitted);
    if (code != 0) {
        lock.unlock();
        return fail(code, "%s: %s", function, explain_blocked(code));
    }
    const aclError task_error = device.take_error(*stream);
    lock.unlock();
    if (task_error == ACL_ERROR_RT_END_OF_SEQUENCE || task_error == ACL_ERROR_RT_OVER_FLOW ||
        task_error == ACL_ERROR_RT_AICORE_OVER_FLOW || task_error == ACL_ERROR_RT_AIVEC_OVER_FLOW ||
        task_error == ACL_ERROR_RT_SOCKET_CLOSE) {
        return fail_quietly(task_error, "%s: a task ended with %d", function, task_error);
    }
    return task_error == 0
               ? 0
               : fail(task_error, "%s: a task of the stream failed with %d", function, task_error);
}

}  // namespace

extern "C" {

ACL_EXPORT aclError aclrtCreateStream(aclrtStream *stream) {
    ACL_ENTER(aclrtCreateStream);
    return create_stream("aclrtCreateStream", stream, 0, 0);
}

ACL_EXPORT aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag) {
    ACL_ENTER(aclrtCreateStreamWithConfig);
    return create_stream("aclrtCreateStreamWithConfig", stream, priority, flag);
}

ACL_EXPORT aclError aclrtDestroyStream(aclrtStream stream) {
    ACL_ENTER(aclrtDestroyStream);
    return destroy_stream("aclrtDestroyStream", stream, false);
}

ACL_EXPORT aclError aclrtDestroyStreamForce(aclrtStream stream) {
    ACL_ENTER(aclrtDestroyStreamForce);
    return destroy_stream("aclrtDestroyStreamForce", stream, true);
}

ACL_EXPORT aclError aclrtSynchronizeStream(aclrtStream stream) {
    ACL_ENTER(aclrtSynchronizeStream);
    return synchronize_stream("aclrtSynchronizeStream", stream, -1);
}

ACL_EXPORT aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
    ACL_ENTER(aclrtSynchronizeStreamWithTimeout);
    if (timeout != -1 && timeout <= 0) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "aclrtSynchronizeStreamWithTimeout: timeout %d ms; use -1 to wait for "
                    "ever, or a positive number",
                    timeout);
    }
    return synchronize_stream("aclrtSynchronizeStreamWithTimeout", stream, timeout);
}

ACL_EXPORT aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status) {
    ACL_ENTER(aclrtStreamQuery);
    if (status == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtStreamQuery: status is NULL");
    }
    Context *context = nullptr;
    Stream *found = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    if (aclError code = find_stream(stream, *context, &found)) {
        return code;
    }
    Lock lock(found->device->mutex);
    found->device->reap_exceptions(lock, *found);
    if (aclError code = found->device->blocked_code(*found)) {
        lock.unlock();
        return fail(code, "aclrtStreamQuery: %s", explain_blocked(code));
    }
    *status = found->finished == found->submitted ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return 0;
}

ACL_EXPORT aclError aclrtStreamAbort(aclrtStream stream) {
    ACL_ENTER(aclrtStreamAbort);
    Stream *found = nullptr;
    if (aclError code = resolve_stream(stream, &found)) {
        return code;
    }
    std::lock_guard<std::mutex> list(found->context->stream_list);
    Lock lock(found->device->mutex);
    if (found->device->task_abort != 0) {
        return 0;
    }
    if (!found->device->abort(lock, *found)) {
        lock.unlock();
        return fail(ACL_ERROR_RT_WAIT_TIMEOUT, "aclrtStreamAbort: the running task did not end within 60 s");
    }
    return 0;
}

ACL_EXPORT aclError aclrtStreamStop(aclrtStream stream) {
    ACL_ENTER(aclrtStreamStop);
    if (stream == nullptr) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtStreamStop: the default stream cannot be stopped");
    }
    Stream *found = nullptr;
    if (aclError code = resolve_stream(stream, &found)) {
        return code;
    }
    Lock lock(found->device->mutex);
    if (!found->device->stop_running(lock, *found)) {
        lock.unlock();
        return fail(ACL_ERROR_RT_WAIT_TIMEOUT, "aclrtStreamStop: the running task did not end within 60 s");
    }
    return 0;
}

ACL_EXPORT aclError aclrtGetStreamAvailableNum(uint32_t *streamCount) {
    ACL_ENTER(aclrtGetStreamAvailableNum);
    if (streamCount == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetStreamAvailableNum: streamCount is NULL");
    }
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    Lock lock(context->device->mutex);
    const uint64_t limit = context->device->stream_limit();
    const uint64_t used = context->device->streams_in_use;
    *streamCount = static_cast<uint32_t>(limit > used ? limit - used : 0);
    return 0;
}

}  // extern "C"
