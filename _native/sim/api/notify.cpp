// SPDX-License-Identifier: Apache-2.0
// Notifies: one-shot semaphores between streams.
#include "core/context.h"
#include "core/device.h"
#include "core/launch.h"
#include "core/settings.h"
#include "export.h"

using namespace aclsim;

namespace {

aclError find_notify(aclrtNotify handle, Notify **out) {
    if (handle == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "the notify is NULL");
    }
    *out = notify_table().find(handle);
    return *out != nullptr ? 0
                           : fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is no notify, or was destroyed", handle);
}

aclError launch(const char *function, aclrtNotify handle, aclrtStream stream_handle, Op op,
                uint64_t seconds) {
    Stream *stream = nullptr;
    Notify *notify = nullptr;
    if (aclError code = resolve_stream(stream_handle, &stream)) {
        return code;
    }
    if (aclError code = find_notify(handle, &notify)) {
        return code;
    }
    if (notify->device != stream->device) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "%s: the notify belongs to device %d, the stream to device %d", function,
                    notify->device->id, stream->device->id);
    }
    Entry entry;
    entry.op = op;
    entry.kind = op == Op::NotifyRecord ? "notify_record" : "notify_wait";
    entry.notify = notify;
    entry.timeout_ns = seconds * 1'000'000'000;
    Lock lock(stream->device->mutex);
    ++notify->tasks;
    if (aclError code = stream->device->enqueue(lock, *stream, entry)) {
        --notify->tasks;
        lock.unlock();
        return fail(code, "%s: %s", function, explain_blocked(code));
    }
    return 0;
}

}  // namespace

extern "C" {

ACL_EXPORT aclError aclrtCreateNotify(aclrtNotify *notify, uint64_t flag) {
    ACL_ENTER(aclrtCreateNotify);
    if (notify == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtCreateNotify: notify is NULL");
    }
    if (flag > ACL_NOTIFY_DEVICE_USE_ONLY) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "aclrtCreateNotify: flag %llu; 0 (default) and 1 (device only) exist",
                    static_cast<unsigned long long>(flag));
    }
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    Device &device = *context->device;
    Lock lock(device.mutex);
    Notify *made =
        device.notifies_in_use < device.profile().notify_limit ? notify_table().allocate() : nullptr;
    if (made == nullptr) {
        lock.unlock();
        return fail(ACL_ERROR_RT_NO_NOTIFY_RESOURCE,
                    "aclrtCreateNotify: all %u notifies of device %d are in use; "
                    "destroy some",
                    device.profile().notify_limit, device.id);
    }
    ++device.notifies_in_use;
    made->device = &device;
    if (device.free_notify_ids.empty()) {
        made->id = device.next_notify_id++;
    } else {
        made->id = *device.free_notify_ids.begin();
        device.free_notify_ids.erase(device.free_notify_ids.begin());
    }
    made->latched = made->destroyed = false;
    made->tasks = 0;
    made->waiting.clear();
    device.notifies.insert(made);
    notify_table().publish(*made);
    count_live("notifies", 1);
    *notify = made->handle;
    return 0;
}

ACL_EXPORT aclError aclrtDestroyNotify(aclrtNotify notify) {
    ACL_ENTER(aclrtDestroyNotify);
    Notify *found = nullptr;
    if (aclError code = find_notify(notify, &found)) {
        return code;
    }
    Lock lock(found->device->mutex);
    if (!notify_table().retract(*found)) {
        lock.unlock();
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "aclrtDestroyNotify: %p was destroyed meanwhile", notify);
    }
    found->destroyed = true;
    if (found->tasks == 0) {
        found->device->recycle(*found);
    }
    return 0;
}

ACL_EXPORT aclError aclrtRecordNotify(aclrtNotify notify, aclrtStream stream) {
    ACL_ENTER(aclrtRecordNotify);
    return launch("aclrtRecordNotify", notify, stream, Op::NotifyRecord, 0);
}

ACL_EXPORT aclError aclrtWaitAndResetNotify(aclrtNotify notify, aclrtStream stream, uint32_t timeout) {
    ACL_ENTER(aclrtWaitAndResetNotify);
    return launch("aclrtWaitAndResetNotify", notify, stream, Op::NotifyWait, timeout);
}

ACL_EXPORT aclError aclrtGetNotifyId(aclrtNotify notify, uint32_t *notifyId) {
    ACL_ENTER(aclrtGetNotifyId);
    if (notifyId == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetNotifyId: notifyId is NULL");
    }
    Notify *found = nullptr;
    if (aclError code = find_notify(notify, &found)) {
        return code;
    }
    *notifyId = static_cast<uint32_t>(found->id);
    return 0;
}

ACL_EXPORT aclError aclrtNotifyBatchReset(aclrtNotify *notifies, size_t num) {
    ACL_ENTER(aclrtNotifyBatchReset);
    if (notifies == nullptr || num == 0) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtNotifyBatchReset: needs at least one notify");
    }
    std::vector<Notify *> all(num);
    for (size_t i = 0; i < num; ++i) {
        if (aclError code = find_notify(notifies[i], &all[i])) {
            return code;
        }
    }
    for (Notify *notify : all) {
        Lock lock(notify->device->mutex);
        notify->latched = false;
    }
    return 0;
}

}  // extern "C"
