// SPDX-License-Identifier: Apache-2.0
#include "core/pool.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/thread_state.h"

namespace aclsim {

void WorkerPool::run(std::function<void()> job) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_) {
        return;
    }
    jobs_.push_back(std::move(job));
    if (waiting_ < jobs_.size() && threads_ < limit_) {
        ++threads_;
        std::thread([this] { serve(); }).detach();
    }
    changed_.notify_one();
}

void WorkerPool::serve() {
    name_this_thread(name_);
    thread_state().on_device_thread = true;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        ++waiting_;
        changed_.wait(lock, [this] { return !jobs_.empty() || stopped_; });
        --waiting_;
        if (stopped_) {
            return;
        }
        std::function<void()> job = std::move(jobs_.front());
        jobs_.pop_front();
        ++running_;
        lock.unlock();
        job();
        job = nullptr;
        lock.lock();
        if (--running_ == 0) {
            quiet_.notify_all();
        }
    }
}

void WorkerPool::stop(uint32_t limit_ms) {
    std::unique_lock<std::mutex> lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
    quiet_.wait_for(lock, std::chrono::milliseconds(limit_ms), [this] { return running_ == 0; });
}

WorkerPool &compute_pool() {
    static WorkerPool *pool =
        new WorkerPool("aclsim-compute", std::max(1u, std::thread::hardware_concurrency()));
    return *pool;
}

WorkerPool &copy_pool() {
    static WorkerPool *pool =
        new WorkerPool("aclsim-copy", std::max(1u, std::thread::hardware_concurrency()));
    return *pool;
}

}  // namespace aclsim
