// SPDX-License-Identifier: Apache-2.0
// Host callbacks on streams.
#include "core/context.h"
#include "core/device.h"
#include "core/launch.h"
#include "core/report.h"
#include "core/thread_state.h"
#include "export.h"

using namespace aclsim;

namespace {

// A report carries 48 bits of the argument.
void *as_carried(void *user_data) {
    constexpr uint64_t mask = (uint64_t{1} << 48) - 1;
    return reinterpret_cast<void *>(static_cast<uintptr_t>(reinterpret_cast<uintptr_t>(user_data) & mask));
}

aclError launch(Stream &stream, const char *kind, void (*function)(void *), void *user_data, bool block) {
    constexpr uint8_t block_slots = 3;  // the callback, the wait for its end, the reset
    Entry entry;
    entry.op = Op::Callback;
    entry.kind = kind;
    entry.unit = Unit::None;
    entry.block = block;
    entry.slots = block ? block_slots : 1;
    entry.callback.function = function;
    entry.callback.user_data = as_carried(user_data);
    Lock lock(stream.device->mutex);
    if (aclError code = stream.device->enqueue(lock, stream, entry)) {
        lock.unlock();
        return fail(code, "%s was not launched: %s", kind, explain_blocked(code));
    }
    ++stream.device->callbacks_launched;
    const std::shared_ptr<ReportGroup> ringing = stream.device->take_ringing();
    lock.unlock();
    if (ringing != nullptr) {
        ringing->ring();
    }
    return 0;
}

enum class Served { Nobody, Thread, HostFunctions };

Served served_by(Stream &stream) {
    Lock lock(stream.device->mutex);
    return stream.group == nullptr  ? Served::Nobody
           : stream.group_is_hidden ? Served::HostFunctions
                                    : Served::Thread;
}

}  // namespace

extern "C" {

ACL_EXPORT aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream) {
    ACL_ENTER(aclrtSubscribeReport);
    Context *context = nullptr;
    Stream *found = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    if (aclError code = find_stream(stream, *context, &found)) {
        return code;
    }
    return subscribe_report(threadId, *found);
}

ACL_EXPORT aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream) {
    ACL_ENTER(aclrtUnSubscribeReport);
    Stream *found = nullptr;
    if (stream == nullptr) {
        if (aclError code = resolve_stream(stream, &found)) {
            return code;
        }
    } else {
        found = stream_table().find(stream);
        if (found == nullptr) {
            return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is no stream, or was destroyed", stream);
        }
    }
    return unsubscribe_report(threadId, *found);
}

ACL_EXPORT aclError aclrtLaunchCallback(aclrtCallback fn, void *userData, aclrtCallbackBlockType blockType,
                                        aclrtStream stream) {
    ACL_ENTER(aclrtLaunchCallback);
    if (blockType != ACL_CALLBACK_NO_BLOCK && blockType != ACL_CALLBACK_BLOCK) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "aclrtLaunchCallback: blockType %d is neither NO_BLOCK (0) nor BLOCK (1)",
                    static_cast<int>(blockType));
    }
    if (fn == nullptr) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtLaunchCallback: fn is NULL");
    }
    Stream *found = nullptr;
    if (aclError code = resolve_stream(stream, &found)) {
        return code;
    }
    switch (served_by(*found)) {
        case Served::Nobody:
            return fail(ACL_ERROR_RT_STREAM_NO_CB_REG,
                        "aclrtLaunchCallback: no thread is subscribed to stream %d; call "
                        "aclrtSubscribeReport first",
                        found->id);
        case Served::HostFunctions:
            return fail(ACL_ERROR_RT_STREAM_SUBSCRIBE,
                        "aclrtLaunchCallback: stream %d is in use by aclrtLaunchHostFunc", found->id);
        case Served::Thread: break;
    }
    return launch(*found, "callback", fn, userData, blockType == ACL_CALLBACK_BLOCK);
}

ACL_EXPORT aclError aclrtProcessReport(int32_t timeout) {
    ACL_ENTER(aclrtProcessReport);
    if (timeout == 0 || timeout < -1) {
        return fail(ACL_ERROR_INVALID_PARAM,
                    "aclrtProcessReport: timeout %d ms; use -1 to wait for ever, or a positive "
                    "number. There is no way to poll",
                    timeout);
    }
    return process_report(timeout);
}

ACL_EXPORT aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void *args) {
    ACL_ENTER(aclrtLaunchHostFunc);
    if (fn == nullptr) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtLaunchHostFunc: fn is NULL");
    }
    Stream *found = nullptr;
    if (aclError code = resolve_stream(stream, &found)) {
        return code;
    }
    if (aclError code = subscribe_host_functions(*found)) {
        return code;
    }
    return launch(*found, "host_func", fn, args, true);
}

}  // extern "C"
