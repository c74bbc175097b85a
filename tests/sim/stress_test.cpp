// SPDX-License-Identifier: Apache-2.0
// Many threads at once; meant for the thread sanitizer as much as for its checks.
#include <random>

#include "scale.h"
#include "scene.h"

namespace {

const int rounds = scaled(300);

struct Counter {
    std::atomic<int> ran{0};
};

void count(void *counter) { static_cast<Counter *>(counter)->ran.fetch_add(1); }
void ignore_exception(aclrtExceptionInfo *info) { aclrtGetErrorCodeFromExceptionInfo(info); }

// The observer makes a record fail now and then, whose error goes to whoever synchronises next.
void settle(aclrtStream stream) {
    const int code = aclrtSynchronizeStream(stream);
    CHECK(code == 0 || code == ACL_ERROR_RT_OVER_FLOW);
}

// Everything a user thread does, on streams of its own and on shared ones.
void work(aclrtContext context, aclrtStream shared, int seed, Counter *callbacks, int *launched) {
    OK(aclrtSetCurrentContext(context));
    std::minstd_rand random(static_cast<unsigned>(seed) + 1);
    HostBuffer in(70000, seed), out(70000);
    DeviceBuffer device(70000);
    aclrtStream own = nullptr;
    aclrtEvent event = nullptr, copied = nullptr;
    OK(aclrtCreateStream(&own));
    OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    OK(aclrtCreateEventExWithFlag(&copied, ACL_EVENT_SYNC));
    for (int i = 0; i < rounds; ++i) {
        const size_t size = 1 + random() % 70000;
        OK(aclrtMemcpyAsync(device.p, size, in.p, size, ACL_MEMCPY_HOST_TO_DEVICE, own));
        OK(aclrtRecordEvent(event, own));
        OK(aclrtStreamWaitEvent(shared, event));
        OK(aclrtMemcpyAsync(out.p, size, device.p, size, ACL_MEMCPY_DEVICE_TO_HOST, shared));
        OK(aclrtRecordEvent(copied, shared));
        OK(aclrtStreamWaitEvent(own, copied));
        if (i % 3 == 0) {
            OK(aclrtLaunchCallback(count, callbacks, i % 2 == 0 ? ACL_CALLBACK_NO_BLOCK : ACL_CALLBACK_BLOCK,
                                   shared));
            ++*launched;
        }
        if (i % 7 == 0) {
            settle(shared);
            CHECK(std::memcmp(in.p, out.p, size) == 0);
        }
        if (i % 11 == 0) {
            aclrtEventRecordedStatus status;
            OK(aclrtQueryEventStatus(event, &status));
            OK(aclrtDestroyEvent(event));
            OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
        }
        if (i % 50 == 49) {
            settle(own);
            OK(aclrtDestroyStream(own));
            OK(aclrtCreateStream(&own));
        }
    }
    settle(shared);
    settle(own);
    OK(aclrtDestroyStream(own));
    OK(aclrtDestroyEvent(event));
    OK(aclrtDestroyEvent(copied));
}

void crowd(const char *profile, bool virtual_clock) {
    OK(aclsimSetClock(virtual_clock ? 1 : 0));
    OK(aclsimSetProfile(-1, profile));
    OK(aclrtSetExceptionInfoCallback(ignore_exception));
    Counter callbacks;
    int launched[4] = {};
    {
        Scene one(1), zero(0);
        std::vector<std::thread> threads;
        std::vector<std::unique_ptr<ReportThread>> reports;
        std::vector<aclrtStream> shared;
        std::vector<std::exception_ptr> problems(4);
        for (int device = 0; device < 2; ++device) {
            OK(aclrtSetDevice(device));
            shared.push_back(zero.stream());
            reports.push_back(std::make_unique<ReportThread>());
            reports.back()->subscribe(shared.back());
            reports.back()->start();
            for (int i = 0; i < 2; ++i) {
                threads.emplace_back(
                    [&, index = device * 2 + i, context = zero.context(), stream = shared.back()] {
                        try {
                            work(context, stream, index, &callbacks, &launched[index]);
                        } catch (...) {
                            problems[static_cast<size_t>(index)] = std::current_exception();
                        }
                    });
            }
        }
        std::atomic<bool> over{false};
        std::thread observer([&] {
            while (!over) {
                timeline();
                aclsimCalls("aclrtMemcpyAsync");
                aclsimLive("tasks");
                aclsimFailTask(0, nullptr, "event_record", 50, ACL_ERROR_RT_OVER_FLOW);
                std::this_thread::yield();
            }
        });
        for (std::thread &thread : threads) {
            thread.join();
        }
        over = true;
        observer.join();
        for (const std::exception_ptr &problem : problems) {
            if (problem) {
                std::rethrow_exception(problem);
            }
        }
        // A last BLOCK callback behind all others, so that none is on its way.
        for (int device = 0; device < 2; ++device) {
            OK(aclrtSetDevice(device));
            OK(aclrtLaunchCallback(count, &callbacks, ACL_CALLBACK_BLOCK,
                                   shared[static_cast<size_t>(device)]));
            settle(shared[static_cast<size_t>(device)]);
        }
        CHECK_EQ(callbacks.ran.load(), 2 + launched[0] + launched[1] + launched[2] + launched[3]);
        OK(aclrtSetDevice(0));
        reports.clear();
    }
    OK(aclrtSetExceptionInfoCallback(nullptr));
    CHECK_EQ(aclsimLive("streams"), 0);
    CHECK_EQ(aclsimLive("events"), 0);
    CHECK_EQ(aclsimLive("tasks"), 0);
    CHECK_EQ(aclsimLive("device_blocks"), 0);
    CHECK_EQ(aclsimLive("host_blocks"), 0);
    CHECK_EQ(aclsimLive("subscriptions"), 0);
}

}  // namespace

TEST(a_crowd_without_durations) { crowd("instant", false); }

TEST(a_crowd_in_real_time) { crowd("atlas-a2", false); }

TEST(a_crowd_in_virtual_time) { crowd("inference-card", true); }

TEST(abort_reset_and_loss_while_others_work) {
    for (int round = 0; round < 20; ++round) {
        Scene scene;
        const aclrtContext context = scene.context();
        aclrtStream stream = scene.stream();
        std::atomic<bool> over{false};
        std::vector<std::thread> threads;
        auto buffers = std::make_shared<std::pair<HostBuffer, HostBuffer>>(
            std::piecewise_construct, std::forward_as_tuple(200000), std::forward_as_tuple(200000));
        void *device = nullptr;
        OK(aclrtMalloc(&device, 200000, ACL_MEM_MALLOC_HUGE_FIRST));
        for (int i = 0; i < 3; ++i) {
            threads.emplace_back([&, buffers, context, stream] {
                if (aclrtSetCurrentContext(context) != 0) {
                    return;  // the reset came first
                }
                while (!over) {
                    // Any code is right here; what counts is that each call returns.
                    aclrtMemcpyAsync(device, 200000, buffers->first.p, 200000, ACL_MEMCPY_HOST_TO_DEVICE,
                                     stream);
                    aclrtMemcpyAsync(device, 100, buffers->second.p, 100, ACL_MEMCPY_HOST_TO_DEVICE, stream);
                    aclrtLaunchHostFunc(stream, [](void *) {}, nullptr);
                    aclrtSynchronizeStream(stream);
                    aclGetRecentErrMsg();
                }
            });
        }
        for (int i = 0; i < 20; ++i) {
            OK(aclrtStreamAbort(stream));
            std::this_thread::yield();
        }
        if (round % 2 == 0) {
            OK(aclsimLoseDevice(0, ACL_ERROR_RT_LOST_HEARTBEAT));
            OK(aclsimRestoreDevice(0));
        }
        OK(aclrtResetDeviceForce(0));
        over = true;
        for (std::thread &thread : threads) {
            thread.join();
        }
        OK(aclrtSetDevice(0));
        OK(aclrtSynchronizeStream(nullptr));
    }
    CHECK_EQ(aclsimLive("streams"), 0);
    CHECK_EQ(aclsimLive("tasks"), 0);
}
