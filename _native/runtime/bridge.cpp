// SPDX-License-Identifier: Apache-2.0
#include "bridge.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "live.h"
#include "process.h"
#include "spinning.h"

namespace aioascend {

Bridge::Bridge() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    common::spin_before_sleep(mutex_);
    Live::counts().descriptors += fd_ >= 0;
}

Bridge::~Bridge() {
    close();
}

Bridge &Bridge::orphans() {
    static Bridge *queue = new Bridge(NoFd{});  // leaked: report threads may outlive static destructors
    return *queue;
}

size_t Bridge::push(TicketList tickets) {
    pushing_.fetch_add(1, std::memory_order_relaxed);
    bool wake = false;
    bool closed = false;
    size_t queued = 0;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closed = closed_;
        if (!closed) {
            (queue_.head ? queue_.tail->next : queue_.head) = tickets.head;
            queue_.tail = tickets.tail;
            queued_ += tickets.size;
            queued = fd_ >= 0 ? queued_ : 0;  // nobody will take them soon, so nobody is busy with them
            wake = !armed_ && fd_ >= 0;
            armed_ = armed_ || wake;
        }
    }
    if (wake) {
        // Not under the lock: the loop wakes up at once and takes it. The write cannot fail, the counter is far from
        // full and the descriptor open as long as somebody pushes.
        wakeups_.fetch_add(1, std::memory_order_relaxed);
        const uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = ::write(fd_, &one, sizeof one);
    }
    pushing_.fetch_sub(1, std::memory_order_release);
    if (closed) {
        orphans().push(tickets);
    }
    return queued;
}

void Bridge::await_pushes() const {
    while (!forked() && pushing_.load(std::memory_order_acquire) != 0) {
        std::this_thread::yield();
    }
}

Ticket *Bridge::drain() {
    if (forked()) {
        return nullptr;  // the descriptor is the parent's as well, and its wake-up is not ours to take
    }
    if (fd_ >= 0) {
        uint64_t count;
        [[maybe_unused]] const ssize_t got = ::read(fd_, &count, sizeof count);  // EAGAIN: nothing to acknowledge
    }
    std::lock_guard<std::mutex> lock(mutex_);
    armed_ = false;
    queued_ = 0;
    return std::exchange(queue_, TicketList{}).head;
}

Ticket *Bridge::close() {
    if (forked()) {
        return nullptr;
    }
    Ticket *head;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closed_ = true;
        head = std::exchange(queue_, TicketList{}).head;
    }
    await_pushes();
    if (fd_ >= 0) {
        ::close(fd_);
        fd_ = -1;
        --Live::counts().descriptors;
    }
    return head;
}

}  // namespace aioascend
