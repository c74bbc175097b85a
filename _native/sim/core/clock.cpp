// SPDX-License-Identifier: Apache-2.0
#include "core/clock.h"

#include <algorithm>

namespace aclsim {

namespace {
std::chrono::steady_clock::time_point time_point(uint64_t ns) {
    return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(static_cast<int64_t>(ns)));
}
}  // namespace

void Waker::wake() {
    std::lock_guard<std::mutex> lock(mutex_);
    woken_ = true;
    condition_.notify_one();
}

void Waker::sleep(uint64_t deadline_ns) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto woken = [this] { return woken_; };
    if (deadline_ns == never) {
        condition_.wait(lock, woken);
    } else {
        condition_.wait_until(lock, time_point(deadline_ns), woken);
    }
    woken_ = false;
}

Clock &sim_clock() {
    static Clock *clock = new Clock;
    return *clock;
}

uint64_t Clock::now() const {
    if (is_virtual()) {
        return virtual_now_.load(std::memory_order_acquire);
    }
    return steady_ns() + static_cast<uint64_t>(offset_.load(std::memory_order_relaxed));
}

void Clock::set_virtual(bool on) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (on == is_virtual()) {
        return;
    }
    const uint64_t current = now();
    if (on) {
        virtual_now_.store(current, std::memory_order_release);
    } else {
        offset_.store(static_cast<int64_t>(current - steady_ns()), std::memory_order_relaxed);
    }
    virtual_.store(on, std::memory_order_release);
    // Sleepers chose their deadline by the other clock.
    for (Member &member : members_) {
        member.idle = false;
        if (member.waker != nullptr) {
            member.waker->wake();
        }
    }
}

uint64_t Clock::deadline(uint64_t at) const {
    if (at == never || is_virtual()) {
        return never;
    }
    return at - static_cast<uint64_t>(offset_.load(std::memory_order_relaxed));
}

void Clock::join(int32_t device, Waker *waker) {
    std::lock_guard<std::mutex> lock(mutex_);
    members_[static_cast<size_t>(device)] = Member{waker, false, false, never};
}

void Clock::leave(int32_t device) {
    std::lock_guard<std::mutex> lock(mutex_);
    members_[static_cast<size_t>(device)] = Member{};
    advance();
}

bool Clock::idle(int32_t device, uint64_t due, bool working) {
    std::lock_guard<std::mutex> lock(mutex_);
    Member &member = members_[static_cast<size_t>(device)];
    member.idle = true;
    member.working = working;
    member.due = due;
    if (is_virtual()) {
        advance();
    }
    return member.idle;
}

void Clock::active(int32_t device) {
    std::lock_guard<std::mutex> lock(mutex_);
    members_[static_cast<size_t>(device)].idle = false;
}

void Clock::freeze() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++frozen_;
}

void Clock::thaw() {
    std::lock_guard<std::mutex> lock(mutex_);
    --frozen_;
    advance();
}

void Clock::advance() {
    if (frozen_ > 0) {
        return;
    }
    uint64_t next = never;
    for (const Member &member : members_) {
        if (member.waker == nullptr) {
            continue;
        }
        if (!member.idle || member.working) {
            return;
        }
        next = std::min(next, member.due);
    }
    if (next == never || !is_virtual()) {
        return;
    }
    if (next > virtual_now_.load(std::memory_order_relaxed)) {
        virtual_now_.store(next, std::memory_order_release);
    }
    for (Member &member : members_) {
        if (member.waker != nullptr && member.due <= next) {
            member.idle = false;
            member.waker->wake();
        }
    }
}

}  // namespace aclsim
