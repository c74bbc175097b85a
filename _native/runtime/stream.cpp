// SPDX-License-Identifier: Apache-2.0
// Submitting, asking for reports, and the host-side queue. What happens when reports come: settle.cpp.
#include "stream.h"

#include <algorithm>
#include <thread>

#include "context_guard.h"
#include "device.h"
#include "process.h"
#include "spinning.h"

namespace aioascend {

Stream::Stream(Device &device, aclrtStream handle, aclrtStream waiter, bool foreign)
    : device_(device), handle_(handle), waiter_(waiter), foreign_(foreign) {
    common::spin_before_sleep(mutex_);
    if (device.can().stream_get_id) {
        device.api().aclrtStreamGetId(handle, &id_);
    }
}

Stream::~Stream() {
    for (Marker *marker : spare_markers_) {
        delete marker;
    }
}

int Stream::submit(Ticket &ticket, const Command &command) {
    if (forked()) {
        return kForked;
    }
    ticket.kind = command.kind;
    std::lock_guard<std::mutex> lock(mutex_);
    if (destroyed_ || (closed_ && command.kind != Kind::Join)) {
        return kClosed;
    }
    if (aborting_) {
        return kAborting;
    }
    if (device_.fault() != 0 && command.kind != Kind::Join) {
        return kOutOfService;
    }
    if (poisoned_.load(std::memory_order_acquire)) {
        if (auto failure = open_failure()) {
            ticket.fail(std::move(failure), Outcome::Dependent);
            return kPoisoned;
        }
    }
    if (command.kind == Kind::Wait && ticket.extra && ticket.extra->source) {
        std::lock_guard<std::mutex> failures(device_.failure_mutex);
        // Not only before, by the caller: an abort in between finds no wait, and the record would never happen.
        if (auto failure = ticket.extra->source->failure_at(ticket.extra->source_seq)) {
            ticket.fail(std::move(failure), Outcome::Dependent);
            return kBehind;
        }
        waits_.push_back({last_seq() + 1, ticket.extra->source, ticket.extra->source_seq, command.subject});
    }
    ticket.seq = last_seq() + 1;
    // On a stream of somebody else we cannot know how full its queue is, so a launch may block.
    const bool direct = queue_.empty() && in_flight_ < device_.options().flight_limit && !command.may_block &&
                        !foreign_ && state_of(ticket, command) == Memory::Ready;
    if (direct) {
        ContextGuard guard(device_.api(), device_.context());
        aclError code = guard.status();
        if (code == 0) {
            command.stage();
            code = issue(command, ticket.last_task);
        }
        if (code != 0) {
            drop_wait(ticket);
            suspect();
            return device_.fault() != 0 ? int(kOutOfService) : code;
        }
        last_seq_.store(ticket.seq, std::memory_order_release);
        accept(ticket);
        return kSubmitted;
    }
    ticket.on_host = true;
    queue_.push_back(Queued{&ticket, command});
    last_seq_.store(ticket.seq, std::memory_order_release);
    if (in_flight_ < device_.options().flight_limit) {
        wake_worker();
    }  // or else the next report does
    return kSubmitted;
}

// A wait for an event must not be issued before its record, which may still be on the host: the library would take
// an event that was never recorded for done.
int Stream::state_of(const Ticket &ticket, const Command &command) {
    if (ticket.extra && ticket.extra->source && ticket.extra->source->issued_seq() < ticket.extra->source_seq) {
        return Memory::Pending;
    }
    return command.state();
}

// Runs with the lock (direct) or without it (worker), so it touches no member that changes.
aclError Stream::issue(const Command &command, uint32_t &last_task) const {
    const AclApi &api = device_.api();
    if (command.kind == Kind::Execute) {
        runner_ = kernel_thread_id();
    }
    const aclError code = command.issue(api, handle_);
    // Without a task of its own the call leaves the thread's last id as it was: that of some other stream's task.
    if (code == 0 && command.makes_task() && device_.can().last_task_id) {
        api.aclrtGetThreadLastTaskId(&last_task);
    }
    return code;
}

void Stream::enter_flight(Ticket &ticket) {
    ticket.on_host = false;
    if (ticket.last_task == kNoTask) {  // or a task in front would be taken for one of what comes next
        ticket.last_task = flight_.head ? flight_.tail->last_task : retired_task_;
    }
    flight_.append(&ticket);
    in_flight_.fetch_add(1, std::memory_order_relaxed);
    issued_seq_.store(ticket.seq, std::memory_order_release);
}

void Stream::accept(Ticket &ticket) {
    enter_flight(ticket);
    // A long run that nobody awaits still has to tell us how far the device is, or the queue could not move on.
    if (issued_seq_ - std::max(marker_seq_, retired_seq_) >= device_.options().flight_limit / 2) {
        launch_marker();
    }
}

int Stream::arm(Ticket &ticket) {
    if (forked()) {
        return kForked;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    wanted_seq_ = std::max(wanted_seq_, ticket.seq);
    if (ticket.seq <= std::max(retired_seq_, marker_seq_)) {
        return kSubmitted;
    }
    if (foreign_) {
        wake_worker();
    } else if (!ticket.on_host) {
        ContextGuard guard(device_.api(), device_.context());
        launch_marker();  // upon failure the sweeper tries again, or finds out what is wrong with the stream
    }
    return kSubmitted;
}

int arm_and_submit(Stream &of, Ticket &awaited, Stream &to, Ticket &ticket, const Command &command) {
    ContextGuard guard(to.device_.api(), to.device_.context());  // those inside find it set
    of.arm(awaited);
    return to.submit(ticket, command);
}

aclError Stream::launch_marker() {
    Marker *marker;
    if (spare_markers_.empty()) {
        marker = new Marker;
    } else {
        marker = spare_markers_.back();
        spare_markers_.pop_back();
    }
    marker->stream = this;
    marker->next = nullptr;
    marker->seq = issued_seq_;
    marker->idle_since_ns = 0;
    const AclApi &api = device_.api();
    aclError code;
    if (!device_.can().launch_callback) {
        code = marker->event ? 0 : api.aclrtCreateEvent(&marker->event);
        if (code == 0) {
            code = api.aclrtRecordEvent(marker->event, handle_);
        }
    } else if (foreign_) {
        code = launch_marker_on_waiter(*marker);
    } else {
        code = api.aclrtLaunchCallback(&ReportThread::on_report, marker, ACL_CALLBACK_NO_BLOCK, handle_);
    }
    if (code != 0) {
        spare_markers_.push_back(marker);
        return code;
    }
    device_.callbacks_launched.fetch_add(1, std::memory_order_relaxed);
    markers_.push_back(marker);
    marker_seq_ = marker->seq;
    if (!device_.can().launch_callback) {
        device_.reports().watch_event(marker);
    }
    return 0;
}

// A stream that is not ours may have its own subscriber, so no callback is put on it: an event recorded there
// holds up a stream of ours, which carries the callback.
aclError Stream::launch_marker_on_waiter(Marker &marker) {
    const AclApi &api = device_.api();
    aclError code = marker.event ? 0 : api.aclrtCreateEvent(&marker.event);
    if (code == 0) {
        code = api.aclrtRecordEvent(marker.event, handle_);
    }
    if (code == 0) {
        code = api.aclrtStreamWaitEvent(waiter_, marker.event);
    }
    if (code == 0) {
        code = api.aclrtLaunchCallback(&ReportThread::on_report, &marker, ACL_CALLBACK_NO_BLOCK, waiter_);
    }
    return code;
}

bool Stream::rebind(Ticket &ticket, Bridge &bridge) {
    std::lock_guard<std::mutex> settling(device_.settle_mutex);  // nothing is between its stream and its bridge
    std::lock_guard<std::mutex> lock(mutex_);
    if (ticket.seq <= retired_seq_ && !ticket.finishing) {
        return false;
    }
    ticket.bridge = &bridge;
    return true;
}

void Stream::wake_worker() {
    if (!wake_posted_.exchange(true)) {
        device_.worker().wake(shared_from_this());
    }
}

void Stream::unblock() {
    if (blocked_.load()) {
        issue_queued();
    }
}

void Stream::issue_queued() {
    wake_posted_.store(false);
    const uint64_t before = issued_seq();
    blocked_.store(false);
    std::unique_lock<std::mutex> lock(mutex_);
    ContextGuard guard(device_.api(), device_.context());
    while (!aborting_ && !abandoned_ && !queue_.empty() && in_flight_ < device_.options().flight_limit) {
        Queued &first = queue_.front();
        Ticket &ticket = *first.ticket;
        const int state = state_of(ticket, first.command);
        if (state == Memory::Pending) {
            blocked_.store(true);
            break;
        }
        if (poisoned_.load(std::memory_order_acquire)) {
            if (auto failure = open_failure()) {
                ticket.fail(std::move(failure), Outcome::Dependent);
            }
        }
        if (ticket.outcome == Outcome::Ok) {
            aclError code = state == Memory::Failed ? first.command.memory_code() : guard.status();
            if (code == 0) {
                // Later submits see a queue that is not empty and line up behind, so the lock can go.
                issuing_ = true;
                lock.unlock();
                first.command.stage();
                code = issue(first.command, ticket.last_task);
                lock.lock();
                issuing_ = false;
                issued_.notify_all();
            }
            if (code != 0 && aborting_ && passing(code)) {
                break;  // refused for the abort, which discards it with the others
            }
            if (code != 0) {
                suspect();
                if (device_.fault() != 0) {
                    ticket.fail(device_.fault_failure(), Outcome::Failed);
                } else {
                    start_failure(&ticket, 0, code, 0, false);
                }
            }
        }
        if (ticket.outcome != Outcome::Ok) {
            drop_wait(ticket);
        }
        queue_.pop_front();
        accept(ticket);
    }
    if (issued_seq_ >= wanted_seq_ && wanted_seq_ > std::max(marker_seq_, retired_seq_)) {
        launch_marker();
    }
    const bool left = abandoned_ && (flight_.head != nullptr || !queue_.empty());
    lock.unlock();
    if (left) {
        give_up_rest();
    }
    if (issued_seq() != before) {
        device_.unblock_streams();
    }
}

size_t Stream::queued() {
    std::lock_guard<std::mutex> lock(mutex_);
    return queue_.size();
}

bool Stream::idle() {
    std::lock_guard<std::mutex> lock(mutex_);
    return drained() && markers_.empty();
}

aclError Stream::query(bool &complete, aclrtStream stream) {
    ContextGuard guard(device_.api(), device_.context());
    aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
    aclError code = guard.status();
    if (code == 0) {
        code = device_.api().aclrtStreamQuery(stream, &status);
    }
    complete = code == 0 && status == ACL_STREAM_STATUS_COMPLETE;
    return code;
}

void Stream::close() {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
}

aclError Stream::destroy() {
    if (forked()) {
        return 0;
    }
    const AclApi &api = device_.api();
    ContextGuard guard(api, device_.context());
    bool abandoned;
    {
        std::unique_lock<std::mutex> lock(mutex_);
        closed_ = true;
        if (destroyed_) {
            return 0;
        }
        want_all();
        // A report may still be on its way for a marker that covers nothing new; its memory must outlive it.
        drained_.wait(lock, [this] { return destroyed_ || (drained() && markers_.empty()) || shutting_down(); });
        if (destroyed_ || shutting_down()) {
            return 0;
        }
        destroyed_ = true;
        abandoned = abandoned_;
    }
    if (device_.handles_gone()) {
        device_.forget(*this);
        return 0;
    }
    const aclrtStream mine = own_handle();
    aclError code = 0;
    if (mine != nullptr && abandoned && !device_.can().stream_force_destroy) {
        device_.keep_orphan(*this);  // to destroy it would mean to wait for it
    } else if (mine != nullptr) {
        device_.reports().unsubscribe(mine);
        code = abandoned ? api.aclrtDestroyStreamForce(mine) : api.aclrtDestroyStream(mine);
        if (code != 0) {
            suspect();
            if (abandoned && device_.fault() == 0) {
                device_.keep_orphan(*this);  // a chip that lacks it says so only now
            }
            code = abandoned || device_.fault() != 0 ? 0 : code;  // or it went with the device
        }
    }
    for (Marker *marker : spare_markers_) {
        if (marker->event != nullptr) {
            api.aclrtDestroyEvent(marker->event);
            marker->event = nullptr;
        }
    }
    device_.forget(*this);
    return code;
}

void Stream::wake_waiters(std::chrono::steady_clock::time_point deadline) {
    // With the lock, or whoever is about to wait, having looked before the process began to shut down, would be missed.
    // But it may be held in a launch that does not return.
    std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
    while (!lock.try_lock() && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    drained_.notify_all();
}

void Stream::destroy_when_drained() {
    if (forked()) {
        return;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    if (destroyed_) {
        return;
    }
    destroy_due_ = true;
    if (drained() && markers_.empty()) {
        post_destroy();
    } else if (foreign_) {  // its reports are asked for by the worker
        wanted_seq_ = last_seq_.load();
        wake_worker();
    } else {
        ContextGuard guard(device_.api(), device_.context());
        want_all();
    }
}

// With mutex_ held, in the device's context.
void Stream::want_all() {
    wanted_seq_ = last_seq_.load();
    if (!drained() && issued_seq_ >= wanted_seq_ && wanted_seq_ > marker_seq_) {
        launch_marker();
    }
}

// With mutex_ held.
void Stream::post_destroy() {
    destroy_due_ = false;
    device_.worker().post([self = shared_from_this()] { self->destroy(); });
}

}  // namespace aioascend
