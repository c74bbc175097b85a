// SPDX-License-Identifier: Apache-2.0
// Initialisation, devices, contexts; which calls need a context, and which only their handle.
#include <unistd.h>

#include <fstream>

#include "scene.h"

namespace {

void nothing(void *) {}

// Runs on a new thread, which has no current context.
template <class Body>
void on_new_thread(Body body) {
    std::exception_ptr problem;
    std::thread([&] {
        try {
            body();
        } catch (...) {
            problem = std::current_exception();
        }
    }).join();
    if (problem) {
        std::rethrow_exception(problem);
    }
}

std::string written(const char *name, const std::string &text) {
    const std::string path = std::string("/tmp/") + name + std::to_string(getpid()) + ".json";
    std::ofstream(path) << text;
    return path;
}

}  // namespace

TEST(init_counts_and_finalize_does_not) {
    OK(aclInit(nullptr));
    CHECK_CODE(aclInit(nullptr), ACL_ERROR_REPEAT_INITIALIZE);
    CHECK_CODE(aclInit(nullptr), ACL_ERROR_REPEAT_INITIALIZE);
    uint64_t left = 99;
    OK(aclFinalizeReference(&left));
    CHECK_EQ(left, 2u);
    OK(aclFinalize());
    CHECK_CODE(aclFinalize(), ACL_ERROR_REPEAT_FINALIZE);
    CHECK_CODE(aclFinalizeReference(&left), ACL_ERROR_REPEAT_FINALIZE);
    OK(aclInit(nullptr));
    const std::string other = written("aclsim_other", "{\"err_msg_mode\": \"0\"}");
    OK(aclFinalize());
    CHECK_CODE(aclInit(other.c_str()), ACL_ERROR_INVALID_PARAM);
    unlink(other.c_str());
    CHECK_CODE(aclInit("/nowhere/acl.json"), ACL_ERROR_INVALID_FILE);
}

TEST(set_and_reset_are_counted) {
    OK(aclrtSetDevice(0));
    OK(aclrtSetDevice(0));
    int32_t active = 0;
    uint32_t flags = 7;
    OK(aclrtGetPrimaryCtxState(0, &flags, &active));
    CHECK_EQ(active, 1);
    OK(aclrtResetDevice(0));
    aclrtStream stream = nullptr;
    OK(aclrtCreateStream(&stream));
    OK(aclrtResetDevice(0));
    CHECK_CODE(aclrtResetDevice(0), ACL_ERROR_RT_CONTEXT_RELEASE_ERROR);
    CHECK_CODE(aclrtCreateStream(&stream), ACL_ERROR_RT_CONTEXT_NULL);
    OK(aclrtGetPrimaryCtxState(0, &flags, &active));
    CHECK_EQ(active, 0);
    OK(aclrtSetDevice(0));
    OK(aclrtSetDevice(0));
    OK(aclrtResetDeviceForce(0));
    CHECK_CODE(aclrtResetDeviceForce(0), ACL_ERROR_RT_CONTEXT_RELEASE_ERROR);
    CHECK_CODE(aclrtSetDevice(64), ACL_ERROR_RT_INVALID_DEVICEID);
    CHECK_CODE(aclrtSetDevice(-1), ACL_ERROR_RT_INVALID_DEVICEID);
    CHECK_EQ(aclsimLive("streams"), 0);
    CHECK_EQ(aclsimLive("contexts"), 0);
}

TEST(forced_reset_does_not_touch_the_last_error) {
    aclrtGetLastError(ACL_RT_THREAD_LEVEL);
    CHECK_CODE(aclrtResetDeviceForce(0), ACL_ERROR_RT_CONTEXT_RELEASE_ERROR);
    CHECK_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 0);
    CHECK_CODE(aclrtResetDevice(0), ACL_ERROR_RT_CONTEXT_RELEASE_ERROR);
    CHECK_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), ACL_ERROR_RT_CONTEXT_RELEASE_ERROR);
}

TEST(set_device_replaces_an_explicit_context) {
    Scene scene;
    const aclrtContext primary = scene.context();
    aclrtContext mine = nullptr;
    OK(aclrtCreateContext(&mine, 0));
    CHECK_EQ(scene.context(), mine);
    OK(aclrtSetDevice(0));
    CHECK_EQ(scene.context(), primary);
    OK(aclrtDestroyContext(mine));
    CHECK_CODE(aclrtDestroyContext(mine), ACL_ERROR_RT_CONTEXT_NULL);
    CHECK_CODE(aclrtDestroyContext(primary), ACL_ERROR_RT_CONTEXT_NULL);
    CHECK_CODE(aclrtDestroyContext(nullptr), ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtSetCurrentContext(mine), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtSetCurrentContext(nullptr), ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtCreateContext(nullptr, 0), ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtCreateContext(&mine, 64), ACL_ERROR_RT_INVALID_DEVICEID);
}

TEST(a_context_can_vanish_under_a_thread) {
    Scene scene;
    aclrtContext mine = nullptr;
    OK(aclrtCreateContext(&mine, 1));
    Gate current, destroyed;
    std::thread other([&] {
        OK(aclrtSetCurrentContext(mine));
        current.open();
        destroyed.wait();
        aclrtStream stream = nullptr;
        CHECK_CODE(aclrtCreateStream(&stream), ACL_ERROR_RT_CONTEXT_NULL);
    });
    current.wait();
    OK(aclrtDestroyContext(mine));
    destroyed.open();
    other.join();
}

TEST(calls_that_need_a_context) {
    Scene scene;
    aclrtStream stream = scene.stream();
    aclrtEvent event = scene.event();
    aclrtNotify notify = nullptr;
    OK(aclrtCreateNotify(&notify, 0));
    DeviceBuffer device(64);
    HostBuffer host(64);
    aclrtStream made_stream = nullptr;
    aclrtEvent made_event = nullptr;
    aclrtNotify made_notify = nullptr;
    aclrtStreamStatus status;
    void *p = nullptr;
    size_t free = 0, total = 0;
    uint32_t number = 0;
    int32_t id = 0;
    aclrtContext context = nullptr;
    aclrtStreamAttrValue attribute{};
    struct Row {
        const char *name;
        std::function<int()> call;
    };
    const std::vector<Row> rows = {
        {"CreateStream", [&] { return aclrtCreateStream(&made_stream); }},
        {"CreateStreamWithConfig", [&] { return aclrtCreateStreamWithConfig(&made_stream, 0, 3); }},
        {"DestroyStream", [&] { return aclrtDestroyStream(stream); }},
        {"DestroyStreamForce", [&] { return aclrtDestroyStreamForce(stream); }},
        {"SynchronizeStream", [&] { return aclrtSynchronizeStream(stream); }},
        {"SynchronizeStreamWithTimeout", [&] { return aclrtSynchronizeStreamWithTimeout(stream, 10); }},
        {"StreamQuery", [&] { return aclrtStreamQuery(stream, &status); }},
        {"SynchronizeDevice", [&] { return aclrtSynchronizeDevice(); }},
        {"SynchronizeDeviceWithTimeout", [&] { return aclrtSynchronizeDeviceWithTimeout(10); }},
        {"StreamAbort", [&] { return aclrtStreamAbort(stream); }},
        {"StreamStop", [&] { return aclrtStreamStop(stream); }},
        {"SetStreamFailureMode", [&] { return aclrtSetStreamFailureMode(stream, 0); }},
        {"SetStreamAttribute",
         [&] { return aclrtSetStreamAttribute(stream, ACL_STREAM_ATTR_PRIORITY, &attribute); }},
        {"StreamGetId(NULL)", [&] { return aclrtStreamGetId(nullptr, &id); }},
        {"MemcpyAsync",
         [&] { return aclrtMemcpyAsync(device.p, 64, host.p, 64, ACL_MEMCPY_HOST_TO_DEVICE, stream); }},
        {"MemsetAsync", [&] { return aclrtMemsetAsync(device.p, 64, 1, 64, stream); }},
        {"Memcpy2dAsync",
         [&] { return aclrtMemcpy2dAsync(device.p, 8, host.p, 8, 8, 8, ACL_MEMCPY_HOST_TO_DEVICE, stream); }},
        {"Memcpy", [&] { return aclrtMemcpy(device.p, 64, host.p, 64, ACL_MEMCPY_HOST_TO_DEVICE); }},
        {"Memset", [&] { return aclrtMemset(device.p, 64, 1, 64); }},
        {"Malloc", [&] { return aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST); }},
        {"MallocHost", [&] { return aclrtMallocHost(&p, 64); }},
        {"GetMemInfo", [&] { return aclrtGetMemInfo(ACL_HBM_MEM, &free, &total); }},
        {"CreateEvent", [&] { return aclrtCreateEvent(&made_event); }},
        {"CreateEventWithFlag", [&] { return aclrtCreateEventWithFlag(&made_event, ACL_EVENT_SYNC); }},
        {"CreateEventExWithFlag", [&] { return aclrtCreateEventExWithFlag(&made_event, ACL_EVENT_SYNC); }},
        {"RecordEvent", [&] { return aclrtRecordEvent(event, stream); }},
        {"StreamWaitEvent", [&] { return aclrtStreamWaitEvent(stream, event); }},
        {"ResetEvent", [&] { return aclrtResetEvent(event, stream); }},
        {"LaunchCallback",
         [&] { return aclrtLaunchCallback(nothing, nullptr, ACL_CALLBACK_NO_BLOCK, stream); }},
        {"LaunchHostFunc", [&] { return aclrtLaunchHostFunc(stream, nothing, nullptr); }},
        {"SubscribeReport", [&] { return aclrtSubscribeReport(1, stream); }},
        {"CreateNotify", [&] { return aclrtCreateNotify(&made_notify, 0); }},
        {"RecordNotify", [&] { return aclrtRecordNotify(notify, stream); }},
        {"WaitAndResetNotify", [&] { return aclrtWaitAndResetNotify(notify, stream, 0); }},
        {"GetStreamAvailableNum", [&] { return aclrtGetStreamAvailableNum(&number); }},
        {"GetEventAvailNum", [&] { return aclrtGetEventAvailNum(&number); }},
        {"GetDevice", [&] { return aclrtGetDevice(&id); }},
        {"GetCurrentContext", [&] { return aclrtGetCurrentContext(&context); }},
        {"EnablePeerAccess", [&] { return aclrtDeviceEnablePeerAccess(1, 0); }},
    };
    on_new_thread([&] {
        for (const Row &row : rows) {
            check::code(__FILE__, __LINE__, row.name, row.call(), ACL_ERROR_RT_CONTEXT_NULL);
        }
    });
}

TEST(calls_that_need_only_their_handle) {
    Scene scene;
    aclrtStream stream = scene.stream();
    aclrtEvent event = scene.event();
    aclrtEvent latch = nullptr;
    OK(aclrtCreateEventWithFlag(&latch, ACL_EVENT_SYNC));
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtSynchronizeStream(stream));
    DeviceBuffer device(64);
    HostBuffer host(64);
    on_new_thread([&] {
        int32_t id = -1;
        OK(aclrtStreamGetId(stream, &id));
        OK(aclrtSynchronizeEvent(event));
        OK(aclrtSynchronizeEventWithTimeout(event, 10));
        aclrtEventRecordedStatus status;
        OK(aclrtQueryEventStatus(event, &status));
        aclrtEventWaitStatus wait_status;
        OK(aclrtQueryEventWaitStatus(latch, &wait_status));
        float ms = 0;
        OK(aclrtEventElapsedTime(&ms, event, event));
        uint64_t stamp = 0;
        OK(aclrtEventGetTimestamp(event, &stamp));
        aclrtPtrAttributes attributes;
        OK(aclrtPointerGetAttributes(device.p, &attributes));
        uint32_t count = 0;
        OK(aclrtGetDeviceCount(&count));
        aclrtRunMode mode;
        OK(aclrtGetRunMode(&mode));
        CHECK(aclrtGetSocName() != nullptr);
        aclrtDeviceStatus device_status;
        OK(aclrtQueryDeviceStatus(0, &device_status));
        CHECK_EQ(device_status, ACL_RT_DEVICE_STATUS_NORMAL);
        int64_t value = 0;
        OK(aclrtGetDeviceInfo(0, ACL_DEV_ATTR_AICORE_CORE_NUM, &value));
        OK(aclrtDestroyEvent(event));
        OK(aclrtFree(device.p));
        device.p = nullptr;
        OK(aclrtFreeHost(host.p));
        host.p = nullptr;
        CHECK_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 0);
    });
}

TEST(streams_of_another_context) {
    Scene scene;
    aclrtStream stream = scene.stream();
    aclrtEvent event = scene.event();
    aclrtContext mine = nullptr;
    OK(aclrtCreateContext(&mine, 0));
    DeviceBuffer device(64);
    HostBuffer host(64);
    const int wrong = ACL_ERROR_RT_STREAM_CONTEXT;
    CHECK_CODE(aclrtMemcpyAsync(device.p, 64, host.p, 64, ACL_MEMCPY_HOST_TO_DEVICE, stream), wrong);
    CHECK_CODE(aclrtMemsetAsync(device.p, 64, 0, 64, stream), wrong);
    CHECK_CODE(aclrtRecordEvent(event, stream), wrong);
    CHECK_CODE(aclrtStreamWaitEvent(stream, event), wrong);
    CHECK_CODE(aclrtResetEvent(event, stream), wrong);
    CHECK_CODE(aclrtLaunchCallback(nothing, nullptr, ACL_CALLBACK_NO_BLOCK, stream), wrong);
    CHECK_CODE(aclrtLaunchHostFunc(stream, nothing, nullptr), wrong);
    CHECK_CODE(aclrtDestroyStream(stream), wrong);
    CHECK_CODE(aclrtStreamAbort(stream), wrong);
    CHECK_CODE(aclrtSetStreamFailureMode(stream, 0), wrong);
    OK(aclrtSynchronizeStream(stream));
    CHECK(is_complete(stream));
    OK(aclrtDestroyContext(mine));
}

TEST(destroyed_and_foreign_handles) {
    Scene scene;
    aclrtStream stream = scene.stream();
    aclrtEvent event = scene.event();
    int on_stack = 0;
    OK(aclrtDestroyStream(stream));
    OK(aclrtDestroyEvent(event));
    const int dead = ACL_ERROR_RT_INVALID_HANDLE;
    aclrtStreamStatus status;
    aclrtEventRecordedStatus recorded;
    int32_t id = 0;
    // New objects must not revive old handles.
    for (int i = 0; i < 3000; ++i) {
        aclrtStream other = scene.stream();
        CHECK(other != stream);
        OK(aclrtDestroyStream(other));
    }
    CHECK_CODE(aclrtStreamQuery(stream, &status), dead);
    CHECK_CODE(aclrtSynchronizeStream(stream), dead);
    CHECK_CODE(aclrtDestroyStream(stream), dead);
    CHECK_CODE(aclrtStreamGetId(stream, &id), dead);
    CHECK_CODE(aclrtUnSubscribeReport(1, stream), dead);
    CHECK_CODE(aclrtQueryEventStatus(event, &recorded), dead);
    CHECK_CODE(aclrtDestroyEvent(event), dead);
    CHECK_CODE(aclrtRecordEvent(event, nullptr), dead);
    aclrtEvent fresh = scene.event();
    CHECK_CODE(aclrtSynchronizeStream(fresh), dead);
    CHECK_CODE(aclrtRecordEvent(scene.context(), nullptr), dead);
    CHECK_CODE(aclrtSynchronizeStream(&on_stack), dead);
    CHECK_CODE(aclrtSynchronizeStream(reinterpret_cast<void *>(~uintptr_t{0})), dead);
}

TEST(last_error_and_messages) {
    Scene scene;
    aclrtGetLastError(ACL_RT_THREAD_LEVEL);
    CHECK_CODE(aclrtCreateStream(nullptr), ACL_ERROR_INVALID_PARAM);
    CHECK_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 0);
    CHECK_CODE(aclrtSynchronizeStreamWithTimeout(nullptr, 0), ACL_ERROR_RT_PARAM_INVALID);
    OK(aclrtSynchronizeStream(nullptr));
    CHECK_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 0);
    CHECK_CODE(aclrtGetLastError(static_cast<aclrtLastErrLevel>(3)), ACL_ERROR_INVALID_PARAM);
    while (aclGetRecentErrMsg() != nullptr) {
    }
    CHECK_CODE(aclrtSetDevice(77), ACL_ERROR_RT_INVALID_DEVICEID);
    CHECK_CODE(aclrtSynchronizeStreamWithTimeout(nullptr, -7), ACL_ERROR_RT_PARAM_INVALID);
    on_new_thread([] { CHECK(aclGetRecentErrMsg() == nullptr); });
    const char *message = aclGetRecentErrMsg();
    CHECK(message != nullptr);
    const char *newest = std::strstr(message, "-7");
    const char *oldest = std::strstr(message, "77");
    CHECK(newest != nullptr && oldest != nullptr && newest < oldest);
    CHECK(aclGetRecentErrMsg() == nullptr);
}

TEST(unsupported_calls_say_so) {
    Scene scene;
    aclmdlRI ri = nullptr;
    aclrtStream stream = nullptr;
    CHECK_CODE(aclmdlRICaptureEnd(nullptr, &ri), ACL_ERROR_API_NOT_SUPPORT);
    CHECK_CODE(aclmdlRIExecuteAsync(nullptr, nullptr), ACL_ERROR_API_NOT_SUPPORT);
    CHECK_CODE(aclprofMarkEx("x", 1, nullptr), ACL_ERROR_API_NOT_SUPPORT);
    CHECK(aclprofCreateStamp() == nullptr);
    CHECK_CODE(aclrtSubscribeHostFunc(1, nullptr), ACL_ERROR_API_NOT_SUPPORT);
    CHECK_CODE(aclrtCreateStreamV2(&stream, nullptr), ACL_ERROR_API_NOT_SUPPORT);
    const char *message = aclGetRecentErrMsg();
    CHECK(message != nullptr && std::strstr(message, "aclmdlRICaptureEnd") != nullptr);
    CHECK_CODE(aclrtCreateStreamWithConfig(&stream, 0, ACL_STREAM_PERSISTENT),
               ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
}

TEST(versions_and_information) {
    Scene scene;
    int32_t major = 0, minor = 0, patch = -1, number = 0;
    OK(aclrtGetVersion(&major, &minor, &patch));
    CHECK_EQ(major, ACL_MAJOR_VERSION);
    CHECK_EQ(minor, ACL_MINOR_VERSION);
    char runtime[] = "runtime", unknown[] = "nothing", text[128];
    OK(aclsysGetVersionNum(runtime, &number));
    CHECK_EQ(number, 90100000);
    OK(aclsysGetVersionStr(runtime, text));
    CHECK_EQ(std::string(text), "9.1.0");
    CHECK_CODE(aclsysGetVersionNum(unknown, &number), ACL_ERROR_INVALID_PARAM);
    aclCANNPackageVersion version;
    OK(aclsysGetCANNVersion(ACL_PKG_NAME_RUNTIME, &version));
    int64_t value = 0;
    CHECK_CODE(aclGetDeviceCapability(99, ACL_DEVICE_INFO_AI_CORE_NUM, &value), ACL_ERROR_INVALID_PARAM);
    OK(aclGetDeviceCapability(0, ACL_DEVICE_INFO_AI_CORE_NUM, &value));
    CHECK_EQ(value, 8);
    CHECK_CODE(aclrtGetDeviceInfo(99, ACL_DEV_ATTR_AICORE_CORE_NUM, &value), ACL_ERROR_RT_INVALID_DEVICEID);
    int32_t least = -1, greatest = -1;
    OK(aclrtDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK_EQ(least, 7);
    CHECK_EQ(greatest, 0);
    OK(aclsimSetDeviceCount(5));
    uint32_t count = 0;
    OK(aclrtGetDeviceCount(&count));
    CHECK_EQ(count, 5u);
    int32_t can = 0;
    OK(aclrtDeviceCanAccessPeer(&can, 0, 4));
    CHECK_CODE(aclrtDeviceCanAccessPeer(&can, 1, 1), ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtDeviceEnablePeerAccess(1, 2), ACL_ERROR_FEATURE_UNSUPPORTED);
}
