// SPDX-License-Identifier: Apache-2.0
#include "bridge.h"

#include <sys/eventfd.h>
#include <unistd.h>

namespace aioascend {

Bridge::Bridge() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Bridge::~Bridge() {
    if (fd_ >= 0) {
        ::close(fd_);
    }
}

Bridge &Bridge::orphans() {
    static Bridge *queue = new Bridge(NoFd{});  // leaked: report threads may outlive static destructors
    return *queue;
}

void Bridge::push(TicketList tickets) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!closed_) {
            (queue_.head ? queue_.tail->next : queue_.head) = tickets.head;
            queue_.tail = tickets.tail;
            if (!armed_ && fd_ >= 0) {
                armed_ = true;
                const uint64_t one = 1;
                // Cannot fail: the counter is far from full and the descriptor is open while closed_ is false.
                [[maybe_unused]] const ssize_t written = ::write(fd_, &one, sizeof one);
            }
            return;
        }
    }
    orphans().push(tickets);
}

Ticket *Bridge::drain() {
    if (fd_ >= 0) {
        uint64_t count;
        [[maybe_unused]] const ssize_t got = ::read(fd_, &count, sizeof count);  // EAGAIN: nothing to acknowledge
    }
    std::lock_guard<std::mutex> lock(mutex_);
    armed_ = false;
    Ticket *head = queue_.head;
    queue_ = TicketList{};
    return head;
}

Ticket *Bridge::close() {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    Ticket *head = queue_.head;
    queue_ = TicketList{};
    return head;
}

}  // namespace aioascend
