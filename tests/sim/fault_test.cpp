// SPDX-License-Identifier: Apache-2.0
// Injected failures, exception callbacks, lost devices, counters.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "scene.h"

namespace {

struct Seen {
    uint32_t task, stream, thread, device, code;
    uint64_t on;
};

std::mutex seen_mutex;
std::condition_variable seen_changed;
std::vector<Seen> seen;

void remember(aclrtExceptionInfo *info) {
    std::lock_guard<std::mutex> lock(seen_mutex);
    seen.push_back({aclrtGetTaskIdFromExceptionInfo(info), aclrtGetStreamIdFromExceptionInfo(info),
                    aclrtGetThreadIdFromExceptionInfo(info), aclrtGetDeviceIdFromExceptionInfo(info),
                    aclrtGetErrorCodeFromExceptionInfo(info), static_cast<uint64_t>(pthread_self())});
    seen_changed.notify_all();
}

std::vector<Seen> take_seen(size_t at_least) {
    std::unique_lock<std::mutex> lock(seen_mutex);
    seen_changed.wait(lock, [&] { return seen.size() >= at_least; });
    std::vector<Seen> all;
    all.swap(seen);
    return all;
}

struct Registered {
    Registered() { OK(aclrtExceptionInfoCallbackRegister(remember)); }
    ~Registered() {
        aclrtExceptionInfoCallbackUnregister(remember);
        take_seen(0);
    }
};

void nothing(void *) {}

}  // namespace

TEST(exception_callbacks) {
    Scene scene;
    Registered registered;
    DeviceBuffer device(1);
    aclrtStream stream = scene.stream();
    int32_t id = 0;
    OK(aclrtStreamGetId(stream, &id));
    OK(aclsimFailTask(0, stream, "memset", 2, ACL_ERROR_RT_AICORE_EXCEPTION));
    OK(aclrtMemsetAsync(device.p, 1, 1, 1, stream));
    uint32_t task = 0;
    OK(aclrtMemsetAsync(device.p, 1, 1, 1, stream));
    OK(aclrtGetThreadLastTaskId(&task));
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_AICORE_EXCEPTION);
    const auto all = take_seen(1);
    CHECK_EQ(all.size(), 1u);
    CHECK_EQ(all[0].task, task);
    CHECK_EQ(all[0].stream, uint32_t(id));
    CHECK_EQ(all[0].thread, uint32_t(syscall(SYS_gettid)));
    CHECK_EQ(all[0].device, 0u);
    CHECK_EQ(all[0].code, uint32_t(ACL_ERROR_RT_AICORE_EXCEPTION));
    CHECK(all[0].on != static_cast<uint64_t>(pthread_self()));
    // The same function set and registered is called twice.
    OK(aclrtSetExceptionInfoCallback(remember));
    OK(aclsimFailTask(0, stream, nullptr, 1, ACL_ERROR_RT_AICORE_EXCEPTION));
    OK(aclrtMemsetAsync(device.p, 1, 1, 1, stream));
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_AICORE_EXCEPTION);
    CHECK_EQ(take_seen(2).size(), 2u);
    OK(aclrtSetExceptionInfoCallback(nullptr));
    // Soft errors are not exceptions.
    OK(aclsimFailTask(0, stream, nullptr, 1, ACL_ERROR_RT_AICORE_OVER_FLOW));
    OK(aclrtMemsetAsync(device.p, 1, 1, 1, stream));
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_AICORE_OVER_FLOW);
    CHECK_EQ(take_seen(0).size(), 0u);
    CHECK_CODE(aclrtExceptionInfoCallbackRegister(nullptr), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtExceptionInfoCallbackUnregister(nullptr), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_EQ(aclrtGetTaskIdFromExceptionInfo(nullptr), UINT32_MAX);
}

TEST(exception_callbacks_run_before_later_tasks) {
    Scene scene;
    aclrtStream stream = scene.stream();
    static void *memory;
    static int value;
    DeviceBuffer device(1);
    memory = device.p;
    value = -1;
    OK(aclrtMemset(device.p, 1, 0, 1));
    auto look = [](aclrtExceptionInfo *) { value = *static_cast<volatile unsigned char *>(memory); };
    OK(aclrtSetExceptionInfoCallback(look));
    OK(aclsimHoldStream(stream));
    OK(aclsimFailTask(0, stream, nullptr, 1, ACL_ERROR_RT_AICORE_EXCEPTION));
    OK(aclrtMemsetAsync(device.p, 1, 1, 1, stream));
    OK(aclrtMemsetAsync(device.p, 1, 2, 1, stream));
    OK(aclsimReleaseStream(stream));
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_AICORE_EXCEPTION);
    OK(aclrtSetExceptionInfoCallback(nullptr));
    CHECK_EQ(value, 0);
}

TEST(exceptions_can_wait_for_a_user_thread) {
    Scene scene;
    OK(aclsimSetClock(1));
    Registered registered;
    DeviceBuffer device(1);
    aclrtStream stream = scene.stream();
    OK(aclsimSetExceptionDelivery(1));
    OK(aclsimHoldStream(stream));
    OK(aclsimFailTask(0, stream, nullptr, 1, ACL_ERROR_RT_AICORE_EXCEPTION));
    OK(aclrtMemsetAsync(device.p, 1, 1, 1, stream));
    OK(aclsimStep(stream, 1));
    OK(aclsimWaitTasks(stream, 1, -1));
    aclrtStreamStatus status;
    OK(aclrtStreamQuery(stream, &status));
    CHECK_EQ(take_seen(1).size(), 1u);
    // Or, at the latest, the monitor does it.
    OK(aclsimFailTask(0, stream, nullptr, 1, ACL_ERROR_RT_AICORE_EXCEPTION));
    OK(aclrtMemsetAsync(device.p, 1, 1, 1, stream));
    OK(aclsimReleaseStream(stream));
    const auto all = take_seen(1);
    CHECK(all[0].on != static_cast<uint64_t>(pthread_self()));
    CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_AICORE_EXCEPTION);
}

TEST(exception_callbacks_of_two_devices_are_concurrent) {
    static std::atomic<int> inside{0};
    static Gate both;
    inside = 0;
    auto meet = [](aclrtExceptionInfo *) {
        if (++inside == 2) {
            both.open();
        }
        both.wait();
    };
    Scene one(1);
    DeviceBuffer there(1);
    aclrtStream far = one.stream();
    Scene zero(0);
    DeviceBuffer here(1);
    OK(aclrtSetExceptionInfoCallback(meet));
    OK(aclsimFailTask(-1, nullptr, "memset", 1, ACL_ERROR_RT_AICORE_EXCEPTION));
    OK(aclrtMemsetAsync(here.p, 1, 1, 1, nullptr));
    OK(aclrtSetDevice(1));
    OK(aclrtMemsetAsync(there.p, 1, 1, 1, far));
    CHECK_CODE(aclrtSynchronizeStream(far), ACL_ERROR_RT_AICORE_EXCEPTION);
    OK(aclrtSetDevice(0));
    CHECK_CODE(aclrtSynchronizeStream(nullptr), ACL_ERROR_RT_AICORE_EXCEPTION);
    OK(aclrtSetExceptionInfoCallback(nullptr));
    CHECK_EQ(inside.load(), 2);
}

TEST(a_lost_device) {
    Scene scene;
    Registered registered;
    const int code = ACL_ERROR_RT_LOST_HEARTBEAT;
    DeviceBuffer device(64);
    HostBuffer host(64);
    aclrtStream stream = scene.stream();
    aclrtEvent event = scene.event();
    ReportThread reports;
    reports.subscribe(stream);
    reports.start();
    OK(aclsimHoldStream(stream));
    OK(aclrtLaunchCallback([](void *) { std::abort(); }, nullptr, ACL_CALLBACK_NO_BLOCK, stream));
    OK(aclrtRecordEvent(event, stream));
    std::atomic<int> waited{0}, waited_event{0};
    const aclrtContext context = scene.context();
    std::thread waiter([&] {
        OK(aclrtSetCurrentContext(context));
        waited = aclrtSynchronizeStream(stream);
        waited_event = aclrtSynchronizeEvent(event);
    });
    OK(aclsimWaitBlocked(stream, 1, -1));
    OK(aclsimLoseDevice(0, code));
    waiter.join();
    CHECK_EQ(waited.load(), code);
    CHECK_EQ(waited_event.load(), code);
    reports.wait_until_ended();
    CHECK_EQ(reports.last_code.load(), code);
    const auto facts = take_seen(1);
    CHECK_EQ(facts[0].task, UINT32_MAX);
    CHECK_EQ(facts[0].code, uint32_t(code));
    OK(aclsimReleaseStream(stream));
    aclrtDeviceStatus status;
    OK(aclrtQueryDeviceStatus(0, &status));
    CHECK_EQ(status, ACL_RT_DEVICE_STATUS_ABNORMAL);
    void *p = nullptr;
    aclrtStream made = nullptr;
    aclrtStreamStatus stream_status;
    CHECK_CODE(aclrtMalloc(&p, 8, ACL_MEM_MALLOC_HUGE_FIRST), code);
    CHECK_CODE(aclrtCreateStream(&made), code);
    CHECK_CODE(aclrtStreamQuery(stream, &stream_status), code);
    CHECK_CODE(aclrtSynchronizeDevice(), code);
    CHECK_CODE(aclrtMemcpy(device.p, 64, host.p, 64, ACL_MEMCPY_HOST_TO_DEVICE), code);
    CHECK_CODE(aclrtLaunchCallback(nothing, nullptr, ACL_CALLBACK_NO_BLOCK, stream), code);
    CHECK_CODE(aclrtSetDevice(0), code);
    CHECK_CODE(aclrtResetDevice(0), code);
    CHECK_CODE(aclrtResetDeviceForce(0), code);
    OK(aclsimRestoreDevice(0));
    OK(aclrtResetDeviceForce(0));
    OK(aclrtQueryDeviceStatus(0, &status));
    CHECK_EQ(status, ACL_RT_DEVICE_STATUS_NORMAL);
    OK(aclrtSetDevice(0));
    OK(aclrtMemsetAsync(nullptr, 0, 0, 0, nullptr));
    OK(aclrtSynchronizeStream(nullptr));
    device.p = nullptr;  // a forced reset released it
}

TEST(calls_can_be_made_to_fail) {
    Scene scene;
    aclrtStream stream = nullptr;
    OK(aclsimFailCall("aclrtCreateStream", 2, ACL_ERROR_RT_NO_STREAM_RESOURCE, 2));
    OK(aclrtCreateStream(&stream));
    CHECK_CODE(aclrtCreateStream(&stream), ACL_ERROR_RT_NO_STREAM_RESOURCE);
    CHECK_CODE(aclrtCreateStream(&stream), ACL_ERROR_RT_NO_STREAM_RESOURCE);
    OK(aclrtCreateStream(&stream));
    CHECK_CODE(aclsimFailCall("aclrtNothing", 1, 1, 1), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclsimFailCall("aclrtCreateStream", 0, 1, 1), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclsimSetCallLatency("printf", 1), ACL_ERROR_RT_PARAM_INVALID);
    OK(aclsimSetCallLatency("aclrtGetDevice", 1000000));
    int32_t id = 0;
    const uint64_t begin = aclsimNow();
    OK(aclrtGetDevice(&id));
    CHECK(aclsimNow() - begin >= 1000000);
    CHECK_CODE(aclsimFailTask(0, nullptr, "nonsense", 1, 1), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclsimFailTask(0, nullptr, nullptr, 1, 0), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclsimFailTask(0, &id, nullptr, 1, 1), ACL_ERROR_RT_PARAM_INVALID);
}

TEST(calls_are_counted_by_thread) {
    Scene scene;
    int32_t id = 0;
    uint64_t other = 0;
    for (int i = 0; i < 3; ++i) {
        OK(aclrtGetDevice(&id));
    }
    Gate done;
    std::thread thread([&] {
        other = static_cast<uint64_t>(pthread_self());
        uint32_t count = 0;
        aclrtGetDevice(&id);
        OK(aclrtGetDeviceCount(&count));
    });
    thread.join();
    CHECK_EQ(aclsimCalls("aclrtGetDevice"), 4u);
    CHECK_EQ(aclsimCallsOnThread("aclrtGetDevice", static_cast<uint64_t>(pthread_self())), 3u);
    CHECK_EQ(aclsimCallsOnThread("aclrtGetDeviceCount", other), 1u);
    CHECK_EQ(aclsimCalls("aclrtGetDeviceCount"), 1u);
    CHECK_EQ(aclsimCalls("aclrtResetEvent"), 0u);
    OK(aclsimReset());
    CHECK_EQ(aclsimCalls("aclrtGetDevice"), 0u);
}

TEST(live_counts) {
    Scene scene;
    CHECK_EQ(aclsimLive("contexts"), 1);
    aclrtStream stream = scene.stream();
    CHECK_EQ(aclsimLive("streams"), 1);
    HostBuffer host(100);
    CHECK_EQ(aclsimLive("host_bytes"), 128);
    CHECK_EQ(aclsimLive("host_blocks"), 1);
    OK(aclrtDestroyStream(stream));
    CHECK_EQ(aclsimLive("streams"), 0);
    CHECK_EQ(aclsimLive("nonsense"), -1);
}
