// SPDX-License-Identifier: Apache-2.0
#include "floor.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "spinning.h"

namespace aioascend::bench {

namespace {

constexpr int32_t kReportWaitMs = 100;

aclError submit(const AclApi &api, const Lane &lane, Work work) {
    aclError code = api.aclrtMemcpyAsync(lane.device, kLaneBytes, lane.source,
                                         work == Work::Copy ? kCopyBytes : kLaneBytes, ACL_MEMCPY_HOST_TO_DEVICE,
                                         lane.stream);
    if (work == Work::Copy) {
        return code;
    }
    for (int i = 0; i < kChainKernels && code == 0; ++i) {
        code = api.aclrtMemsetAsync(static_cast<char *>(lane.device) + i, 1, i + 1, 1, lane.stream);
    }
    return code != 0 ? code
                     : api.aclrtMemcpyAsync(lane.result, kLaneBytes, lane.device, kLaneBytes,
                                            ACL_MEMCPY_DEVICE_TO_HOST, lane.stream);
}

}  // namespace

struct Floor::State {
    // One operation after the other on one lane: what a coroutine would be.
    struct Machine {
        Lane lane;
        size_t left = 0;
        Machine *next = nullptr;
    };

    const AclApi &api;
    aclrtContext context;
    std::vector<Machine> machines;
    std::set<aclrtStream> subscribed;
    int event_fd = -1;
    int epoll_fd = -1;
    std::thread reporter;
    Machine *arrived = nullptr;  // of the report thread: callbacks that ran during this ProcessReport

    std::mutex mutex;
    std::condition_variable changed;
    bool reports_come = false;
    bool stop = false;
    bool signalled = false;
    Machine *finished = nullptr;

    State(const AclApi &api, aclrtContext context) : api(api), context(context) { common::spin_before_sleep(mutex); }
    ~State();

    aclError start();
    void serve_reports();
    void hand_over();
    Machine *take();
    aclError launch(Machine &machine, Work work, Counts &counts);
    static void on_report(void *data);

    static inline thread_local State *of_thread = nullptr;
};

Floor::State::~State() {
    for (aclrtStream stream : subscribed) {
        api.aclrtUnSubscribeReport(static_cast<uint64_t>(reporter.native_handle()), stream);
    }
    {
        std::lock_guard<std::mutex> lock(mutex);
        stop = true;
    }
    changed.notify_all();
    if (reporter.joinable()) {
        reporter.join();
    }
    if (event_fd >= 0) {
        close(event_fd);
    }
    if (epoll_fd >= 0) {
        close(epoll_fd);
    }
}

aclError Floor::State::start() {
    event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    event.events = EPOLLIN;
    if (event_fd < 0 || epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, event_fd, &event) != 0) {
        return ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
    }
    reporter = std::thread([this] { serve_reports(); });
    pthread_setname_np(reporter.native_handle(), "bench-report");
    for (const Machine &machine : machines) {
        if (subscribed.count(machine.lane.stream) != 0) {
            continue;
        }
        const auto thread = static_cast<uint64_t>(reporter.native_handle());
        if (const aclError code = api.aclrtSubscribeReport(thread, machine.lane.stream)) {
            return code;
        }
        subscribed.insert(machine.lane.stream);
    }
    std::lock_guard<std::mutex> lock(mutex);
    reports_come = true;
    changed.notify_all();
    return 0;
}

void Floor::State::serve_reports() {
    of_thread = this;
    api.aclrtSetCurrentContext(context);
    {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [this] { return reports_come || stop; });
    }
    for (;;) {
        const aclError code = api.aclrtProcessReport(kReportWaitMs);
        hand_over();
        std::unique_lock<std::mutex> lock(mutex);
        if (code != 0 && code != ACL_ERROR_RT_REPORT_TIMEOUT) {
            changed.wait(lock, [this] { return stop; });  // unsubscribed: that is the end
        }
        if (stop) {
            return;
        }
    }
}

void Floor::State::on_report(void *data) {
    auto *machine = static_cast<Machine *>(data);
    machine->next = of_thread->arrived;
    of_thread->arrived = machine;
}

void Floor::State::hand_over() {
    if (arrived == nullptr) {
        return;
    }
    Machine *last = arrived;
    while (last->next != nullptr) {
        last = last->next;
    }
    bool asleep;
    {
        std::lock_guard<std::mutex> lock(mutex);
        last->next = finished;
        finished = arrived;
        arrived = nullptr;
        asleep = !signalled;
        signalled = true;
    }
    if (asleep) {
        const uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = write(event_fd, &one, sizeof one);
    }
}

Floor::State::Machine *Floor::State::take() {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(event_fd, &count, sizeof count);
    std::lock_guard<std::mutex> lock(mutex);
    signalled = false;
    Machine *all = finished;
    finished = nullptr;
    return all;
}

aclError Floor::State::launch(Machine &machine, Work work, Counts &counts) {
    const aclError code = submit(api, machine.lane, work);
    if (code != 0) {
        return code;
    }
    ++counts.callbacks;
    return api.aclrtLaunchCallback(&State::on_report, &machine, ACL_CALLBACK_NO_BLOCK, machine.lane.stream);
}

Floor *Floor::start(const AclApi &api, aclrtContext context, std::vector<Lane> lanes, aclError &code) {
    auto *floor = new Floor(new State(api, context));
    floor->state_->machines.reserve(lanes.size());
    for (const Lane &lane : lanes) {
        floor->state_->machines.push_back({lane});
    }
    code = floor->state_->start();
    if (code != 0) {
        delete floor;
        return nullptr;
    }
    return floor;
}

Floor::~Floor() {
    delete state_;
}

aclError Floor::run(Work work, size_t times, Counts &counts) {
    State &state = *state_;
    if (times == 0) {
        return 0;
    }
    aclError code = state.api.aclrtSetCurrentContext(state.context);
    size_t running = 0;
    for (State::Machine &machine : state.machines) {
        machine.left = times;
        if (code == 0 && (code = state.launch(machine, work, counts)) == 0) {
            ++running;
        }
    }
    while (running > 0) {
        epoll_event event;
        if (epoll_wait(state.epoll_fd, &event, 1, -1) < 1) {
            continue;  // a signal
        }
        ++counts.wakeups;
        State::Machine *machine = state.take();
        while (machine != nullptr) {
            State::Machine *next = machine->next;
            if (--machine->left > 0 && code == 0) {
                code = state.launch(*machine, work, counts);
            }
            if (machine->left == 0 || code != 0) {
                --running;
            }
            machine = next;
        }
    }
    return code;
}

aclError time_submits(const AclApi &api, const Lane &lane, size_t calls, size_t batch, int64_t &nanoseconds) {
    using Clock = std::chrono::steady_clock;
    nanoseconds = 0;
    for (size_t done = 0; done < calls; done += batch) {
        if (const aclError code = api.aclrtSynchronizeStream(lane.stream)) {
            return code;
        }
        const auto began = Clock::now();
        for (size_t i = done; i < done + batch && i < calls; ++i) {
            if (const aclError code = api.aclrtMemsetAsync(lane.device, 1, 1, 1, lane.stream)) {
                return code;
            }
        }
        nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began).count();
    }
    return api.aclrtSynchronizeStream(lane.stream);
}

}  // namespace aioascend::bench
