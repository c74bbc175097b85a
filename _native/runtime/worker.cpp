// SPDX-License-Identifier: Apache-2.0
#include "worker.h"

#include <chrono>

#include "device.h"

namespace aioascend {
namespace {

constexpr auto kSweepAfter = std::chrono::seconds(1);  // when the report thread has not done so, which is its task

}  // namespace

void Worker::start() {
    stop_ = false;
    thread_.start("aioascend-work", [this] { run(); });
}

bool Worker::stop() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
    }
    posted_.notify_all();
    uint64_t done;
    do {
        done = jobs_done_;
        if (thread_.join_until(std::chrono::steady_clock::now() + kPatience)) {
            return true;
        }
    } while (jobs_done_ != done);
    return false;
}

void Worker::run_rest() {
    std::deque<std::function<void()>> jobs;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        jobs.swap(jobs_);
    }
    for (const auto &job : jobs) {  // and not what they post: some of that waits for the thread
        job();
    }
}

void Worker::leave(std::chrono::steady_clock::time_point deadline) {
    std::deque<std::function<void()>> dropped;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
        dropped.swap(jobs_);
    }
    posted_.notify_all();
    thread_.join_until(deadline);
}

void Worker::post(std::function<void()> job) {
    std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(std::move(job));
    posted_.notify_one();
}

void Worker::wake(std::shared_ptr<Stream> stream) {
    post([stream = std::move(stream)] { stream->issue_queued(); });
}

void Worker::run() {
    device_.api().aclrtSetCurrentContext(device_.context());
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
        if (!posted_.wait_for(lock, kSweepAfter, [this] { return stop_ || !jobs_.empty(); })) {
            lock.unlock();
            device_.sweep(std::chrono::nanoseconds(kSweepAfter).count());
            lock.lock();
            continue;
        }
        if (jobs_.empty()) {
            return;
        }
        {
            std::function<void()> job = std::move(jobs_.front());
            jobs_.pop_front();
            lock.unlock();
            job();
            ++jobs_done_;
        }  // what the job held is let go before the lock is taken again
        device_.sweep(std::chrono::nanoseconds(kSweepAfter).count());
        lock.lock();
    }
}

}  // namespace aioascend
