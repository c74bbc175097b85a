// SPDX-License-Identifier: Apache-2.0
// What became of an operation: reports and failures; reach.cpp knows what a failure reaches, give_up.cpp deals with
// reports that never come. Tickets are retired with the device's settle_mutex held, so they leave in stream order.
//
// A report carries no status. A failed task is known through the exception callback, which names its stream and task
// (Device::note_exception); asking for the stream's state before settling makes the library hand over what it has.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "device.h"
#include "process.h"
#include "stream.h"

namespace aioascend {
namespace {

// Task ids wrap around.
bool at_or_before(uint32_t a, uint32_t b) {
    return static_cast<int32_t>(b - a) >= 0;
}

}  // namespace

std::shared_ptr<Failure> new_failure(const Device &device, aclError code, int32_t stream) {
    static std::atomic<uint64_t> ids{0};
    auto failure = std::make_shared<Failure>();
    failure->id = ++ids;
    failure->code = code;
    failure->device = device.index();
    failure->stream_id = stream;
    return failure;
}

void Stream::report_arrived(Marker *marker) {
    retire_sources(marker->seq);
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find(markers_.begin(), markers_.end(), marker);
    if (found != markers_.end()) {
        markers_.erase(found);
    }
    retire_locked(marker->seq);
    spare_markers_.push_back(marker);
}

// The device is past everything up to a position of this stream, so also past what the waits up to there were for: those
// streams need no reports of their own. A record that a failure of its own stream reaches may never have been made, and
// a wait that failed has not waited; that failure may be taken for one of what is behind it, as waits can have no task.
void Stream::retire_sources(uint64_t seq) {
    std::vector<std::pair<std::shared_ptr<Stream>, uint64_t>> sources;
    {
        std::lock_guard<std::mutex> failures(device_.failure_mutex);
        for (const PendingWait &wait : waits_) {
            if (wait.seq > seq) {
                break;
            }
            const auto doubtful = [&](const Taint &taint) { return taint.from <= seq && taint.to >= wait.seq; };
            const auto unmade = [&](const Taint &taint) { return taint.covers(wait.source_seq); };
            const std::vector<Taint> &there = wait.source->taints_;
            if (std::none_of(taints_.begin(), taints_.end(), doubtful) &&
                std::none_of(there.begin(), there.end(), unmade)) {
                sources.emplace_back(wait.source, wait.source_seq);
            }
        }
    }
    for (const auto &[source, upto] : sources) {  // from the oldest: it leads to none that is not retired by then
        source->retire_upto(upto);
    }
}

void Stream::retire_upto(uint64_t seq) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (seq <= retired_seq_ || aborting_) {
            return;
        }
    }
    retire_sources(seq);
    std::lock_guard<std::mutex> lock(mutex_);
    retire_locked(seq);
}

void Stream::retire_locked(uint64_t seq) {
    size_t retired = 0;
    std::unique_lock<std::mutex> failures(device_.failure_mutex);
    while (flight_.head && flight_.head->seq <= seq) {
        Ticket *ticket = flight_.pop();
        retired_seq_ = ticket->seq;
        retired_task_ = ticket->last_task;
        ++retired;
        settle(*ticket);
        hand_over(ticket);
    }
    failures.unlock();
    in_flight_.fetch_sub(retired, std::memory_order_relaxed);
    if (!queue_.empty()) {
        wake_worker();
    } else if (in_flight_ == 0) {
        if (confirm_due_) {
            confirm_due_ = false;
            device_.worker().post([self = shared_from_this()] { self->confirm(); });
        }
        note_drained();
    }
}

// With mutex_ held.
void Stream::note_drained() {
    if (drained() && markers_.empty()) {
        drained_.notify_all();
        if (destroy_due_) {
            post_destroy();
        }
    }
}

bool Stream::large(const Ticket &ticket) const {
    return ticket.extra && ticket.extra->copy_size > device_.options().stage_inline_bytes;
}

// Large staged copies go on into the caller's array on the worker; what comes behind one takes the same way, so that
// operations are still resolved in stream order.
void Stream::hand_over(Ticket *ticket) {
    if (!large(*ticket) && finishing_ == 0) {
        device_.outbox_add(ticket);
        return;
    }
    ++finishing_;
    ticket->finishing = true;
    device_.worker().post([self = shared_from_this(), ticket] { self->finish_on_worker(ticket); });
}

void Stream::finish_on_worker(Ticket *ticket) {
    if (large(*ticket)) {  // others are left to the loop, where they can still be cancelled
        finish_copy(*ticket);
    }
    std::lock_guard<std::mutex> settling(device_.settle_mutex);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        ticket->finishing = false;
        device_.outbox_add(ticket);
        --finishing_;
        note_drained();
    }
    device_.outbox_send();
}

void finish_copy(Ticket &ticket) {
    TicketExtra *extra = ticket.extra.get();
    if (extra && extra->copy_size != 0 && ticket.outcome == Outcome::Ok && !ticket.abandoned) {
        std::memcpy(extra->copy_to, extra->copy_from->base, extra->copy_size);
        extra->copy_size = 0;
    }
}

// With the failure_mutex held.
void Stream::settle(Ticket &ticket) {
    if (ticket.extra && ticket.extra->source) {
        take_failures(ticket.seq, *ticket.extra->source, ticket.extra->source_seq);
        ticket.extra->source.reset();
        waits_.erase(std::remove_if(waits_.begin(), waits_.end(),
                                    [&](const PendingWait &wait) { return wait.seq <= ticket.seq; }),
                     waits_.end());
    }
    if (ticket.outcome == Outcome::Ok && !(taints_.empty() && waits_.empty())) {
        if (auto failure = failure_at(ticket.seq)) {
            ticket.fail(std::move(failure), Outcome::Dependent);
        }
    }
}

// ticket: the one that failed, or null when all that is known is that one of those in flight did.
// behind: which are those.
void Stream::start_failure(Ticket *ticket, uint64_t behind, aclError code, uint32_t task, bool issued) {
    std::lock_guard<std::mutex> failures(device_.failure_mutex);
    const uint64_t from = ticket ? ticket->seq : behind;
    if (failure_at(from + (ticket ? 0 : 1))) {
        return;  // it ran behind an earlier failure, which is what its awaiter has to know
    }
    auto failure = new_failure(device_, code, id_);
    failure->task_id = task;
    failure->issued = issued;
    if (ticket) {
        failure->seq = ticket->seq;
        failure->kind = ticket->kind;
        failure->owner = ticket->owner;
        ticket->fail(failure, Outcome::Failed);
    }
    // Whoever waits for a record that was not started waits for nothing, and goes on before it might.
    const bool never_made = ticket && ticket->kind == Kind::Record && !issued;
    add_taint(failure, never_made ? from - 1 : from, Taint::kOpen);
    confirm_due_ = confirm_due_ || (issued && device_.can().sync_timeout && !foreign_);
}

bool Stream::mark_failed(uint32_t task, aclError code) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!device_.can().last_task_id) {
        start_failure(nullptr, retired_seq_, code, task, true);
        return true;
    }
    // The exact id first: where ids have fewer than 32 bits, comparing them goes wrong when they wrap around. A task
    // of an operation that is retired already, as the library told too late, is none of the next one in flight.
    for (const bool exact : {true, false}) {
        if (!exact && at_or_before(task, retired_task_)) {
            break;
        }
        for (Ticket *ticket = flight_.head; ticket != nullptr; ticket = ticket->next) {
            if (exact ? ticket->last_task == task : at_or_before(task, ticket->last_task)) {
                start_failure(ticket, 0, code, task, true);
                return true;
            }
        }
    }
    if (issuing_ && !at_or_before(task, retired_task_)) {
        return false;
    }
    start_failure(nullptr, retired_seq_, code, task, true);
    return true;
}

// With mutex_ held.
Ticket *Stream::first_run(bool &only) {
    Ticket *first = nullptr;
    only = true;
    for (Ticket *ticket = flight_.head; ticket != nullptr; ticket = ticket->next) {
        if (ticket->kind == Kind::Execute && ticket->outcome == Outcome::Ok) {
            only = first == nullptr;
            first = first ? first : ticket;
        }
    }
    return first;
}

bool Stream::runs_of(uint32_t thread) {
    std::lock_guard<std::mutex> lock(mutex_);
    bool only;
    return runner_ == thread && first_run(only) != nullptr;
}

void Stream::mark_run_failed(const DeviceException &exception, bool only_here) {
    std::lock_guard<std::mutex> lock(mutex_);
    bool only;
    if (Ticket *run = first_run(only)) {
        start_failure(only && only_here ? run : nullptr, run->seq - 1, exception.code, exception.task_id, true);
    }
}

void Stream::reap(uint64_t flush) {
    if (reaped_ == flush) {
        return;
    }
    reaped_ = flush;
    reap_sources(flush);  // first: what failed there is the cause of what may have failed here
    bool complete;
    // Not a stream of somebody else: it may be captured, which a query would spoil.
    if (in_flight_ != 0 && device_.can().stream_query && !foreign_) {
        query(complete);
    }
}

void Stream::reap_sources(uint64_t flush) {
    std::vector<std::shared_ptr<Stream>> sources;
    {
        std::lock_guard<std::mutex> failures(device_.failure_mutex);
        for (const PendingWait &wait : waits_) {
            sources.push_back(wait.source);
        }
    }
    for (const auto &source : sources) {
        source->reap(flush);
    }
}

void Stream::confirm() {
    // The stream is idle, so this returns at once; what it returns is the failure that is known already.
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (destroyed_ || !drained()) {
            confirm_due_ = !destroyed_;
            return;
        }
        ++finishing_;  // or the stream could be destroyed meanwhile
    }
    device_.api().aclrtSynchronizeStreamWithTimeout(handle_, 1000);
    std::lock_guard<std::mutex> lock(mutex_);
    --finishing_;
    note_drained();
}

}  // namespace aioascend
