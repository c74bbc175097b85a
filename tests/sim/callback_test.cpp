// SPDX-License-Identifier: Apache-2.0
// Callbacks on streams, report threads, host functions.
#include <algorithm>

#include "scene.h"

namespace {

// What ran, in order.
class Log {
public:
    void add(int value) {
        std::lock_guard<std::mutex> lock(mutex_);
        values_.push_back(value);
        changed_.notify_all();
    }
    std::vector<int> wait_for(size_t count) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return values_.size() >= count; });
        return values_;
    }
    std::vector<int> values() {
        std::lock_guard<std::mutex> lock(mutex_);
        return values_;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<int> values_;
};

struct Note {
    Log *log;
    int value;
};

void write(void *note) { static_cast<Note *>(note)->log->add(static_cast<Note *>(note)->value); }
void nothing(void *) {}
void open_gate(void *gate) { static_cast<Gate *>(gate)->open(); }
void wait_gate(void *gate) { static_cast<Gate *>(gate)->wait(); }

uint64_t me() { return static_cast<uint64_t>(pthread_self()); }

constexpr auto no_block = ACL_CALLBACK_NO_BLOCK;
constexpr auto block = ACL_CALLBACK_BLOCK;

}  // namespace

TEST(argument_rules) {
    Scene scene;
    aclrtStream stream = scene.stream(), other = scene.stream();
    CHECK_CODE(aclrtLaunchCallback(nothing, nullptr, static_cast<aclrtCallbackBlockType>(2), stream),
               ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtLaunchCallback(nullptr, nullptr, no_block, stream), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtLaunchCallback(nothing, nullptr, no_block, stream), ACL_ERROR_RT_STREAM_NO_CB_REG);
    CHECK_CODE(aclrtProcessReport(0), ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtProcessReport(-2), ACL_ERROR_INVALID_PARAM);
    CHECK_CODE(aclrtProcessReport(60000), ACL_ERROR_RT_THREAD_SUBSCRIBE);
    CHECK_CODE(aclrtUnSubscribeReport(me(), stream), ACL_ERROR_RT_STREAM_SUBSCRIBE);
    OK(aclrtSubscribeReport(me(), stream));
    CHECK_CODE(aclrtSubscribeReport(me(), stream), ACL_ERROR_RT_STREAM_SUBSCRIBE);
    CHECK_CODE(aclrtSubscribeReport(me() + 1, stream), ACL_ERROR_RT_STREAM_SUBSCRIBE);
    CHECK_CODE(aclrtUnSubscribeReport(me() + 1, stream), ACL_ERROR_RT_THREAD_SUBSCRIBE);
    CHECK_CODE(aclrtLaunchHostFunc(stream, nothing, nullptr), ACL_ERROR_RT_STREAM_SUBSCRIBE);
    CHECK_CODE(aclrtLaunchHostFunc(other, nullptr, nullptr), ACL_ERROR_RT_PARAM_INVALID);
    CHECK_CODE(aclrtProcessReport(1), ACL_ERROR_RT_REPORT_TIMEOUT);
    OK(aclrtLaunchHostFunc(other, nothing, nullptr));
    OK(aclrtSynchronizeStream(other));
    CHECK_CODE(aclrtSubscribeReport(me(), other), ACL_ERROR_RT_STREAM_SUBSCRIBE);
    CHECK_CODE(aclrtLaunchCallback(nothing, nullptr, no_block, other), ACL_ERROR_RT_STREAM_SUBSCRIBE);
    CHECK_CODE(aclrtUnSubscribeReport(me(), other), ACL_ERROR_RT_STREAM_SUBSCRIBE);
    {
        Scene second(1);
        aclrtStream there = second.stream();
        CHECK_CODE(aclrtSubscribeReport(me(), there), ACL_ERROR_RT_THREAD_SUBSCRIBE);
    }
    OK(aclrtSetDevice(0));
    OK(aclrtUnSubscribeReport(me(), stream));
    CHECK_CODE(aclrtProcessReport(-1), ACL_ERROR_RT_THREAD_SUBSCRIBE);
    OK(aclrtResetDevice(0));
}

TEST(one_call_runs_all_reports_there_are) {
    Scene scene;
    Log log;
    aclrtStream stream = scene.stream();
    OK(aclrtSubscribeReport(me(), stream));
    std::vector<Note> notes;
    for (int i = 0; i < 100; ++i) {
        notes.push_back({&log, i});
    }
    for (Note &note : notes) {
        OK(aclrtLaunchCallback(write, &note, no_block, stream));
    }
    OK(aclrtSynchronizeStream(stream));  // does not wait for NO_BLOCK callbacks
    CHECK_EQ(log.values().size(), 0u);
    OK(aclrtProcessReport(-1));
    const std::vector<int> ran = log.values();
    CHECK_EQ(ran.size(), 100u);
    CHECK(std::is_sorted(ran.begin(), ran.end()));
    CHECK_CODE(aclrtProcessReport(1), ACL_ERROR_RT_REPORT_TIMEOUT);
    CHECK_EQ(aclsimCallbacksLaunched(), 100u);
    OK(aclrtUnSubscribeReport(me(), stream));
    CHECK_EQ(aclsimLive("subscriptions"), 0);
}

TEST(a_block_callback_holds_the_stream) {
    Scene scene;
    DeviceBuffer device(1);
    aclrtStream stream = scene.stream();
    OK(aclrtMemset(device.p, 1, 0, 1));
    ReportThread reports;
    reports.subscribe(stream);
    Gate entered, leave;
    struct Both {
        Gate *entered, *leave;
    } both{&entered, &leave};
    OK(aclrtLaunchCallback(
        [](void *p) {
            static_cast<Both *>(p)->entered->open();
            static_cast<Both *>(p)->leave->wait();
        },
        &both, block, stream));
    OK(aclrtMemsetAsync(device.p, 1, 6, 1, stream));
    reports.start();
    entered.wait();
    unsigned char seen = 0;
    OK(aclrtMemcpy(&seen, 1, device.p, 1, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK_EQ(int(seen), 0);
    CHECK(!is_complete(stream));
    CHECK_CODE(aclrtUnSubscribeReport(reports.id(), stream), ACL_ERROR_RT_INTERNAL_ERROR);
    leave.open();
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtMemcpy(&seen, 1, device.p, 1, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK_EQ(int(seen), 6);
}

TEST(a_block_callback_takes_three_entries) {
    Scene scene;
    aclrtStream stream = scene.stream();
    DeviceBuffer device(1);
    ReportThread reports;
    reports.subscribe(stream);
    OK(aclsimSetQueueDepth(7));
    OK(aclsimHoldStream(stream));
    uint32_t first = 0, second = 0, third = 0;
    OK(aclrtMemsetAsync(device.p, 1, 6, 1, stream));
    OK(aclrtGetThreadLastTaskId(&first));
    OK(aclrtLaunchCallback(nothing, nullptr, block, stream));
    OK(aclrtGetThreadLastTaskId(&second));
    OK(aclrtLaunchCallback(nothing, nullptr, block, stream));
    OK(aclrtGetThreadLastTaskId(&third));
    CHECK_EQ(second - first, 3u);
    CHECK_EQ(third - second, 3u);
    std::thread launcher([&, context = scene.context()] {
        OK(aclrtSetCurrentContext(context));
        OK(aclrtMemsetAsync(device.p, 1, 6, 1, stream));
    });
    OK(aclsimWaitBlocked(stream, 1, -1));
    reports.start();
    OK(aclsimReleaseStream(stream));
    launcher.join();
    OK(aclrtSynchronizeStream(stream));
}

TEST(callbacks_run_on_after_a_failure_but_not_in_stop_mode) {
    for (bool stop : {false, true}) {
        Scene scene;
        Log log;
        Note note{&log, 1};
        aclrtStream stream = scene.stream();
        DeviceBuffer device(1);
        if (stop) {
            OK(aclrtSetStreamFailureMode(stream, ACL_STOP_ON_FAILURE));
        }
        OK(aclrtSubscribeReport(me(), stream));
        OK(aclsimFailTask(0, stream, "memset", 1, ACL_ERROR_RT_AICORE_EXCEPTION));
        OK(aclsimHoldStream(stream));
        OK(aclrtMemsetAsync(device.p, 1, 6, 1, stream));
        OK(aclrtLaunchCallback(write, &note, no_block, stream));
        OK(aclsimReleaseStream(stream));
        CHECK_CODE(aclrtSynchronizeStream(stream), ACL_ERROR_RT_AICORE_EXCEPTION);
        CHECK_CODE(aclrtProcessReport(stop ? 1 : -1), stop ? ACL_ERROR_RT_REPORT_TIMEOUT : 0);
        CHECK_EQ(log.values().size(), stop ? 0u : 1u);
        CHECK_CODE(aclrtLaunchCallback(write, &note, no_block, stream),
                   stop ? ACL_ERROR_RT_AICORE_EXCEPTION : 0);
    }
}

TEST(aborted_callbacks_never_run) {
    Scene scene;
    Log log;
    Note note{&log, 1}, last{&log, 2};
    aclrtStream stream = scene.stream();
    OK(aclrtSubscribeReport(me(), stream));
    OK(aclsimHoldStream(stream));
    OK(aclrtLaunchCallback(write, &note, no_block, stream));
    OK(aclrtLaunchCallback(write, &note, block, stream));
    OK(aclrtStreamAbort(stream));
    OK(aclsimReleaseStream(stream));
    OK(aclrtLaunchCallback(write, &last, no_block, stream));
    OK(aclrtProcessReport(-1));
    CHECK(log.values() == std::vector<int>{2});
    OK(aclrtDestroyStreamForce(stream));
    CHECK_CODE(aclrtProcessReport(-1), ACL_ERROR_RT_THREAD_SUBSCRIBE);
    CHECK_EQ(aclsimLive("subscriptions"), 0);
}

TEST(a_block_callback_of_an_aborted_stream_releases_nothing) {
    Scene scene;
    aclrtStream stream = scene.stream();
    DeviceBuffer device(1);
    Gate gate, entered;
    ReportThread reports;
    reports.subscribe(stream);
    reports.start();
    struct Both {
        Gate *entered, *leave;
    } both{&entered, &gate};
    OK(aclrtLaunchCallback(
        [](void *p) {
            static_cast<Both *>(p)->entered->open();
            static_cast<Both *>(p)->leave->wait();
        },
        &both, block, stream));
    entered.wait();
    OK(aclrtStreamAbort(stream));
    // A second wait of the same stream must not be released by the end of the first callback.
    Log log;
    Note note{&log, 1};
    OK(aclrtLaunchCallback(write, &note, block, stream));
    CHECK_EQ(log.values().size(), 0u);
    gate.open();
    OK(aclrtSynchronizeStream(stream));
    CHECK_EQ(log.values().size(), 1u);
}

TEST(unsubscribing_wakes_the_report_thread) {
    Scene scene;
    aclrtStream stream = scene.stream();
    Gate subscribed;
    std::atomic<uint64_t> id{0};
    std::atomic<int> code{0};
    Gate has_id;
    std::thread reports([&] {
        id = me();
        has_id.open();
        subscribed.wait();
        code = aclrtProcessReport(-1);
    });
    has_id.wait();
    OK(aclrtSubscribeReport(id, stream));
    subscribed.open();
    OK(aclrtUnSubscribeReport(id, stream));
    reports.join();
    CHECK_EQ(code.load(), ACL_ERROR_RT_THREAD_SUBSCRIBE);
}

TEST(user_data_has_48_bits) {
    Scene scene;
    aclrtStream stream = scene.stream();
    OK(aclrtSubscribeReport(me(), stream));
    static std::atomic<uint64_t> seen{0};
    OK(aclrtLaunchCallback([](void *p) { seen = reinterpret_cast<uint64_t>(p); },
                           reinterpret_cast<void *>(0xABCD'1234'5678'9ABCull), no_block, stream));
    OK(aclrtProcessReport(-1));
    CHECK_EQ(seen.load(), 0x1234'5678'9ABCull);
}

TEST(processing_inside_a_callback_is_refused) {
    Scene scene;
    aclrtStream stream = scene.stream();
    OK(aclrtSubscribeReport(me(), stream));
    static int inner = 0;
    OK(aclrtLaunchCallback([](void *) { inner = aclrtProcessReport(-1); }, nullptr, no_block, stream));
    OK(aclrtProcessReport(-1));
    CHECK_EQ(inner, ACL_ERROR_RT_INTERNAL_ERROR);
}

TEST(host_functions_share_one_thread_per_context) {
    Scene scene;
    aclrtStream one = scene.stream(), two = scene.stream();
    Log log;
    std::vector<Note> notes;
    for (int i = 0; i < 20; ++i) {
        notes.push_back({&log, i});
    }
    static std::mutex mutex;
    static std::vector<uint64_t> threads;
    auto who = [](void *) {
        std::lock_guard<std::mutex> lock(mutex);
        threads.push_back(me());
    };
    threads.clear();
    for (Note &note : notes) {
        OK(aclrtLaunchHostFunc(one, write, &note));
    }
    OK(aclrtLaunchHostFunc(one, who, nullptr));
    OK(aclrtLaunchHostFunc(two, who, nullptr));
    OK(aclrtLaunchHostFunc(nullptr, who, nullptr));
    OK(aclrtSynchronizeDevice());
    const std::vector<int> ran = log.values();
    CHECK_EQ(ran.size(), 20u);
    CHECK(std::is_sorted(ran.begin(), ran.end()));
    CHECK_EQ(threads.size(), 3u);
    CHECK(threads[0] == threads[1] && threads[1] == threads[2] && threads[0] != me());
    CHECK_EQ(timeline()[0].kind, std::string("host_func"));
}

TEST(a_host_function_may_be_pending_when_its_context_goes) {
    Scene scene;
    aclrtContext mine = nullptr;
    OK(aclrtCreateContext(&mine, 0));
    Gate leave;
    OK(aclrtLaunchHostFunc(nullptr, wait_gate, &leave));
    OK(aclrtLaunchHostFunc(nullptr, nothing, nullptr));
    std::thread opener([&] { leave.open(); });
    OK(aclrtDestroyContext(mine));
    opener.join();
}

TEST(reports_can_be_held_dropped_and_delayed) {
    Scene scene;
    OK(aclsimSetClock(1));
    aclrtStream stream = scene.stream();
    OK(aclrtSubscribeReport(me(), stream));
    Gate ran;
    OK(aclsimHoldReports(0));
    OK(aclrtLaunchCallback(open_gate, &ran, no_block, stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK_CODE(aclrtProcessReport(1), ACL_ERROR_RT_REPORT_TIMEOUT);
    CHECK(!ran.is_open());
    OK(aclsimReleaseReports(0));
    OK(aclrtProcessReport(-1));
    CHECK(ran.is_open());
    Gate first, second;
    OK(aclsimDropCallback(0, stream, 2));
    OK(aclrtLaunchCallback(open_gate, &first, no_block, stream));
    OK(aclrtLaunchCallback(open_gate, &second, no_block, stream));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtProcessReport(-1));
    CHECK(first.is_open() && !second.is_open());
    CHECK_CODE(aclrtProcessReport(1), ACL_ERROR_RT_REPORT_TIMEOUT);
    OK(aclsimDelayReport(0, 5000000));
    const uint64_t before = aclsimNow();
    OK(aclrtLaunchCallback(open_gate, &second, no_block, stream));
    OK(aclrtProcessReport(-1));
    CHECK(second.is_open());
    CHECK_EQ(aclsimNow() - before, 5000000u);
}

TEST(reports_of_different_streams_can_be_shuffled) {
    Scene scene;
    Log log;
    aclrtStream one = scene.stream(), two = scene.stream();
    OK(aclrtSubscribeReport(me(), one));
    OK(aclrtSubscribeReport(me(), two));
    OK(aclsimSetReportOrder(1));
    std::vector<Note> notes;
    for (int i = 0; i < 200; ++i) {
        notes.push_back({&log, i});
    }
    for (int i = 0; i < 100; ++i) {
        OK(aclrtLaunchCallback(write, &notes[i], no_block, one));
    }
    OK(aclrtSynchronizeStream(one));
    for (int i = 100; i < 200; ++i) {
        OK(aclrtLaunchCallback(write, &notes[i], no_block, two));
    }
    OK(aclrtSynchronizeStream(two));
    OK(aclrtProcessReport(-1));
    std::vector<int> ran = log.values(), first, second;
    CHECK_EQ(ran.size(), 200u);
    CHECK(!std::is_sorted(ran.begin(), ran.end()));
    for (int value : ran) {
        (value < 100 ? first : second).push_back(value);
    }
    CHECK(std::is_sorted(first.begin(), first.end()) && std::is_sorted(second.begin(), second.end()));
}

TEST(processing_needs_a_context_somewhere) {
    Scene scene;
    aclrtContext mine = nullptr;
    OK(aclrtCreateContext(&mine, 1));
    aclrtStream stream = scene.stream();
    Gate has_id, subscribed;
    uint64_t id = 0;
    int code = 0;
    std::thread reports([&] {
        id = me();
        has_id.open();
        subscribed.wait();
        code = aclrtProcessReport(-1);
    });
    has_id.wait();
    OK(aclrtSubscribeReport(id, stream));
    subscribed.open();
    reports.join();
    CHECK_EQ(code, ACL_ERROR_RT_CONTEXT_NULL);
    OK(aclrtDestroyContext(mine));
}
