// SPDX-License-Identifier: Apache-2.0
// The simulated clock: real (CLOCK_MONOTONIC) or virtual. Virtual time stands still while any device can do
// something and jumps to the earliest completion when all of them only wait for time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace aclsim {

constexpr int32_t max_devices = 64;
constexpr uint64_t never = UINT64_MAX;

// Where a dispatcher sleeps. A lock of its own, below all others, so that anybody may wake it while holding
// anything.
class Waker {
public:
    void wake();
    // Until woken or the deadline (steady clock, ns; `never`).
    void sleep(uint64_t deadline_ns);

private:
    std::mutex mutex_;
    std::condition_variable condition_;
    bool woken_ = false;
};

class Clock {
public:
    uint64_t now() const;
    bool is_virtual() const { return virtual_.load(std::memory_order_acquire); }
    // Simulated time goes on from where it is.
    void set_virtual(bool on);
    // Steady-clock deadline at which the simulated time `at` is reached; `never` on the virtual clock.
    uint64_t deadline(uint64_t at) const;

    // A dispatcher takes part from start to stop. It reports that it has nothing to do before simulated time
    // `due`
    // (`never`: nothing at all; `working`: real computation is under way, time must not jump), and that it is
    // active again. idle() returns false when time has just jumped to its `due`: go on instead of sleeping.
    void join(int32_t device, Waker *waker);
    void leave(int32_t device);
    bool idle(int32_t device, uint64_t due, bool working);
    void active(int32_t device);

    // While frozen, virtual time does not jump: what is set going meanwhile starts at one moment.
    void freeze();
    void thaw();

private:
    struct Member {
        Waker *waker = nullptr;
        bool idle = false;
        bool working = false;
        uint64_t due = never;
    };
    void advance();  // mutex_ held

    uint32_t frozen_ = 0;
    mutable std::mutex mutex_;
    std::array<Member, max_devices> members_;
    std::atomic<bool> virtual_{false};
    std::atomic<uint64_t> virtual_now_{0};
    std::atomic<int64_t> offset_{0};  // simulated minus steady, real mode
};

Clock &sim_clock();

inline uint64_t steady_ns() {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now().time_since_epoch())
                                     .count());
}

}  // namespace aclsim
