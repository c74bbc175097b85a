// SPDX-License-Identifier: Apache-2.0
// The thread that may block so that event loops need not: it allocates and frees, stages large copies, and issues
// what waits in the streams' host-side queues. In order, and without the GIL.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "thread.h"

namespace aioascend {

class Device;
class Stream;

class Worker {
public:
    explicit Worker(Device &device) : device_(device) {}

    void start();
    // Runs what was posted, then joins. False: a call of the library does not return, and the thread is left to itself.
    bool stop();
    void run_rest();  // by the caller, when the thread is stuck
    // The process ends: what was posted is not run, and what runs is waited for until then only.
    void leave(std::chrono::steady_clock::time_point deadline);

    void post(std::function<void()> job);
    void wake(std::shared_ptr<Stream> stream);  // its queue can move

private:
    void run();

    Device &device_;
    Thread thread_;
    std::mutex mutex_;
    std::condition_variable posted_;
    std::deque<std::function<void()>> jobs_;
    bool stop_ = false;
    std::atomic<uint64_t> jobs_done_{0};
};

}  // namespace aioascend
