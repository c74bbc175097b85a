// SPDX-License-Identifier: Apache-2.0
// Events seen from the host: status, synchronisation, time.
#include "core/context.h"
#include "core/device.h"
#include "core/event_access.h"
#include "core/launch.h"
#include "export.h"

namespace aclsim {

aclError find_event(aclrtEvent handle, Event **out) {
    if (handle == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "the event is NULL");
    }
    *out = event_table().find(handle);
    return *out != nullptr ? 0
                           : fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is no event, or was destroyed", handle);
}

}  // namespace aclsim

using namespace aclsim;

namespace {

// What the device or a context that stopped on failure has to say about the event's latest record.
aclError latched_code(const Event &event) {
    if (event.device->fault() != 0) {
        return event.device->fault();
    }
    const Record *record = event.last;
    return record != nullptr && record->context->id == record->context_id ? record->context->stop_code : 0;
}

bool is_done(const Event &event) {
    return event.last == nullptr ? event.kind == EventKind::Ex : event.last->done;
}

aclError synchronize_event(const char *function, aclrtEvent handle, int32_t timeout_ms) {
    Event *event = nullptr;
    if (aclError code = find_event(handle, &event)) {
        return code;
    }
    Device &device = *event->device;
    Lock lock(device.mutex);
    aclError code = latched_code(*event);
    if (code == 0 && event->last != nullptr) {
        Record *record = event->last;
        if (record->aborted) {
            code = ACL_ERROR_RT_STREAM_ABORT;
        } else {
            ++record->references;
            HostWaiter waiter(HostWaiter::For::Record, nullptr, 0);
            waiter.record = record;
            waiter.context = record->context;
            code = device.wait(lock, waiter, timeout_ms, ACL_ERROR_RT_EVENT_SYNC_TIMEOUT);
            device.unreference(record);
        }
    }
    lock.unlock();
    return code == 0 ? 0 : fail(code, "%s: %s", function, explain_blocked(code));
}

struct Stamp {
    bool recorded = false;
    bool timed = false;
    bool done = false;
    uint64_t ns = 0;
};

aclError read_stamp(aclrtEvent handle, Stamp *out) {
    Event *event = nullptr;
    if (aclError code = find_event(handle, &event)) {
        return code;
    }
    Lock lock(event->device->mutex);
    if (aclError code = latched_code(*event)) {
        lock.unlock();
        return fail(code, "%s", explain_blocked(code));
    }
    out->recorded = event->last != nullptr;
    out->timed = (event->flags & ACL_EVENT_TIME_LINE) != 0;
    out->done = out->recorded && event->last->done;
    out->ns = out->done ? event->last->time_ns : 0;
    return 0;
}

aclError check_stamp(const char *function, const Stamp &stamp, const char *which) {
    if (!stamp.recorded) {
        return fail(ACL_ERROR_RT_INTERNAL_ERROR, "%s: the %sevent was never recorded", function, which);
    }
    if (!stamp.timed) {
        return fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
                    "%s: the %sevent was created without ACL_EVENT_TIME_LINE", function, which);
    }
    if (!stamp.done) {
        return fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
                    "%s: the %sevent is not complete yet; synchronise it first", function, which);
    }
    return 0;
}

}  // namespace

extern "C" {

ACL_EXPORT aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus *status) {
    ACL_ENTER(aclrtQueryEvent);
    if (status == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtQueryEvent: status is NULL");
    }
    Event *found = nullptr;
    if (aclError code = find_event(event, &found)) {
        return code;
    }
    if (found->kind == EventKind::Ex) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    "aclrtQueryEvent does not take events of "
                    "aclrtCreateEventExWithFlag; use aclrtQueryEventStatus (its values are reversed)");
    }
    Lock lock(found->device->mutex);
    if (aclError code = latched_code(*found)) {
        lock.unlock();
        return fail(code, "aclrtQueryEvent: %s", explain_blocked(code));
    }
    *status = is_done(*found) ? ACL_EVENT_STATUS_COMPLETE : ACL_EVENT_STATUS_NOT_READY;
    return 0;
}

ACL_EXPORT aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status) {
    ACL_ENTER(aclrtQueryEventStatus);
    if (status == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtQueryEventStatus: status is NULL");
    }
    Event *found = nullptr;
    if (aclError code = find_event(event, &found)) {
        return code;
    }
    Lock lock(found->device->mutex);
    if (aclError code = latched_code(*found)) {
        lock.unlock();
        return fail(code, "aclrtQueryEventStatus: %s", explain_blocked(code));
    }
    *status = is_done(*found) ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return 0;
}

ACL_EXPORT aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus *status) {
    ACL_ENTER(aclrtQueryEventWaitStatus);
    if (status == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtQueryEventWaitStatus: status is NULL");
    }
    Event *found = nullptr;
    if (aclError code = find_event(event, &found)) {
        return code;
    }
    if (found->kind != EventKind::Flagged || (found->flags & ACL_EVENT_SYNC) == 0) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    "aclrtQueryEventWaitStatus: only events of aclrtCreateEventWithFlag "
                    "with ACL_EVENT_SYNC keep track of waits");
    }
    Lock lock(found->device->mutex);
    if (aclError code = latched_code(*found)) {
        lock.unlock();
        return fail(code, "aclrtQueryEventWaitStatus: %s", explain_blocked(code));
    }
    *status = found->waits_finished >= found->waits_submitted ? ACL_EVENT_WAIT_STATUS_COMPLETE
                                                              : ACL_EVENT_WAIT_STATUS_NOT_READY;
    return 0;
}

ACL_EXPORT aclError aclrtSynchronizeEvent(aclrtEvent event) {
    ACL_ENTER(aclrtSynchronizeEvent);
    return synchronize_event("aclrtSynchronizeEvent", event, -1);
}

ACL_EXPORT aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
    ACL_ENTER(aclrtSynchronizeEventWithTimeout);
    if (timeout != -1 && timeout <= 0) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "aclrtSynchronizeEventWithTimeout: timeout %d ms; use -1 to wait for "
                    "ever, or a positive number",
                    timeout);
    }
    return synchronize_event("aclrtSynchronizeEventWithTimeout", event, timeout);
}

ACL_EXPORT aclError aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent) {
    ACL_ENTER(aclrtEventElapsedTime);
    if (ms == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtEventElapsedTime: ms is NULL");
    }
    Stamp start, end;
    for (const auto &[handle, stamp] : {std::make_pair(startEvent, &start), std::make_pair(endEvent, &end)}) {
        if (aclError code = read_stamp(handle, stamp)) {
            return code;
        }
        if (aclError code =
                check_stamp("aclrtEventElapsedTime", *stamp, stamp == &start ? "start " : "end ")) {
            return code;
        }
    }
    if (end.ns < start.ns) {
        return fail(ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL,
                    "aclrtEventElapsedTime: the end event was recorded before the "
                    "start event");
    }
    *ms = static_cast<float>(static_cast<double>(end.ns - start.ns) / 1e6);
    return 0;
}

ACL_EXPORT aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t *timestamp) {
    ACL_ENTER(aclrtEventGetTimestamp);
    if (timestamp == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtEventGetTimestamp: timestamp is NULL");
    }
    Stamp stamp;
    if (aclError code = read_stamp(event, &stamp)) {
        return code;
    }
    if (aclError code = check_stamp("aclrtEventGetTimestamp", stamp, "")) {
        return code;
    }
    *timestamp = stamp.ns / 1000;
    return 0;
}

ACL_EXPORT aclError aclrtGetEventId(aclrtEvent event, uint32_t *eventId) {
    ACL_ENTER(aclrtGetEventId);
    if (eventId == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetEventId: eventId is NULL");
    }
    Event *found = nullptr;
    if (aclError code = find_event(event, &found)) {
        return code;
    }
    if (found->id < 0) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    "aclrtGetEventId: only events of aclrtCreateEventWithFlag with "
                    "ACL_EVENT_SYNC have an id of their own");
    }
    *eventId = static_cast<uint32_t>(found->id);
    return 0;
}

ACL_EXPORT aclError aclrtGetEventAvailNum(uint32_t *eventCount) {
    ACL_ENTER(aclrtGetEventAvailNum);
    if (eventCount == nullptr) {
        return fail(ACL_ERROR_INVALID_PARAM, "aclrtGetEventAvailNum: eventCount is NULL");
    }
    Context *context = nullptr;
    if (aclError code = working_context(&context)) {
        return code;
    }
    Lock lock(context->device->mutex);
    const uint32_t limit = context->device->event_limit();
    const uint32_t used = context->device->events_in_use;
    *eventCount = limit > used ? limit - used : 0;
    return 0;
}

}  // extern "C"
