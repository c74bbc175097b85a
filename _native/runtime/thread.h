// SPDX-License-Identifier: Apache-2.0
// A thread of the runtime. Any number of threads may wait for its end, and need not wait for ever: it makes calls of
// the library, which may not return.
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "live.h"

namespace aioascend {

// How long calls of the library are waited for, by who cannot go on while one is under way.
constexpr auto kPatience = std::chrono::seconds(5);

class Thread {
public:
    void start(const char *name, std::function<void()> body) {
        done_ = false;
        thread_ = std::thread([this, body = std::move(body)] {
            body();
            std::lock_guard<std::mutex> lock(mutex_);
            done_ = true;
            changed_.notify_all();
        });
        ++Live::counts().threads;
        pthread_setname_np(thread_.native_handle(), name);
    }

    pthread_t handle() { return thread_.native_handle(); }

    // False when it still runs then.
    bool join_until(std::chrono::steady_clock::time_point deadline) {
        std::unique_lock<std::mutex> lock(mutex_);
        if (!changed_.wait_until(lock, deadline, [this] { return ended(); })) {
            return false;
        }
        finish();
        return true;
    }

private:
    bool ended() const { return done_ || !thread_.joinable(); }  // or was never started
    void finish() {  // it has nothing left to do but to end
        if (thread_.joinable()) {
            thread_.join();
            --Live::counts().threads;
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::thread thread_;
    bool done_ = false;
};

}  // namespace aioascend
