// SPDX-License-Identifier: Apache-2.0
// Creating, recording and waiting for events. The three ways of creating one differ in what the event means:
// legacy and Ex events capture a record, events created with flags are a latch that stays set until it is
// reset.
#include <chrono>

#include "core/context.h"
#include "core/device.h"
#include "core/event_access.h"
#include "core/launch.h"
#include "core/settings.h"
#include "export.h"

using namespace aclsim;

namespace {

constexpr uint32_t combinable = ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | ACL_EVENT_TIME_LINE;

bool valid_flags(uint32_t flags, bool ex) {
    return (flags != 0 && (flags & ~combinable) == 0) || flags == ACL_EVENT_DEVICE_USE_ONLY ||
           flags == ACL_EVENT_EXTERNAL || (ex && flags == ACL_EVENT_IPC);
}

aclError create_event(const char *function, aclrtEvent *out, EventKind kind, uint32_t flags) {
    if (out == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "%s: event is NULL", function);
    }
    if (kind != EventKind::Legacy && !valid_flags(flags, kind == EventKind::Ex)) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "%s: flag 0x%x; combine SYNC 1, CAPTURE_STREAM_PROGRESS 2 and TIME_LINE "
                    "8, or give one of the others alone",
                    function, flags);
    }
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    Device &device = *context->device;
    Lock lock(device.mutex);
    int32_t id = -1;
    if (kind == EventKind::Flagged && (flags & ACL_EVENT_SYNC) != 0) {
        if (aclError code = device.take_event_id(&id)) {
            lock.unlock();
            return fail(code, "%s: all %u event ids of device %d are in use; destroy some events", function,
                        device.event_limit(), device.id);
        }
    }
    Event *event = event_table().allocate();
    if (event == nullptr) {
        lock.unlock();
        return fail(ACL_ERROR_RT_NO_EVENT_RESOURCE, "%s: no further event can be made", function);
    }
    event->device = &device;
    event->kind = kind;
    event->flags = kind == EventKind::Legacy ? combinable : flags;
    event->id = id;
    event->latched = event->destroyed = false;
    event->waits_submitted = event->waits_finished = 0;
    event->tasks = 0;
    event->last = nullptr;
    event->waiting.clear();
    device.events.insert(event);
    event_table().publish(*event);
    count_live("events", 1);
    *out = event->handle;
    return 0;
}

// The event id a record occupies from now until it and its waits are through. Waits for one as the real
// runtime does.
aclError take_record_id(Lock &lock, Device &device, const Stream &stream) {
    constexpr int32_t limit_ms = 1000;
    aclError code = device.take_event_id(nullptr);
    while (code != 0) {
        HostWaiter waiter(HostWaiter::For::EventId, nullptr, 0);
        waiter.context = stream.context;
        if (device.wait(lock, waiter, limit_ms, code) != 0) {
            return waiter.code;
        }
        code = device.take_event_id(nullptr);
    }
    return 0;
}

aclError record_event(const char *function, aclrtEvent handle, aclrtStream stream_handle) {
    Stream *stream = nullptr;
    Event *event = nullptr;
    if (aclError code = resolve_stream(stream_handle, &stream)) {
        return code;
    }
    if (aclError code = find_event(handle, &event)) {
        return code;
    }
    if (event->device != stream->device) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: the event belongs to device %d, the stream to device %d",
                    function, event->device->id, stream->device->id);
    }
    Device &device = *stream->device;
    Lock lock(device.mutex);
    const bool holds_id = event->kind != EventKind::Flagged && (event->flags & ACL_EVENT_SYNC) != 0;
    if (holds_id) {
        if (aclError code = take_record_id(lock, device, *stream)) {
            lock.unlock();
            return fail(code, "%s: no event id of device %d became free", function, device.id);
        }
    }
    Record *record = device.new_record();  // one reference, for the task
    record->pending = 1;
    record->holds_id = holds_id;
    record->stream_handle = stream->handle;
    record->context = stream->context;
    record->context_id = stream->context->id;
    Entry entry;
    entry.op = Op::Record;
    entry.kind = "event_record";
    entry.event.event = event;
    entry.event.record = record;
    ++record->references;  // the event's
    ++event->tasks;
    if (aclError code = device.enqueue(lock, *stream, entry)) {
        --event->tasks;
        device.settle(*record);
        device.unreference(record);
        lock.unlock();
        return fail(code, "%s: %s", function, explain_blocked(code));
    }
    device.unreference(event->last);
    event->last = record;
    return 0;
}

aclError wait_latch(Lock &lock, Stream &stream, Event &event, Entry &entry) {
    entry.op = Op::WaitLatch;
    ++event.tasks;
    const aclError code = stream.device->enqueue(lock, stream, entry);
    if (code != 0) {
        --event.tasks;
    } else {
        ++event.waits_submitted;
    }
    return code;
}

aclError wait_record(Lock &lock, Stream &stream, Record &record, Entry &entry) {
    entry.op = Op::Wait;
    entry.event.record = &record;
    ++record.references;
    ++record.pending;
    const aclError code = stream.device->enqueue(lock, stream, entry);
    if (code != 0) {
        stream.device->settle(record);
    }
    return code;
}

aclError wait_event(const char *function, aclrtStream stream_handle, aclrtEvent handle, uint64_t seconds) {
    Stream *stream = nullptr;
    Event *event = nullptr;
    if (aclError code = resolve_stream(stream_handle, &stream)) {
        return code;
    }
    if (aclError code = find_event(handle, &event)) {
        return code;
    }
    if (event->device != stream->device) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "%s: the event belongs to device %d, the stream to device %d; streams "
                    "wait for events of their own device",
                    function, event->device->id, stream->device->id);
    }
    if ((event->flags & ACL_EVENT_SYNC) == 0) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    "%s: the event was created without ACL_EVENT_SYNC (flags 0x%x), so "
                    "no stream can wait for it",
                    function, event->flags);
    }
    Device &device = *stream->device;
    Lock lock(device.mutex);
    if (const aclError code = device.blocked_code(*stream)) {
        lock.unlock();
        return fail(code, "%s: %s", function, explain_blocked(code));
    }
    Entry entry;
    entry.kind = "event_wait";
    entry.event.event = event;
    const uint64_t limit_s = seconds != 0 ? seconds : settings().op_wait_timeout_s.load();
    entry.timeout_ns = limit_s * 1'000'000'000;
    aclError code = 0;
    if (event->kind == EventKind::Flagged) {
        code = wait_latch(lock, *stream, *event, entry);
    } else if (event->last == nullptr) {
        code = event->kind == EventKind::Legacy ? ACL_ERROR_RT_PARAM_INVALID : 0;
    } else if (!event->last->done && event->last->stream_handle != stream->handle) {
        code = wait_record(lock, *stream, *event->last, entry);
    }
    lock.unlock();
    if (code == ACL_ERROR_RT_PARAM_INVALID) {
        return fail(code,
                    "%s: the event was never recorded; record it first, or create it with "
                    "aclrtCreateEventExWithFlag",
                    function);
    }
    return code == 0 ? 0 : fail(code, "%s: %s", function, explain_blocked(code));
}

}  // namespace

extern "C" {

ACL_EXPORT aclError aclrtCreateEvent(aclrtEvent *event) {
    ACL_ENTER(aclrtCreateEvent);
    return create_event("aclrtCreateEvent", event, EventKind::Legacy, 0);
}

ACL_EXPORT aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag) {
    ACL_ENTER(aclrtCreateEventWithFlag);
    return create_event("aclrtCreateEventWithFlag", event, EventKind::Flagged, flag);
}

ACL_EXPORT aclError aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t flag) {
    ACL_ENTER(aclrtCreateEventExWithFlag);
    return create_event("aclrtCreateEventExWithFlag", event, EventKind::Ex, flag);
}

ACL_EXPORT aclError aclrtDestroyEvent(aclrtEvent event) {
    ACL_ENTER(aclrtDestroyEvent);
    if (event == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtDestroyEvent: event is NULL");
    }
    Event *found = nullptr;
    if (aclError code = find_event(event, &found)) {
        return code;
    }
    Lock lock(found->device->mutex);
    if (!event_table().retract(*found)) {
        lock.unlock();
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "aclrtDestroyEvent: %p was destroyed meanwhile", event);
    }
    found->destroyed = true;
    if (found->tasks == 0) {
        found->device->recycle(*found);
    }
    return 0;
}

ACL_EXPORT aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
    ACL_ENTER(aclrtRecordEvent);
    return record_event("aclrtRecordEvent", event, stream);
}

ACL_EXPORT aclError aclrtRecordEventWithFlag(aclrtEvent event, aclrtStream stream, uint32_t flag) {
    ACL_ENTER(aclrtRecordEventWithFlag);
    if (flag != ACL_EVENT_RECORD_DEFAULT) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "aclrtRecordEventWithFlag: flag %u; EXTERNAL records exist only inside "
                    "graph capture, which the simulator does not have. Use 0",
                    flag);
    }
    return record_event("aclrtRecordEventWithFlag", event, stream);
}

ACL_EXPORT aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
    ACL_ENTER(aclrtStreamWaitEvent);
    return wait_event("aclrtStreamWaitEvent", stream, event, 0);
}

ACL_EXPORT aclError aclrtStreamWaitEventWithTimeout(aclrtStream stream, aclrtEvent event, int32_t timeout) {
    ACL_ENTER(aclrtStreamWaitEventWithTimeout);
    if (timeout < 0) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "aclrtStreamWaitEventWithTimeout: timeout %d s; 0 waits for ever", timeout);
    }
    return wait_event("aclrtStreamWaitEventWithTimeout", stream, event, static_cast<uint64_t>(timeout));
}

ACL_EXPORT aclError aclrtStreamWaitEventWithFlag(aclrtStream stream, aclrtEvent event, uint32_t timeout,
                                                 uint32_t flag) {
    ACL_ENTER(aclrtStreamWaitEventWithFlag);
    if (flag != ACL_EVENT_WAIT_DEFAULT) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "aclrtStreamWaitEventWithFlag: flag %u; EXTERNAL waits exist only inside "
                    "graph capture, which the simulator does not have. Use 0",
                    flag);
    }
    return wait_event("aclrtStreamWaitEventWithFlag", stream, event, timeout);
}

ACL_EXPORT aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
    ACL_ENTER(aclrtResetEvent);
    Stream *found_stream = nullptr;
    Event *found = nullptr;
    if (aclError code = resolve_stream(stream, &found_stream)) {
        return code;
    }
    if (aclError code = find_event(event, &found)) {
        return code;
    }
    if (found->kind != EventKind::Flagged) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    "aclrtResetEvent: only events of aclrtCreateEventWithFlag stay set "
                    "and need a reset");
    }
    Device &device = *found_stream->device;
    Entry entry;
    entry.op = Op::ResetLatch;
    entry.kind = "event_reset";
    entry.event.event = found;
    Lock lock(device.mutex);
    ++found->tasks;
    if (aclError code = device.enqueue(lock, *found_stream, entry)) {
        --found->tasks;
        lock.unlock();
        return fail(code, "aclrtResetEvent: %s", explain_blocked(code));
    }
    return 0;
}

}  // extern "C"
