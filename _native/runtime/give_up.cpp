// SPDX-License-Identifier: Apache-2.0
// Work that no report will tell about: found by the sweep, which runs every now and then with the device's settle_mutex
// held, or aborted on purpose.
#include <algorithm>

#include "context_guard.h"
#include "device.h"
#include "stream.h"

namespace aioascend {
namespace {

// Somebody has destroyed the stream under us: that concerns no other.
bool of_stream(aclError code) {
    return code == ACL_ERROR_RT_INVALID_HANDLE || code == ACL_ERROR_RT_STREAM_CONTEXT;
}

}  // namespace

// The stream is being aborted, or captured: that passes, and what was discarded is given up by the sweeper.
bool Stream::passing(aclError code) {
    return code == ACL_ERROR_RT_DEVICE_TASK_ABORT || code == ACL_ERROR_RT_STREAM_ABORT ||
           code == ACL_ERROR_RT_STREAM_CAPTURED;
}

void Stream::abandon(const std::shared_ptr<Failure> &failure, Outcome outcome) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (abandoned_ && drained() && markers_.empty()) {
        return;
    }
    give_up(failure, outcome);
    discard(failure, outcome, false);
}

// With mutex_ held.
void Stream::give_up(const std::shared_ptr<Failure> &failure, Outcome outcome) {
    abandoned_ = true;
    given_up_for_ = failure;
    given_up_as_ = outcome;
}

// What the worker had in its hands when the stream was given up, and what is behind that.
void Stream::give_up_rest() {
    std::lock_guard<std::mutex> settling(device_.settle_mutex);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        discard(given_up_for_, given_up_as_, false);
    }
    device_.outbox_send();
}

bool Stream::destroyed() {
    std::lock_guard<std::mutex> lock(mutex_);
    return destroyed_;
}

bool Stream::given_up() {
    std::lock_guard<std::mutex> lock(mutex_);
    return abandoned_;
}

void Stream::handle_has_gone() {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    destroyed_ = true;
    drained_.notify_all();
}

// After a call that was refused, or a query that told of no good: once more, for a single error may be just that. A
// library that goes on refusing what it never refuses has lost the device, or the context has stopped on a failure.
void Stream::suspect() {
    bool complete;
    const aclError code = own_handle() == nullptr ? 0 : query_own(complete);
    if (code != 0 && !passing(code) && !of_stream(code)) {
        device_.fail(code);
    }
}

bool Stream::abort() {
    std::lock_guard<std::mutex> lock(device_.abort_mutex);
    std::vector<Discarded> all(1);
    const bool stopped = abort_alone(new_failure(device_, ACL_ERROR_RT_STREAM_ABORT, id_), Outcome::Failed, all[0]);
    // The records that were discarded never happen, so what waits for them, even through others, would wait for ever. The
    // streams go on meanwhile: what is newer waits for nothing that is gone, or may be reached once more.
    for (size_t next = 0; next < all.size(); ++next) {
        for (const auto &stream : device_.streams()) {
            if (stream->waits_for(all[next])) {
                Discarded with_it;
                stream->abort_alone(new_failure(device_, ACL_ERROR_RT_STREAM_ABORT, id_), Outcome::Dependent, with_it);
                all.push_back(with_it);
            }
        }
    }
    return stopped;
}

bool Stream::waits_for(const Discarded &gone) {
    std::lock_guard<std::mutex> failures(device_.failure_mutex);
    return std::any_of(waits_.begin(), waits_.end(), [&](const PendingWait &wait) {
        return wait.source == gone.stream && wait.source_seq > gone.from && wait.source_seq <= gone.to &&
               !is_over(wait);
    });
}

// How far another stream is, up to there, as the waits for it tell; those for records that were refused tell nothing.
uint64_t Stream::seen_of(Stream &other, uint64_t upto) {
    uint64_t seen = 0;
    std::lock_guard<std::mutex> failures(device_.failure_mutex);
    for (const PendingWait &wait : waits_) {
        if (wait.source.get() == &other && wait.source_seq > seen && wait.source_seq <= upto && is_over(wait) &&
            !other.failure_at(wait.source_seq)) {
            seen = wait.source_seq;
        }
    }
    return seen;
}

// With the failure_mutex held: while a wait is listed, its event lives.
bool Stream::is_over(const PendingWait &wait) const {
    return wait.source->issued_seq() >= wait.source_seq && device_.event_complete(wait.event);
}

bool Stream::abort_alone(const std::shared_ptr<Failure> &failure, Outcome outcome, Discarded &gone) {
    bool launching;
    uint64_t issued;  // in front of what the worker is about to launch, which may come when all that is gone
    {
        std::lock_guard<std::mutex> lock(mutex_);
        gone.stream = shared_from_this();
        if (destroyed_) {
            return true;
        }
        aborting_ = true;  // nothing is issued any more
        launching = issuing_;
        issued = issued_seq_;
    }
    aclError code = ACL_ERROR_RT_FEATURE_NOT_SUPPORT;
    if (device_.can().stream_abort && !foreign_) {
        ContextGuard guard(device_.api(), device_.context());
        bool complete;
        query(complete);  // or what the library knows, and has not told yet, is discarded too
        code = guard.status() != 0 ? guard.status() : device_.api().aclrtStreamAbort(handle_);
        if (code == 0 && launching) {  // what the worker was about to launch may have come behind the abort
            {
                std::unique_lock<std::mutex> lock(mutex_);
                issued_.wait_for(lock, kPatience, [this] { return !issuing_; });
                launching = issuing_;
            }
            // Of a launch that does not return nobody knows what it will put on the stream.
            code = launching ? aclError(ACL_ERROR_RT_STREAM_ABORT) : device_.api().aclrtStreamAbort(handle_);
        }
    }
    if (code != 0 && code != ACL_ERROR_RT_FEATURE_NOT_SUPPORT) {
        suspect();
    }
    std::lock_guard<std::mutex> settling(device_.settle_mutex);
    device_.apply_exceptions();
    uint64_t done = 0;
    for (const auto &stream : device_.streams()) {
        done = std::max(done, stream->seen_of(*this, issued));
    }
    bool known;
    {
        std::unique_lock<std::mutex> lock(mutex_);
        retire_locked(done);
        gone.from = retired_seq_;
        known = all_cancelled();
        discard(failure, outcome, code == 0);
        gone.to = retired_seq_;
        if (gone.to != gone.from || !queue_.empty()) {  // or else nothing was there to be discarded
            std::lock_guard<std::mutex> failures(device_.failure_mutex);
            add_taint(failure, gone.from, Taint::kOpen);
        }
        aborting_ = false;
        if (code != 0) {
            give_up(failure, outcome);
            closed_ = true;
        }
        note_drained();
    }
    if (known) {  // nobody goes by what was discarded, so nobody has to be told
        device_.told(failure);
    }
    device_.outbox_send();
    return code == 0;
}

// With mutex_ held.
bool Stream::all_cancelled() const {
    for (const Ticket *ticket = flight_.head; ticket != nullptr; ticket = ticket->next) {
        if (!ticket->abandoned) {
            return false;
        }
    }
    return std::all_of(queue_.begin(), queue_.end(), [](const Queued &queued) { return queued.ticket->abandoned.load(); });
}

// With mutex_ held. stopped: the device does no longer touch what they use.
void Stream::discard(const std::shared_ptr<Failure> &failure, Outcome outcome, bool stopped) {
    while (!queue_.empty()) {
        Ticket *ticket = queue_.front().ticket;
        if (issuing_) {
            break;  // the worker holds the first one; it comes back with a code of its own
        }
        queue_.pop_front();
        enter_flight(*ticket);
    }
    while (!markers_.empty()) {
        lose_marker();
    }
    retire_unreported(issued_seq_, failure, outcome, stopped);
    device_.worker().post([&device = device_] { device.unblock_streams(); });  // waits for records made here
}

// Everything up to seq, although no report says that the device is past it.
void Stream::retire_unreported(uint64_t seq, const std::shared_ptr<Failure> &failure, Outcome outcome, bool stopped) {
    // A task that failed had its turn, so those before it are done. A launch that was refused says nothing of them.
    uint64_t done = 0;
    for (Ticket *ticket = flight_.head; ticket != nullptr; ticket = ticket->next) {
        if (ticket->outcome != Outcome::Failed) {
            continue;
        }
        const auto known = ticket->failure();
        if (known->issued && known->seq == ticket->seq) {
            done = ticket->seq - 1;
        }
    }
    {
        std::lock_guard<std::mutex> failures(device_.failure_mutex);
        for (Ticket *ticket = flight_.head; ticket != nullptr && ticket->seq <= seq; ticket = ticket->next) {
            if (ticket->seq <= done) {
                continue;
            }
            if (ticket->outcome == Outcome::Ok) {
                // What was known before is what its awaiter has to know.
                const auto earlier = outcome == Outcome::Dependent ? nullptr : failure_at(ticket->seq);
                ticket->fail(earlier ? earlier : failure, earlier ? Outcome::Dependent : outcome);
            }
            ticket->unreliable = !stopped;
        }
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
    retire_unreported(seq, new_failure(device_, 0, id_), Outcome::Lost, false);
}

// Whether it has waited too long for a record that was discarded, with an aborted stream for example.
bool Stream::stranded(int64_t now_ns) {
    bool waits = false;
    {
        std::lock_guard<std::mutex> failures(device_.failure_mutex);
        for (const PendingWait &wait : waits_) {
            waits = waits || (wait.source->lost_seq_.load() >= wait.source_seq && !is_over(wait));
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
        if (of_stream(code)) {
            abandon(new_failure(device_, code, id_), Outcome::Failed);
        } else {
            suspect();
        }
        return;
    }
    reap_sources(flush);
    device_.apply_exceptions();
    if (!complete && stranded(now_ns)) {
        abandon(new_failure(device_, 0, id_), Outcome::Lost);
        close();  // it goes on waiting
        return;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (aborting_) {
        return;  // it is idle because everything has been discarded
    }
    if (foreign_ && markers_.empty() && in_flight_ != 0) {
        const aclError refused = launch_marker();  // the only way to learn how far it is
        lock.unlock();
        if (of_stream(refused)) {  // it is of another context, or its owner has destroyed it
            abandon(new_failure(device_, refused, id_), Outcome::Failed);
        }
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
