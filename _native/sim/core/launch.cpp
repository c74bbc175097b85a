// SPDX-License-Identifier: Apache-2.0
// From handles and Tasks to entries in a queue.
#include "core/launch.h"

#include "core/device.h"
#include "core/settings.h"

namespace aclsim {

aclError find_stream(aclrtStream handle, Context &context, Stream **out) {
    if (handle == nullptr) {
        *out = context.default_stream;
        return 0;
    }
    Stream *stream = stream_table().find(handle);
    if (stream == nullptr || stream->hidden) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is no stream, or was destroyed", handle);
    }
    *out = stream;
    return 0;
}

aclError resolve_stream(aclrtStream handle, Stream **out) {
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    if (aclError code = find_stream(handle, *context, out)) {
        return code;
    }
    if ((*out)->context != context) {
        return fail(ACL_ERROR_RT_STREAM_CONTEXT,
                    "stream %p belongs to another context (device %d) than this thread's current one (device "
                    "%d); make "
                    "its context current first",
                    handle, (*out)->device->id, context->device->id);
    }
    return 0;
}

const char *explain_blocked(aclError code) {
    switch (code) {
        case ACL_ERROR_RT_STREAM_ABORT: return "the stream is being aborted";
        case ACL_ERROR_RT_DEVICE_TASK_ABORT: return "the tasks of the device are being aborted";
        case ACL_ERROR_RT_INVALID_HANDLE: return "the stream was destroyed meanwhile";
        case ACL_ERROR_RT_CONTEXT_NULL: return "the context was destroyed meanwhile";
        case ACL_ERROR_RT_STREAM_SYNC_TIMEOUT: return "not finished in time; the work goes on";
        case ACL_ERROR_RT_EVENT_SYNC_TIMEOUT: return "not recorded in time; the work goes on";
        case ACL_ERROR_RT_NO_STREAM_RESOURCE: return "no stream is left for it";
        case ACL_ERROR_RT_INTERNAL_ERROR: return "the process is exiting";
        default:
            return "a task failed in stop-on-failure mode or the device is lost; the context is unusable";
    }
}

aclError submit_entry(Stream &stream, const Entry &entry) {
    Device &device = *stream.device;
    Lock lock(device.mutex);
    if (aclError code = device.enqueue(lock, stream, entry)) {
        lock.unlock();
        return fail(code, "%s was not launched: %s", entry.kind, explain_blocked(code));
    }
    return 0;
}

namespace {
Entry custom_entry(Task &&task) {
    Entry entry;
    entry.op = Op::Custom;
    entry.kind = task.kind;
    entry.unit = task.unit;
    entry.bytes = task.bytes;
    entry.task = new Task(std::move(task));
    return entry;
}
}  // namespace

aclError submit(Stream &stream, Task &&task) {
    const Entry entry = custom_entry(std::move(task));
    const aclError code = submit_entry(stream, entry);
    if (code != 0) {
        delete entry.task;
    }
    return code;
}

aclError run_entry(Context &context, const Entry &entry) {
    Device &device = *context.device;
    void *context_handle = context.handle;
    Lock lock(device.mutex);
    if ((entry.op == Op::Copy || entry.op == Op::Set) && device.can_run_inline(context)) {
        const aclError code = device.run_inline(lock, entry);
        lock.unlock();
        return code == 0 ? 0 : fail(code, "synchronous %s: its memory was freed meanwhile", entry.kind);
    }
    Stream *lane = nullptr;
    if (!context.idle_lanes.empty()) {
        lane = context.idle_lanes.back();
        context.idle_lanes.pop_back();
    } else if (aclError code = device.make_stream(context, 0, 0, true, &lane)) {
        lock.unlock();
        if (entry.op == Op::Custom) {
            delete entry.task;
        }
        return fail(code, "synchronous %s: %s", entry.kind, explain_blocked(code));
    }
    bool launched = false;
    aclError code = device.enqueue(lock, *lane, entry);
    if (code == 0) {
        launched = true;
        code = device.synchronize_and_take(lock, *lane, -1);
    }
    // After a failure that ends all waiting the lane may still be occupied: its context cleans it up.
    if (lane->queue.empty() && context_table().find(context_handle) == &context) {
        lane->error = 0;
        context.idle_lanes.push_back(lane);
    }
    lock.unlock();
    if (!launched && entry.op == Op::Custom) {
        delete entry.task;
    }
    return code == 0 ? 0 : fail(code, "synchronous %s failed: %d", entry.kind, code);
}

aclError run_blocking(Context &context, Task &&task) {
    return run_entry(context, custom_entry(std::move(task)));
}

// What the caller's earlier tasks left on the stream.
static aclError settle_stream(Stream &stream) {
    Lock lock(stream.device->mutex);
    const aclError code = stream.device->synchronize_and_take(lock, stream, -1);
    lock.unlock();
    return code == 0
               ? 0
               : fail(code,
                      "copy with pageable host memory: it waits for the stream first, whose earlier tasks "
                      "ended with %d",
                      code);
}

aclError run_pageable(Stream &stream, const Entry &entry) {
    if (!settings().pageable_blocks.load(std::memory_order_relaxed)) {
        return submit_entry(stream, entry);
    }
    if (aclError code = settle_stream(stream)) {
        return code;
    }
    return run_entry(*stream.context, entry);
}

aclError run_pageable(Stream &stream, Task &&task) {
    if (!settings().pageable_blocks.load(std::memory_order_relaxed)) {
        return submit(stream, std::move(task));
    }
    if (aclError code = settle_stream(stream)) {
        return code;
    }
    return run_blocking(*stream.context, std::move(task));
}

}  // namespace aclsim
