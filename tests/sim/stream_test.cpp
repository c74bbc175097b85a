// SPDX-License-Identifier: Apache-2.0
// Order, waiting, errors, back-pressure, abort.
#include <algorithm>

#include "scene.h"

namespace {

struct Copies {
    DeviceBuffer device{64};
    HostBuffer host{64};
    int into(aclrtStream stream) {
        return aclrtMemcpyAsync(device.p, 64, host.p, 64, ACL_MEMCPY_HOST_TO_DEVICE, stream);
    }
};

}  // namespace

TEST(tasks_of_a_stream_run_in_order) {
    Scene scene;
    aclrtStream stream = scene.stream();
    DeviceBuffer device(1);
    HostBuffer host(256);
    OK(aclsimHoldStream(stream));
    for (int i = 0; i < 256; ++i) {
        OK(aclrtMemsetAsync(device.p, 1, i, 1, stream));
        OK(aclrtMemcpyAsync(host.bytes() + i, 1, device.p, 1, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    }
    CHECK(!is_complete(stream));
    CHECK_EQ(aclsimLive("tasks"), 512);
    OK(aclsimReleaseStream(stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK(is_complete(stream));
    CHECK_EQ(aclsimLive("tasks"), 0);
    for (int i = 0; i < 256; ++i) {
        CHECK_EQ(int(host.bytes()[i]), i);
    }
}

TEST(a_small_task_without_duration_is_over_when_its_launch_returns) {
    Scene scene;
    Copies copies;
    aclrtStream stream = scene.stream(), other = scene.stream();
    aclrtEvent event = scene.event();
    copies.host.bytes()[0] = 42;
    OK(copies.into(stream));
    CHECK(is_complete(stream));
    HostBuffer back(64);
    OK(aclrtMemcpyAsync(back.p, 64, copies.device.p, 64, ACL_MEMCPY_DEVICE_TO_HOST, stream));
    CHECK_EQ(int(back.bytes()[0]), 42);

    OK(aclsimHoldStream(stream));  // then it keeps its place
    OK(aclrtMemsetAsync(copies.device.p, 64, 1, 64, stream));
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtStreamWaitEvent(other, event));
    OK(aclrtMemcpyAsync(back.p, 64, copies.device.p, 64, ACL_MEMCPY_DEVICE_TO_HOST, other));
    CHECK(!is_complete(other));
    CHECK_EQ(int(back.bytes()[0]), 42);
    OK(aclsimReleaseStream(stream));
    OK(aclrtSynchronizeStream(other));
    CHECK_EQ(int(back.bytes()[0]), 1);
    OK(aclrtMemsetAsync(copies.device.p, 64, 2, 64, other));
    CHECK(is_complete(other));
}

TEST(a_failing_task_without_duration_fails_like_any_other) {
    Scene scene;
    Copies copies;
    aclrtStream stream = scene.stream();
    OK(aclsimFailTask(0, stream, "memcpy_h2d", 1, ACL_ERROR_RT_AICORE_EXCEPTION));
    OK(copies.into(stream));
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_AICORE_EXCEPTION);
    OK(copies.into(stream));
    OK(aclrtSynchronizeStream(stream));
}

TEST(the_default_stream_orders_with_nobody) {
    Scene scene;
    Copies copies;
    aclrtStream stream = scene.stream();
    aclrtStream standard = nullptr;
    OK(aclrtCtxGetCurrentDefaultStream(&standard));
    int32_t by_null = -1, by_handle = -2;
    OK(aclrtStreamGetId(nullptr, &by_null));
    OK(aclrtStreamGetId(standard, &by_handle));
    CHECK_EQ(by_null, by_handle);
    OK(aclsimHoldStream(stream));
    OK(copies.into(stream));
    OK(copies.into(nullptr));
    OK(aclrtSynchronizeStream(nullptr));
    CHECK(!is_complete(stream));
    OK(aclsimReleaseStream(stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK_CODE(aclrtDestroyStream(nullptr), ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtDestroyStream(standard), ACL_ERROR_RT_PARAM_INVALID);
}

TEST(timeouts) {
    Scene scene;
    Copies copies;
    aclrtStream stream = scene.stream();
    OK(aclsimHoldStream(stream));
    OK(copies.into(stream));
    for (int32_t bad : {0, -2, -100}) {
        CHECK_CODE(aclrtSynchronizeStreamWithTimeout(stream, bad), ACL_ERROR_RT_PARAM_INVALID);
        CHECK_CODE(aclrtSynchronizeDeviceWithTimeout(bad), ACL_ERROR_RT_PARAM_INVALID);
    }
    CHECK_CODE(aclrtSynchronizeStreamWithTimeout(stream, 1), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    CHECK_CODE(aclrtSynchronizeDeviceWithTimeout(1), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    OK(aclsimReleaseStream(stream));
    OK(aclrtSynchronizeStreamWithTimeout(stream, -1));
    OK(aclrtSynchronizeDeviceWithTimeout(60000));
}

TEST(continue_mode_reports_the_last_error_once) {
    Scene scene;
    Copies copies;
    aclrtStream stream = scene.stream(), other = scene.stream();
    OK(aclsimHoldStream(stream));
    OK(aclsimFailTask(0, stream, nullptr, 1, ACL_ERROR_RT_AICORE_EXCEPTION));
    OK(aclsimFailTask(0, stream, nullptr, 2, ACL_ERROR_RT_AICORE_TIMEOUT));
    std::memset(copies.host.p, 9, 64);
    for (int i = 0; i < 3; ++i) {
        OK(copies.into(stream));
    }
    OK(aclsimReleaseStream(stream));
    OK(aclsimWaitTasks(stream, 3, -1));
    CHECK(is_complete(stream));
    OK(copies.into(stream));
    OK(aclrtSynchronizeStream(other));
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_AICORE_TIMEOUT);
    const char *message = aclGetRecentErrMsg();
    CHECK(message != nullptr && std::strstr(message, "memcpy_h2d") != nullptr);
    CHECK_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), ACL_ERROR_RT_AICORE_TIMEOUT);
    OK(aclrtSynchronizeStream(stream));
    unsigned char back[64];
    OK(aclrtMemcpy(back, 64, copies.device.p, 64, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK_EQ(int(back[63]), 9);
}

TEST(a_failed_task_has_no_effect) {
    Scene scene;
    aclrtStream stream = scene.stream();
    DeviceBuffer device(16);
    OK(aclrtMemset(device.p, 16, 1, 16));
    OK(aclsimFailTask(0, nullptr, "memset", 1, ACL_ERROR_RT_SYS_DMA));
    OK(aclrtMemsetAsync(device.p, 16, 2, 16, stream));
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_SYS_DMA);
    unsigned char back[16];
    OK(aclrtMemcpy(back, 16, device.p, 16, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK_EQ(int(back[0]), 1);
}

TEST(synchronize_device_takes_all_errors_of_the_context) {
    Scene scene;
    Copies copies;
    aclrtStream first = scene.stream(), second = scene.stream();
    OK(aclsimFailTask(0, first, nullptr, 1, ACL_ERROR_RT_AICORE_EXCEPTION));
    OK(aclsimFailTask(0, second, nullptr, 1, ACL_ERROR_RT_AICPU_EXCEPTION));
    OK(copies.into(second));
    OK(copies.into(first));
    CHECK_CODE(aclrtSynchronizeDevice(), ACL_ERROR_RT_AICORE_EXCEPTION);
    OK(aclrtSynchronizeDevice());
    OK(aclrtSynchronizeStream(second));
}

TEST(stop_mode_ends_the_whole_context) {
    Scene scene;
    Copies copies;
    aclrtStream stream = scene.stream(), other = scene.stream();
    aclrtEvent event = scene.event();
    const int code = ACL_ERROR_RT_AICORE_EXCEPTION;
    OK(aclrtSetStreamFailureMode(stream, ACL_STOP_ON_FAILURE));
    OK(aclrtSetStreamFailureMode(stream, ACL_STOP_ON_FAILURE));
    CHECK_CODE(aclrtSetStreamFailureMode(stream, ACL_CONTINUE_ON_FAILURE), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    OK(aclsimHoldStream(other));
    OK(aclrtRecordEvent(event, other));
    OK(copies.into(other));
    int waited = 0, waited_event = 0;
    std::thread waiter([&, context = scene.context()] {
        OK(aclrtSetCurrentContext(context));
        waited = aclrtSynchronizeStream(other);
        waited_event = aclrtSynchronizeEvent(event);
    });
    OK(aclsimWaitBlocked(other, 1, -1));
    OK(aclsimFailTask(0, stream, nullptr, 1, code));
    OK(copies.into(stream));
    waiter.join();
    CHECK_EQ(waited, code);
    CHECK_EQ(waited_event, code);
    aclrtStreamStatus status;
    aclrtEventRecordedStatus recorded;
    for (int again = 0; again < 2; ++again) {
        CHECK_CODE(aclrtSynchronizeStream(stream), code);
        CHECK_CODE(aclrtSynchronizeStream(other), code);
        CHECK_CODE(aclrtSynchronizeStream(nullptr), code);
        CHECK_CODE(aclrtSynchronizeDevice(), code);
        CHECK_CODE(aclrtStreamQuery(other, &status), code);
        CHECK_CODE(aclrtQueryEventStatus(event, &recorded), code);
        CHECK_CODE(copies.into(other), code);
        CHECK_CODE(aclrtRecordEvent(event, stream), code);
        CHECK_CODE(aclrtStreamWaitEvent(stream, event), code);
    }
    OK(aclrtDestroyStream(other));
    OK(aclrtDestroyStream(stream));
}

TEST(stop_mode_spares_other_contexts) {
    Scene scene;
    Copies copies;
    aclrtContext mine = nullptr;
    OK(aclrtCreateContext(&mine, 0));
    aclrtStream stream = scene.stream();
    OK(aclrtSetStreamFailureMode(stream, 1));
    OK(aclsimFailTask(0, stream, nullptr, 1, ACL_ERROR_RT_AICORE_EXCEPTION));
    OK(copies.into(stream));
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_AICORE_EXCEPTION);
    OK(aclrtSetDevice(0));
    OK(copies.into(nullptr));
    OK(aclrtSynchronizeStream(nullptr));
    // Synchronising into a failed context leaves the thread there.
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_AICORE_EXCEPTION);
    CHECK_EQ(scene.context(), mine);
    OK(aclrtDestroyContext(mine));
    OK(aclrtResetDevice(0));
    OK(aclrtSetCurrentContext([] {
        aclrtContext context = nullptr;
        OK(aclrtSetDevice(0));
        OK(aclrtGetCurrentContext(&context));
        return context;
    }()));
}

TEST(a_full_queue_blocks_the_launch) {
    Scene scene;
    Copies copies;
    aclrtStream stream = scene.stream();
    OK(aclsimSetQueueDepth(8));
    CHECK_CODE(aclsimSetQueueDepth(3), ACL_ERROR_RT_PARAM_INVALID);
    OK(aclsimHoldStream(stream));
    for (int i = 0; i < 8; ++i) {
        OK(copies.into(stream));
    }
    std::atomic<int> ninth{-1};
    std::thread launcher([&, context = scene.context()] {
        OK(aclrtSetCurrentContext(context));
        ninth = copies.into(stream);
    });
    OK(aclsimWaitBlocked(stream, 1, -1));
    CHECK_EQ(ninth.load(), -1);
    OK(aclsimStep(stream, 1));
    launcher.join();
    CHECK_EQ(ninth.load(), 0);
    CHECK(!is_complete(stream));
    OK(aclsimReleaseStream(stream));
    OK(aclrtSynchronizeStream(stream));
}

TEST(abort_frees_a_blocked_launch_and_waiters) {
    Scene scene;
    Copies copies;
    aclrtStream stream = scene.stream();
    OK(aclsimSetQueueDepth(4));
    OK(aclsimHoldStream(stream));
    for (int i = 0; i < 4; ++i) {
        OK(copies.into(stream));
    }
    std::atomic<int> launched{-1}, synced{-1};
    std::thread launcher([&, context = scene.context()] {
        OK(aclrtSetCurrentContext(context));
        launched = copies.into(stream);
    });
    std::thread waiter([&, context = scene.context()] {
        OK(aclrtSetCurrentContext(context));
        synced = aclrtSynchronizeStream(stream);
    });
    OK(aclsimWaitBlocked(stream, 2, -1));
    OK(aclrtStreamAbort(stream));
    launcher.join();
    waiter.join();
    CHECK_EQ(launched.load(), ACL_ERROR_RT_STREAM_ABORT);
    CHECK_EQ(synced.load(), ACL_ERROR_RT_STREAM_ABORT);
    CHECK(is_complete(stream));
    CHECK_EQ(timeline().size(), 0u);
    OK(aclsimReleaseStream(stream));
    OK(copies.into(stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK_EQ(timeline().size(), 1u);
}

TEST(waits_on_an_aborted_record) {
    Scene scene;
    aclrtStream recorder = scene.stream(), dependent = scene.stream();
    aclrtEvent event = scene.event();
    OK(aclsimHoldStream(recorder));
    OK(aclrtRecordEvent(event, recorder));
    OK(aclrtStreamWaitEvent(dependent, event));
    OK(aclrtStreamAbort(recorder));
    CHECK_CODE(aclrtSynchronizeEvent(event), ACL_ERROR_RT_STREAM_ABORT);
    CHECK_CODE(aclrtSynchronizeStreamWithTimeout(dependent, 1), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    OK(aclrtStreamAbort(dependent));
    OK(aclrtSynchronizeStream(dependent));
}

TEST(stop_ends_only_the_running_task) {
    Scene scene;
    OK(aclsimSetClock(1));
    DeviceBuffer device(4);
    aclrtStream stream = scene.stream(), gate = scene.stream();
    aclrtEvent event = scene.event();
    OK(aclsimHoldStream(gate));
    OK(aclrtRecordEvent(event, gate));
    OK(aclsimHoldStream(stream));
    OK(aclrtMemsetAsync(device.p, 4, 1, 4, stream));
    OK(aclrtStreamWaitEvent(stream, event));
    OK(aclrtMemsetAsync(device.p, 4, 5, 4, stream));
    OK(aclsimReleaseStream(stream));
    OK(aclsimWaitTasks(stream, 1, -1));  // so that the wait is running
    CHECK_CODE(aclrtStreamStop(nullptr), ACL_ERROR_RT_PARAM_INVALID);
    OK(aclrtStreamStop(stream));
    OK(aclrtSynchronizeStream(stream));
    unsigned char back[4];
    OK(aclrtMemcpy(back, 4, device.p, 4, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK_EQ(int(back[0]), 5);
}

TEST(destroy_waits_and_forced_destroy_does_not) {
    Scene scene;
    Copies copies;
    DeviceBuffer device(4);
    OK(aclrtMemset(device.p, 4, 0, 4));
    aclrtStream stream = scene.stream();
    OK(aclsimHoldStream(stream));
    OK(aclrtMemsetAsync(device.p, 4, 3, 4, stream));
    std::atomic<bool> destroyed{false};
    std::thread destroyer([&, context = scene.context()] {
        OK(aclrtSetCurrentContext(context));
        OK(aclrtDestroyStream(stream));
        destroyed = true;
    });
    OK(aclsimWaitBlocked(stream, 1, -1));
    CHECK(!destroyed);
    OK(aclsimReleaseStream(stream));
    destroyer.join();
    unsigned char back[4];
    OK(aclrtMemcpy(back, 4, device.p, 4, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK_EQ(int(back[0]), 3);
    aclrtStream thrown = scene.stream();
    OK(aclsimHoldStream(thrown));
    OK(aclrtMemsetAsync(device.p, 4, 4, 4, thrown));
    OK(aclrtDestroyStreamForce(thrown));
    OK(aclrtMemcpy(back, 4, device.p, 4, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK_EQ(int(back[0]), 3);
    CHECK_EQ(aclsimLive("tasks"), 0);
}

TEST(synchronize_device_holds_the_stream_list) {
    Scene scene;
    Copies copies;
    aclrtStream stream = scene.stream();
    OK(aclsimHoldStream(stream));
    OK(copies.into(stream));
    const aclrtContext context = scene.context();
    std::thread syncer([&] {
        OK(aclrtSetCurrentContext(context));
        OK(aclrtSynchronizeDevice());
    });
    OK(aclsimWaitBlocked(stream, 1, -1));
    std::atomic<bool> created{false};
    std::thread creator([&] {
        OK(aclrtSetCurrentContext(context));
        aclrtStream made = nullptr;
        OK(aclrtCreateStream(&made));
        created = true;
    });
    // The creator can only be shown to be stuck by what it has not done when the sync still waits.
    CHECK(!created);
    OK(aclsimReleaseStream(stream));
    syncer.join();
    creator.join();
    CHECK(created);
}

TEST(stream_limit_priorities_and_ids) {
    Scene scene;
    uint32_t free_before = 0, free_after = 0;
    OK(aclrtGetStreamAvailableNum(&free_before));
    CHECK_EQ(free_before, 1023u);
    OK(aclsimLimitStreams(0, 3));
    aclrtStream one = scene.stream(), two = scene.stream(), three = nullptr;
    CHECK_CODE(aclrtCreateStream(&three), ACL_ERROR_RT_NO_STREAM_RESOURCE);
    OK(aclrtGetStreamAvailableNum(&free_after));
    CHECK_EQ(free_after, 0u);
    int32_t id = -1, again = -1;
    OK(aclrtStreamGetId(two, &id));
    OK(aclrtDestroyStream(two));
    OK(aclrtCreateStreamWithConfig(&three, 99, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC));
    OK(aclrtStreamGetId(three, &again));
    CHECK_EQ(id, again);
    uint32_t priority = 0, flags = 0;
    OK(aclrtStreamGetPriority(three, &priority));
    CHECK_EQ(priority, 7u);
    OK(aclrtStreamGetFlags(three, &flags));
    CHECK_EQ(flags, 3u);
    OK(aclrtStreamGetPriority(one, &priority));
    CHECK_EQ(priority, 0u);
    aclrtStreamAttrValue value{};
    value.userCustomTag = 42;
    OK(aclrtSetStreamAttribute(one, ACL_STREAM_ATTR_USER_CUSTOM_TAG, &value));
    value = {};
    OK(aclrtGetStreamAttribute(one, ACL_STREAM_ATTR_USER_CUSTOM_TAG, &value));
    CHECK_EQ(value.userCustomTag, 42u);
    CHECK_CODE(aclrtSetStreamAttribute(one, static_cast<aclrtStreamAttr>(77), &value),
               ACL_ERROR_RT_PARAM_INVALID);
}

TEST(task_ids_follow_the_thread) {
    Scene scene;
    Copies copies;
    aclrtStream stream = scene.stream();
    uint32_t id = 99;
    for (uint32_t i = 0; i < 3; ++i) {
        OK(copies.into(stream));
        OK(aclrtGetThreadLastTaskId(&id));
        CHECK_EQ(id, i);
    }
    OK(aclrtSynchronizeStream(stream));
    CHECK_EQ(timeline().back().task_id, 2u);
    CHECK_CODE(aclrtGetThreadLastTaskId(nullptr), ACL_ERROR_INVALID_PARAM);
}

TEST(device_task_abort) {
    Scene scene;
    Copies copies;
    aclrtStream one = scene.stream(), two = scene.stream();
    OK(aclsimHoldDevice(0));
    OK(copies.into(one));
    OK(copies.into(two));
    std::atomic<int> waited{-1};
    std::thread waiter([&, context = scene.context()] {
        OK(aclrtSetCurrentContext(context));
        waited = aclrtSynchronizeStream(two);
    });
    OK(aclsimWaitBlocked(two, 1, -1));
    CHECK_CODE(aclrtDeviceTaskAbort(0, 36 * 60 * 1000 + 1), ACL_ERROR_RT_PARAM_INVALID);
    OK(aclrtDeviceTaskAbort(0, 0));
    waiter.join();
    CHECK_EQ(waited.load(), ACL_ERROR_RT_DEVICE_TASK_ABORT);
    OK(aclsimReleaseDevice(0));
    CHECK(is_complete(one) && is_complete(two));
    OK(copies.into(one));
    OK(aclrtSynchronizeStream(one));
}
