// SPDX-License-Identifier: Apache-2.0
// A few threads, started when first needed, that run what takes real time: models and large copies.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace aclsim {

class WorkerPool {
public:
    WorkerPool(const char *thread_name, uint32_t threads) : name_(thread_name), limit_(threads) {}

    void run(std::function<void()> job);
    // No further job starts; waits until running ones end or `limit_ms` have passed.
    void stop(uint32_t limit_ms);

private:
    void serve();

    const char *const name_;
    const uint32_t limit_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::condition_variable quiet_;
    std::deque<std::function<void()>> jobs_;
    uint32_t threads_ = 0;
    uint32_t waiting_ = 0;
    uint32_t running_ = 0;
    bool stopped_ = false;
};

WorkerPool &compute_pool();
// Large copies have threads of their own, so that models do not delay them.
WorkerPool &copy_pool();

}  // namespace aclsim
