// SPDX-License-Identifier: Apache-2.0
// The three kinds of event, and notifies.
#include <algorithm>

#include "scene.h"

namespace {

aclrtEvent legacy() {
    aclrtEvent event = nullptr;
    OK(aclrtCreateEvent(&event));
    return event;
}

aclrtEvent flagged(uint32_t flags = ACL_EVENT_SYNC) {
    aclrtEvent event = nullptr;
    OK(aclrtCreateEventWithFlag(&event, flags));
    return event;
}

aclrtEventRecordedStatus status_of(aclrtEvent event) {
    aclrtEventRecordedStatus status = static_cast<aclrtEventRecordedStatus>(77);
    OK(aclrtQueryEventStatus(event, &status));
    return status;
}

constexpr auto complete = ACL_EVENT_RECORDED_STATUS_COMPLETE;
constexpr auto not_ready = ACL_EVENT_RECORDED_STATUS_NOT_READY;

}  // namespace

TEST(flags_are_checked) {
    Scene scene;
    aclrtEvent event = nullptr;
    for (uint32_t bad : {0u, 0x80u, uint32_t(ACL_EVENT_DEVICE_USE_ONLY | ACL_EVENT_SYNC),
                         uint32_t(ACL_EVENT_EXTERNAL | ACL_EVENT_SYNC)}) {
        CHECK_CODE(aclrtCreateEventWithFlag(&event, bad), ACL_ERROR_RT_PARAM_INVALID);
        CHECK_CODE(aclrtCreateEventExWithFlag(&event, bad), ACL_ERROR_RT_PARAM_INVALID);
    }
    CHECK_CODE(aclrtCreateEventWithFlag(&event, ACL_EVENT_IPC), ACL_ERROR_RT_PARAM_INVALID);
    OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_IPC));
    OK(aclrtDestroyEvent(event));
    CHECK_CODE(aclrtCreateEventExWithFlag(nullptr, ACL_EVENT_SYNC), ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtDestroyEvent(nullptr), ACL_ERROR_INVALID_PARAM);
    CHECK_EQ(aclsimLive("events"), 0);
}

TEST(before_any_record) {
    Scene scene;
    aclrtEvent old_event = legacy(), latch = flagged(), ex = scene.event();
    CHECK_EQ(status_of(old_event), not_ready);
    CHECK_EQ(status_of(latch), not_ready);
    CHECK_EQ(status_of(ex), complete);
    OK(aclrtSynchronizeEvent(old_event));
    OK(aclrtSynchronizeEvent(ex));
    CHECK_CODE(aclrtStreamWaitEvent(nullptr, old_event), ACL_ERROR_RT_PARAM_INVALID);
    OK(aclrtStreamWaitEvent(nullptr, ex));
    OK(aclrtSynchronizeStream(nullptr));
    CHECK_EQ(timeline().size(), 0u);
    aclrtEventStatus reversed = ACL_EVENT_STATUS_RESERVED;
    OK(aclrtQueryEvent(old_event, &reversed));
    CHECK_EQ(reversed, ACL_EVENT_STATUS_NOT_READY);
    CHECK_CODE(aclrtQueryEvent(ex, &reversed), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    aclrtEventWaitStatus waits;
    CHECK_CODE(aclrtQueryEventWaitStatus(ex, &waits), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    CHECK_CODE(aclrtQueryEventWaitStatus(old_event, &waits), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    CHECK_CODE(aclrtResetEvent(ex, nullptr), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    CHECK_CODE(aclrtResetEvent(old_event, nullptr), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    float ms = 0;
    uint64_t us = 0;
    CHECK_CODE(aclrtEventElapsedTime(&ms, ex, ex), ACL_ERROR_RT_INTERNAL_ERROR);
    CHECK_CODE(aclrtEventGetTimestamp(ex, &us), ACL_ERROR_RT_INTERNAL_ERROR);
}

TEST(both_status_enumerations) {
    Scene scene;
    aclrtEvent event = legacy();
    aclrtStream stream = scene.stream();
    OK(aclsimHoldStream(stream));
    OK(aclrtRecordEvent(event, stream));
    aclrtEventStatus reversed;
    OK(aclrtQueryEvent(event, &reversed));
    CHECK_EQ(int(reversed), 1);
    CHECK_EQ(int(status_of(event)), 0);
    OK(aclsimReleaseStream(stream));
    OK(aclrtSynchronizeEvent(event));
    OK(aclrtQueryEvent(event, &reversed));
    CHECK_EQ(int(reversed), 0);
    CHECK_EQ(int(status_of(event)), 1);
}

TEST(a_wait_binds_to_the_record_at_the_call) {
    for (bool ex : {true, false}) {
        Scene scene;
        aclrtEvent event = ex ? scene.event() : legacy();
        aclrtStream first = scene.stream(), second = scene.stream(), dependent = scene.stream();
        OK(aclsimHoldStream(first));
        OK(aclsimHoldStream(second));
        OK(aclrtRecordEvent(event, first));
        OK(aclrtStreamWaitEvent(dependent, event));
        OK(aclrtRecordEvent(event, second));
        OK(aclsimReleaseStream(first));
        OK(aclrtSynchronizeStream(dependent));
        CHECK_EQ(status_of(event), not_ready);
        OK(aclsimReleaseStream(second));
        OK(aclrtSynchronizeEvent(event));
        CHECK_EQ(status_of(event), complete);
    }
}

TEST(waits_that_cost_nothing) {
    Scene scene;
    aclrtEvent event = scene.event();
    aclrtStream stream = scene.stream(), other = scene.stream();
    OK(aclsimHoldStream(stream));
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtStreamWaitEvent(stream, event));
    OK(aclsimReleaseStream(stream));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtStreamWaitEvent(other, event));
    OK(aclrtSynchronizeStream(other));
    CHECK_EQ(timeline().size(), 1u);
}

TEST(without_sync_no_stream_can_wait) {
    Scene scene;
    aclrtEvent ex = scene.event(ACL_EVENT_TIME_LINE), latch = flagged(ACL_EVENT_TIME_LINE);
    OK(aclrtRecordEvent(ex, nullptr));
    CHECK_CODE(aclrtStreamWaitEvent(nullptr, ex), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    CHECK_CODE(aclrtStreamWaitEvent(nullptr, latch), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
}

TEST(a_flagged_event_is_a_latch) {
    Scene scene;
    aclrtEvent event = flagged();
    aclrtStream waiting = scene.stream(), recording = scene.stream();
    OK(aclrtStreamWaitEvent(waiting, event));
    aclrtEventWaitStatus waits;
    OK(aclrtQueryEventWaitStatus(event, &waits));
    CHECK_EQ(waits, ACL_EVENT_WAIT_STATUS_NOT_READY);
    CHECK_CODE(aclrtSynchronizeStreamWithTimeout(waiting, 1), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    OK(aclrtRecordEvent(event, recording));
    OK(aclrtSynchronizeStream(waiting));
    OK(aclrtQueryEventWaitStatus(event, &waits));
    CHECK_EQ(waits, ACL_EVENT_WAIT_STATUS_COMPLETE);
    OK(aclrtStreamWaitEvent(waiting, event));
    OK(aclrtSynchronizeStream(waiting));
    OK(aclrtResetEvent(event, recording));
    OK(aclrtSynchronizeStream(recording));
    OK(aclrtStreamWaitEvent(waiting, event));
    CHECK(!is_complete(waiting));
    OK(aclrtRecordEvent(event, recording));
    OK(aclrtSynchronizeStream(waiting));
    uint32_t id = 99;
    OK(aclrtGetEventId(event, &id));
    CHECK_EQ(id, 0u);
    CHECK_CODE(aclrtGetEventId(scene.event(), &id), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
}

TEST(destroying_an_event_in_use) {
    Scene scene;
    aclrtStream recording = scene.stream(), waiting = scene.stream();
    aclrtEvent ex = scene.event(), latch = flagged();
    OK(aclsimHoldStream(recording));
    OK(aclrtRecordEvent(ex, recording));
    OK(aclrtStreamWaitEvent(waiting, ex));
    OK(aclrtRecordEvent(latch, recording));
    OK(aclrtDestroyEvent(ex));
    OK(aclrtDestroyEvent(latch));
    CHECK_CODE(aclrtRecordEvent(ex, recording), ACL_ERROR_RT_INVALID_HANDLE);
    OK(aclsimReleaseStream(recording));
    OK(aclrtSynchronizeStream(waiting));
    OK(aclrtSynchronizeStream(recording));
    CHECK_EQ(aclsimLive("events"), 0);
    uint32_t left = 0;
    OK(aclrtGetEventAvailNum(&left));
    CHECK_EQ(left, 1023u);
}

TEST(event_synchronisation_times_out) {
    Scene scene;
    aclrtStream stream = scene.stream();
    aclrtEvent event = scene.event();
    OK(aclsimHoldStream(stream));
    OK(aclrtRecordEvent(event, stream));
    for (int32_t bad : {0, -2}) {
        CHECK_CODE(aclrtSynchronizeEventWithTimeout(event, bad), ACL_ERROR_RT_PARAM_INVALID);
    }
    CHECK_CODE(aclrtSynchronizeEventWithTimeout(event, 1), ACL_ERROR_RT_EVENT_SYNC_TIMEOUT);
    OK(aclsimReleaseStream(stream));
    OK(aclrtSynchronizeEventWithTimeout(event, -1));
}

TEST(an_event_does_not_tell_of_failures) {
    Scene scene;
    DeviceBuffer device(4);
    aclrtStream stream = scene.stream();
    aclrtEvent event = scene.event();
    OK(aclsimFailTask(0, stream, nullptr, 1, ACL_ERROR_RT_AICORE_EXCEPTION));
    OK(aclrtMemsetAsync(device.p, 4, 1, 4, stream));
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtSynchronizeEvent(event));
    CHECK_EQ(status_of(event), complete);
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_AICORE_EXCEPTION);
}

TEST(timing) {
    Scene scene;
    OK(aclsimSetClock(1));
    OK(aclsimSetProfile(0, "inference-card"));
    aclrtStream stream = scene.stream();
    DeviceBuffer device(12000000);
    HostBuffer host(12000000);
    aclrtEvent start = scene.event(), end = scene.event(), plain = scene.event(ACL_EVENT_SYNC);
    OK(aclsimHoldStream(stream));
    OK(aclrtRecordEvent(start, stream));
    OK(aclrtMemcpyAsync(device.p, device.size, host.p, host.size, ACL_MEMCPY_HOST_TO_DEVICE, stream));
    OK(aclrtRecordEvent(end, stream));
    OK(aclrtRecordEvent(plain, stream));
    float ms = 0;
    CHECK_CODE(aclrtEventElapsedTime(&ms, start, end), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID);
    OK(aclsimReleaseStream(stream));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtEventElapsedTime(&ms, start, end));
    // 12 MB at 12 GB/s, 10 us latency, and the launch overhead of the copy and of the record.
    CHECK(ms > 1.0199f && ms < 1.0201f);
    CHECK_CODE(aclrtEventElapsedTime(&ms, end, start), ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL);
    CHECK_CODE(aclrtEventElapsedTime(&ms, start, plain), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID);
    uint64_t first = 0, last = 0;
    OK(aclrtEventGetTimestamp(start, &first));
    OK(aclrtEventGetTimestamp(end, &last));
    CHECK(last - first >= 1019 && last - first <= 1021);
}

TEST(event_ids_run_out) {
    Scene scene;
    OK(aclsimLimitEvents(0, 2));
    aclrtEvent one = flagged(), two = flagged(), three = nullptr;
    CHECK_CODE(aclrtCreateEventWithFlag(&three, ACL_EVENT_SYNC), ACL_ERROR_RT_NO_EVENT_RESOURCE);
    uint32_t left = 9;
    OK(aclrtGetEventAvailNum(&left));
    CHECK_EQ(left, 0u);
    aclrtEvent ex = scene.event(), observer = scene.event(ACL_EVENT_TIME_LINE);
    OK(aclrtRecordEvent(observer, nullptr));
    CHECK_CODE(aclrtRecordEvent(ex, nullptr), ACL_ERROR_RT_NO_EVENT_RESOURCE);
    OK(aclrtDestroyEvent(one));
    OK(aclrtRecordEvent(ex, nullptr));
    OK(aclrtSynchronizeEvent(ex));
    OK(aclrtDestroyEvent(two));
    OK(aclrtGetEventAvailNum(&left));
    CHECK_EQ(left, 2u);
}

TEST(a_record_waits_for_an_event_id) {
    Scene scene;
    OK(aclsimLimitEvents(0, 1));
    aclrtStream stream = scene.stream();
    aclrtEvent one = scene.event(), two = scene.event();
    OK(aclsimHoldStream(stream));
    OK(aclrtRecordEvent(one, stream));
    std::thread release([&] { OK(aclsimReleaseStream(stream)); });
    OK(aclrtRecordEvent(two, nullptr));
    release.join();
    OK(aclrtSynchronizeEvent(two));
}

TEST(waits_with_a_timeout_fail_the_stream) {
    Scene scene;
    OK(aclsimSetClock(1));
    aclrtEvent event = flagged();
    aclrtStream stream = scene.stream();
    CHECK_CODE(aclrtStreamWaitEventWithTimeout(stream, event, -1), ACL_ERROR_RT_PARAM_INVALID);
    const uint64_t before = aclsimNow();
    OK(aclrtStreamWaitEventWithTimeout(stream, event, 3));
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_TASK_TIMEOUT);
    CHECK_EQ(aclsimNow() - before, 3000000000u);
    OK(aclrtStreamWaitEventWithFlag(stream, event, 2, ACL_EVENT_WAIT_DEFAULT));
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_TASK_TIMEOUT);
    CHECK_CODE(aclrtStreamWaitEventWithFlag(stream, event, 0, ACL_EVENT_WAIT_EXTERNAL),
               ACL_ERROR_RT_PARAM_INVALID);
    OK(aclrtSetOpWaitTimeout(5));
    OK(aclrtStreamWaitEvent(stream, event));
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_TASK_TIMEOUT);
    OK(aclrtSetOpWaitTimeout(0));
    CHECK_EQ(aclsimNow() - before, 10000000000u);
}

TEST(events_and_streams_of_different_devices) {
    Scene one(1);
    aclrtEvent there = one.event();
    OK(aclrtRecordEvent(there, nullptr));
    Scene zero(0);
    CHECK_CODE(aclrtRecordEvent(there, nullptr), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtStreamWaitEvent(nullptr, there), ACL_ERROR_RT_PARAM_INVALID);
    OK(aclrtSynchronizeEvent(there));
    CHECK_EQ(status_of(there), complete);
}

TEST(notifies_are_consumed) {
    Scene scene;
    aclrtNotify notify = nullptr;
    aclrtStream recording = scene.stream(), waiting = scene.stream();
    OK(aclrtCreateNotify(&notify, ACL_NOTIFY_DEFAULT));
    OK(aclrtRecordNotify(notify, recording));
    OK(aclrtSynchronizeStream(recording));
    OK(aclrtWaitAndResetNotify(notify, waiting, 0));
    OK(aclrtSynchronizeStream(waiting));
    OK(aclrtWaitAndResetNotify(notify, waiting, 0));
    CHECK_CODE(aclrtSynchronizeStreamWithTimeout(waiting, 1), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    OK(aclrtRecordNotify(notify, recording));
    OK(aclrtSynchronizeStream(waiting));
    OK(aclrtRecordNotify(notify, recording));
    OK(aclrtSynchronizeStream(recording));
    OK(aclrtNotifyBatchReset(&notify, 1));
    OK(aclsimSetClock(1));
    OK(aclrtWaitAndResetNotify(notify, waiting, 1));
    CHECK_CODE(aclrtSynchronizeStream(waiting), ACL_ERROR_RT_TASK_TIMEOUT);
    uint32_t id = 9;
    OK(aclrtGetNotifyId(notify, &id));
    CHECK_EQ(id, 0u);
    OK(aclrtDestroyNotify(notify));
    CHECK_CODE(aclrtRecordNotify(notify, recording), ACL_ERROR_RT_INVALID_HANDLE);
    CHECK_CODE(aclrtCreateNotify(&notify, 5), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_EQ(aclsimLive("notifies"), 0);
}
