// SPDX-License-Identifier: Apache-2.0
#include "core/context.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "core/device.h"
#include "core/settings.h"
#include "core/thread_state.h"
#include "model/registry.h"

namespace aclsim {

namespace {

struct Primary {
    uint32_t retained = 0;
    Context *context = nullptr;
};

struct Registry {
    std::mutex mutex;
    std::array<Primary, max_devices> primary{};
    uint64_t last_id = 0;
};

Registry &registry() {
    static Registry *instance = new Registry;
    return *instance;
}

// registry().mutex held.
aclError make_context(Device &device, bool primary, Context **out) {
    Context *context = context_table().allocate();
    if (context == nullptr) {
        return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "no further context can be made");
    }
    context->id = ++registry().last_id;
    context->device = &device;
    context->primary = primary;
    context->stop_on_failure = false;
    context->stop_code = 0;
    context->closing = false;
    context->host_closed = false;
    Lock lock(device.mutex);
    device.open();
    if (aclError code = device.make_stream(*context, 0, 0, false, &context->default_stream)) {
        lock.unlock();
        context_table().recycle(*context);
        return fail(code, "device %d has no stream left for a context's default stream; destroy some streams",
                    device.id);
    }
    context->default_stream->is_default = true;
    device.contexts.push_back(context);
    lock.unlock();
    context_table().publish(*context);
    count_live("contexts", 1);
    *out = context;
    return 0;
}

// Waits for what is queued, unless the context or its device has failed and nothing will ever end.
void drain(Context &context, Lock &lock) {
    Device &device = *context.device;
    for (size_t i = 0; i < context.streams.size(); ++i) {
        Stream &stream = *context.streams[i];
        device.synchronize(lock, stream, -1, stream.submitted);
    }
}

// The handle is retracted already; nobody else finds the context any more.
void tear_down(Context &context, bool force) {
    Device &device = *context.device;
    {
        std::unique_lock<std::mutex> list(context.stream_list, std::defer_lock);
        if (!force) {
            list.lock();
        }
        Lock lock(device.mutex);
        if (!force) {
            drain(context, lock);
        } else {
            device.wake_waiters(&context, ACL_ERROR_RT_CONTEXT_NULL);
        }
        context.closing = true;
        for (const std::vector<Stream *> &streams : {context.streams, context.lanes}) {
            for (Stream *stream : streams) {
                stream->closing = true;
                device.abort(lock, *stream);
            }
        }
    }
    close_host_functions(context);
    for (Stream *stream : std::vector<Stream *>(context.streams)) {
        drop_subscription(*stream);
    }
    Lock lock(device.mutex);
    int64_t user_streams = 0;
    for (const std::vector<Stream *> &streams : {context.streams, context.lanes}) {
        for (Stream *stream : streams) {
            user_streams += !stream->hidden && !stream->is_default;
            device.free_stream(*stream);
        }
    }
    count_live("streams", -user_streams);
    context.idle_lanes.clear();
    device.contexts.erase(std::remove(device.contexts.begin(), device.contexts.end(), &context),
                          device.contexts.end());
    lock.unlock();
    unload_models_of(context.id);
    context_table().recycle(context);
    count_live("contexts", -1);
}

aclError give_up_primary(int32_t id, bool force, Context **retired) {
    Registry &all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    Primary &primary = all.primary[static_cast<size_t>(id)];
    if (primary.context == nullptr) {
        const char *text = "device %d is not set: reset once too often, or never set";
        return force ? fail_quietly(ACL_ERROR_RT_CONTEXT_RELEASE_ERROR, text, id)
                     : fail(ACL_ERROR_RT_CONTEXT_RELEASE_ERROR, text, id);
    }
    if (!force && --primary.retained > 0) {
        return 0;
    }
    primary.retained = 0;
    *retired = primary.context;
    primary.context = nullptr;
    context_table().retract(**retired);
    return 0;
}

}  // namespace

HandleTable<Context, HandleKind::Context> &context_table() {
    static auto *table = new HandleTable<Context, HandleKind::Context>;
    return *table;
}

aclError current_context(Context **out) {
    ThreadState &thread = thread_state();
    const int32_t default_device = settings().default_device.load(std::memory_order_relaxed);
    if (thread.current_context == nullptr && default_device >= 0) {
        if (aclError code = set_device(default_device)) {
            return code;
        }
    }
    Context *context =
        thread.current_context == nullptr ? nullptr : context_table().find(thread.current_context);
    if (context == nullptr) {
        const char *why =
            thread.current_context == nullptr
                ? "this thread has no current context; call aclrtSetDevice or aclrtSetCurrentContext in it"
                : "this thread's context was destroyed; call aclrtSetDevice or aclrtSetCurrentContext";
        return fail(ACL_ERROR_RT_CONTEXT_NULL, "%s", why);
    }
    *out = context;
    return 0;
}

aclError working_context(Context **out) {
    if (aclError code = current_context(out)) {
        return code;
    }
    if (aclError code = (*out)->device->fault_seen.load(std::memory_order_acquire)) {
        return fail(code, "device %d is lost (%d); aclrtResetDeviceForce it once it is back",
                    (*out)->device->id, code);
    }
    return 0;
}

aclError set_device(int32_t id) {
    Device *device = device_at(id);
    if (device == nullptr) {
        return invalid_device(id);
    }
    Registry &all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    if (aclError code = device->fault_seen.load(std::memory_order_acquire)) {
        return fail(
            code, "device %d is lost; restore it and call aclrtResetDeviceForce before setting it again", id);
    }
    Primary &primary = all.primary[static_cast<size_t>(id)];
    if (primary.context == nullptr) {
        if (aclError code = make_context(*device, true, &primary.context)) {
            return code;
        }
    }
    ++primary.retained;
    set_current_context(primary.context);
    return 0;
}

aclError reset_device(int32_t id) {
    Device *device = device_at(id);
    if (device == nullptr) {
        return invalid_device(id);
    }
    if (aclError code = device->fault_seen.load(std::memory_order_acquire)) {
        return fail(code, "device %d is lost; only aclrtResetDeviceForce brings it back", id);
    }
    Context *retired = nullptr;
    const aclError code = give_up_primary(id, false, &retired);
    if (retired != nullptr) {
        tear_down(*retired, false);
    }
    return code;
}

aclError reset_device_force(int32_t id) {
    Device *device = device_at(id);
    if (device == nullptr) {
        return invalid_device(id);
    }
    Context *retired = nullptr;
    const bool faulty = device->fault_seen.load(std::memory_order_acquire) != 0;
    const aclError code = give_up_primary(id, true, &retired);
    if (retired != nullptr) {
        tear_down(*retired, true);
    }
    Lock lock(device->mutex);
    if (device->contexts.empty()) {
        device->release_leftovers();
    }
    if (!faulty) {
        return code;
    }
    for (Context *context : std::vector<Context *>(device->contexts)) {
        for (const std::vector<Stream *> &streams : {context->streams, context->lanes}) {
            for (Stream *stream : streams) {
                device->abort(lock, *stream);
            }
        }
    }
    if (device->lost()) {
        return fail_quietly(device->fault(), "device %d is still lost", id);
    }
    device->clear_fault();
    return 0;
}

aclError create_context(int32_t id, Context **out) {
    Device *device = device_at(id);
    if (device == nullptr) {
        return invalid_device(id);
    }
    if (aclError code = device->fault_seen.load(std::memory_order_acquire)) {
        return fail(code, "device %d is lost (%d)", id, code);
    }
    std::lock_guard<std::mutex> lock(registry().mutex);
    return make_context(*device, false, out);
}

aclError destroy_context(void *handle) {
    Context *context = context_table().find(handle);
    if (context == nullptr) {
        return fail(ACL_ERROR_RT_CONTEXT_NULL, "%p is no context, or was destroyed before", handle);
    }
    {
        std::lock_guard<std::mutex> lock(registry().mutex);
        if (context->primary) {
            return fail(
                ACL_ERROR_RT_CONTEXT_NULL,
                "%p is device %d's primary context; it goes with aclrtResetDevice, not aclrtDestroyContext",
                handle, context->device->id);
        }
        if (!context_table().retract(*context)) {
            return fail(ACL_ERROR_RT_CONTEXT_RELEASE_ERROR, "context %p was destroyed at the same time",
                        handle);
        }
    }
    if (thread_state().current_context == handle) {
        thread_state().current_context = nullptr;
    }
    tear_down(*context, false);
    return 0;
}

void set_current_context(const Context *context) { thread_state().current_context = context->handle; }

Context *primary_context(int32_t id) {
    std::lock_guard<std::mutex> lock(registry().mutex);
    return registry().primary[static_cast<size_t>(id)].context;
}

bool primary_context_active(int32_t id) { return primary_context(id) != nullptr; }

uint64_t context_id(const Context &context) { return context.id; }
int32_t context_device(const Context &context) { return context.device->id; }
int32_t stream_id(const Stream &stream) { return stream.id; }
Context &stream_context(const Stream &stream) { return *stream.context; }

}  // namespace aclsim
