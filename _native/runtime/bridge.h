// SPDX-License-Identifier: Apache-2.0
// A bridge carries finished tickets to one event loop: a queue and an eventfd that the loop watches.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "ticket.h"

namespace aioascend {

class Bridge {
public:
    Bridge();   // fd() is -1 when the process has no file descriptor left
    ~Bridge();
    Bridge(const Bridge &) = delete;
    Bridge &operator=(const Bridge &) = delete;

    int fd() const { return fd_; }  // -1 once it is closed

    // Any thread. One lock and at most one write for the whole list; after close() the list goes to the orphans.
    // Returns how many tickets the loop has not taken yet.
    size_t push(TicketList tickets);
    uint64_t wakeups() const { return wakeups_.load(std::memory_order_relaxed); }  // writes so far

    // The loop's thread: acknowledge, disarm, take everything. The order matters: what is pushed after the swap finds
    // the bridge disarmed and writes again, so no wake-up is lost.
    Ticket *drain();

    // No push touches this bridge any more, and its descriptor is closed. Returns what was still queued.
    Ticket *close();

    // Tickets without a loop (submitted by plain threads, or outliving their loop): freed by the next GIL holder.
    static Bridge &orphans();

private:
    struct NoFd {};
    explicit Bridge(NoFd) {}

    void await_pushes() const;

    std::mutex mutex_;
    TicketList queue_;
    size_t queued_ = 0;
    std::atomic<int> pushing_{0};  // threads inside push(), which writes to the descriptor without the lock
    std::atomic<uint64_t> wakeups_{0};
    int fd_ = -1;
    bool armed_ = false;
    bool closed_ = false;
};

}  // namespace aioascend
