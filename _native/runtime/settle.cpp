// SPDX-License-Identifier: Apache-2.0
// What became of an operation: reports, failures, reports that never come; reach.cpp knows what a failure reaches.
// Everything here runs on the report thread (or the worker) with the device's settle_mutex held, so tickets leave in
// stream order.
//
// A report carries no status. A failed task is known through the exception callback, which names its stream and task
// (Device::note_exception); asking for the stream's state before settling makes the library hand over what it has.
#include <algorithm>
#include <cstring>

#include "device.h"
#include "process.h"
#include "stream.h"

namespace aioascend {
namespace {

// Task ids wrap around.
bool at_or_before(uint32_t a, uint32_t b) {
    return static_cast<int32_t>(b - a) >= 0;
}

// The stream is being aborted, or captured: that passes, and what was discarded is given up by the sweeper.
bool passing(aclError code) {
    return code == ACL_ERROR_RT_DEVICE_TASK_ABORT || code == ACL_ERROR_RT_STREAM_ABORT ||
           code == ACL_ERROR_RT_STREAM_CAPTURED;
}

std::shared_ptr<Failure> new_failure(const Device &device, aclError code) {
    static std::atomic<uint64_t> ids{0};
    auto failure = std::make_shared<Failure>();
    failure->id = ++ids;
    failure->code = code;
    failure->device = device.index();
    return failure;
}

}  // namespace

void Stream::report_arrived(Marker *marker) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find(markers_.begin(), markers_.end(), marker);
    if (found != markers_.end()) {
        markers_.erase(found);
    }
    retire_locked(marker->seq);
    spare_markers_.push_back(marker);
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
        for (const auto &failure : ticket.extra->source->failures_at(ticket.extra->source_seq)) {
            if (!tainted(*failure, ticket.seq)) {
                add_taint(failure, ticket.seq - 1, failure->told ? last_seq() : Taint::kOpen);
            }
        }
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
void Stream::start_failure(Ticket *ticket, aclError code, uint32_t task, bool issued) {
    std::lock_guard<std::mutex> failures(device_.failure_mutex);
    const uint64_t from = ticket ? ticket->seq : retired_seq_;
    if (failure_at(from + (ticket ? 0 : 1))) {
        return;  // it ran behind an earlier failure, which is what its awaiter has to know
    }
    auto failure = new_failure(device_, code);
    failure->stream_id = id_;
    failure->task_id = task;
    failure->issued = issued;
    if (ticket) {
        failure->seq = ticket->seq;
        failure->kind = ticket->kind;
        ticket->fail(failure, Outcome::Failed);
    }
    add_taint(failure, from, Taint::kOpen);
    confirm_due_ = confirm_due_ || (issued && device_.can().sync_timeout && !foreign_);
}

bool Stream::mark_failed(uint32_t task, aclError code) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!device_.can().last_task_id) {
        start_failure(nullptr, code, task, true);
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
                start_failure(ticket, code, task, true);
                return true;
            }
        }
    }
    if (issuing_ && !at_or_before(task, retired_task_)) {
        return false;
    }
    start_failure(nullptr, code, task, true);
    return true;
}

void Stream::reap(uint64_t flush) {
    if (reaped_ == flush) {
        return;
    }
    reaped_ = flush;
    bool complete;
    // Not a stream of somebody else: it may be captured, which a query would spoil.
    if (in_flight_ != 0 && device_.can().stream_query && !foreign_) {
        query(complete);
    }
    reap_sources(flush);
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

void Stream::abandon(aclError code, Outcome outcome) {
    std::lock_guard<std::mutex> lock(mutex_);
    while (!queue_.empty()) {
        Ticket *ticket = queue_.front().ticket;
        if (issuing_) {
            break;  // the worker holds the first one; it comes back with a code of its own
        }
        queue_.pop_front();
        ticket->on_host = false;
        issued_seq_.store(ticket->seq, std::memory_order_release);
        in_flight_.fetch_add(1, std::memory_order_relaxed);
        flight_.append(ticket);
    }
    while (!markers_.empty()) {
        lose_marker();
    }
    abandoned_ = true;
    retire_unreported(issued_seq_, code, outcome);
    device_.worker().post([&device = device_] { device.unblock_streams(); });  // waits for records made here
}

// Everything up to seq, although no report says that the device is past it.
void Stream::retire_unreported(uint64_t seq, aclError code, Outcome outcome) {
    auto failure = new_failure(device_, code);
    failure->stream_id = id_;
    for (Ticket *ticket = flight_.head; ticket != nullptr && ticket->seq <= seq; ticket = ticket->next) {
        if (ticket->outcome == Outcome::Ok) {
            ticket->fail(failure, outcome);
        }
        ticket->unreliable = true;
    }
    lost_seq_.store(seq);
    retire_locked(seq);
}

void Stream::lose_marker() {
    Marker *marker = markers_.front();
    markers_.pop_front();
    marker->lost = true;
    if (!device_.can().launch_callback) {
        device_.reports().unwatch_event(marker);
    }
    device_.bury(marker);
}

void Stream::give_up_oldest_marker() {
    const uint64_t seq = markers_.front()->seq;
    lose_marker();
    retire_unreported(seq, 0, Outcome::Lost);
}

// Whether it has waited too long for a record that was discarded, with an aborted stream for example.
bool Stream::stranded(int64_t now_ns) {
    bool waits = false;
    {
        std::lock_guard<std::mutex> failures(device_.failure_mutex);
        for (const PendingWait &wait : waits_) {
            waits = waits || wait.source->lost_seq_.load() >= wait.source_seq;
        }
    }
    if (!waits) {
        stranded_since_ns_ = 0;
    } else if (stranded_since_ns_ == 0) {
        stranded_since_ns_ = now_ns;
    }
    return waits && now_ns - stranded_since_ns_ > device_.options().report_timeout_ms * int64_t(1000000);
}

// For streams of somebody else: whether the device is past what carries the oldest report.
aclError Stream::query_markers(bool &complete) {
    aclrtEvent event;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        event = markers_.empty() ? nullptr : markers_.front()->event;
    }
    complete = event != nullptr && device_.event_complete(event);
    return 0;
}

void Stream::sweep(int64_t now_ns, uint64_t flush) {
    uint64_t issued;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if ((in_flight_ == 0 && markers_.empty()) || !device_.can().stream_query) {
            return;
        }
        issued = issued_seq_;
    }
    bool complete;
    const aclError code = foreign_ ? query_markers(complete) : query(complete);
    if (code != 0) {
        if (!passing(code)) {
            abandon(code, Outcome::Failed);
        }
        return;
    }
    reap_sources(flush);
    device_.apply_exceptions();
    if (!complete && stranded(now_ns)) {
        abandon(0, Outcome::Lost);
        return;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (foreign_ && markers_.empty() && in_flight_ != 0) {
        launch_marker();  // the only way to learn how far it is
    } else if (!complete) {
        for (Marker *marker : markers_) {
            marker->idle_since_ns = 0;
        }
        if (wanted_seq_ > std::max(marker_seq_, retired_seq_) && issued_seq_ >= wanted_seq_) {
            launch_marker();
        }
    } else if (markers_.empty()) {
        retire_locked(issued);  // nobody waited for it
    } else if (markers_.front()->idle_since_ns == 0) {
        markers_.front()->idle_since_ns = now_ns;
    } else if (now_ns - markers_.front()->idle_since_ns > device_.options().report_timeout_ms * int64_t(1000000)) {
        give_up_oldest_marker();
    }
}

}  // namespace aioascend
