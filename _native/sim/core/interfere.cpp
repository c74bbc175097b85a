// SPDX-License-Identifier: Apache-2.0
// What breaks into the normal course of tasks: abort, stop, hold, loss of the device.
#include <algorithm>

#include "core/device.h"

namespace aclsim {

namespace {
void remove(std::vector<Stream *> &streams, const Stream &stream) {
    streams.erase(std::remove(streams.begin(), streams.end(), &stream), streams.end());
}
}  // namespace

// Takes a waiting stream off the list of what it waits for.
void Device::unlink_wait(Stream &stream, Entry &entry) {
    switch (stream.state) {
        case StreamState::WaitRecord: remove(entry.event.record->waiting, stream); break;
        case StreamState::WaitLatch: remove(entry.event.event->waiting, stream); break;
        case StreamState::WaitNotify: remove(entry.notify->waiting, stream); break;
        default: break;
    }
}

// A task that will never run: its record will never be done.
void Device::discard_entry(Stream &, Entry &entry) {
    if (entry.op != Op::Record) {
        return;
    }
    Record &record = *entry.event.record;
    record.aborted = true;
    for (HostWaiter *waiter : waiters_) {
        if (waiter->reason == HostWaiter::For::Record && waiter->record == &record) {
            wake_one(*waiter, ACL_ERROR_RT_STREAM_ABORT);
        }
    }
}

// Ends the running task without effect. False: its work did not end within 60 s.
bool Device::cancel_running(Lock &lock, Stream &stream) {
    switch (stream.state) {
        case StreamState::Idle:
        case StreamState::Ready: stream.state = StreamState::Idle; return true;
        case StreamState::Working:
        case StreamState::Busy: {
            constexpr int32_t limit_ms = 60000;
            stream.cancel = true;
            HostWaiter waiter(HostWaiter::For::Cancelled, &stream, 0);
            waiter.control = true;
            return wait(lock, waiter, limit_ms, ACL_ERROR_RT_WAIT_TIMEOUT) == 0;
        }
        case StreamState::WaitUnit: units_of(stream.queue.front().unit)->forget(stream); break;
        case StreamState::Timed: release_unit(stream, std::max(stream.start_ns, sim_clock().now())); break;
        case StreamState::WaitHost: stream.block_ticket = 0; break;
        default: unlink_wait(stream, stream.queue.front()); break;
    }
    discard_entry(stream, stream.queue.front());
    settle_entry(stream, stream.queue.front());
    ++stream.generation;
    stream.free_at = std::max(stream.free_at, sim_clock().now());
    stream.state = StreamState::Idle;
    return true;
}

bool Device::abort(Lock &lock, Stream &stream) {
    stream.aborting = true;
    for (HostWaiter *waiter : waiters_) {
        if (waiter->stream == &stream && !waiter->control) {
            wake_one(*waiter, task_abort != 0 ? task_abort : ACL_ERROR_RT_STREAM_ABORT);
        }
    }
    const bool ended = cancel_running(lock, stream);
    if (ended) {
        while (!stream.queue.empty()) {
            discard_entry(stream, stream.queue.front());
            settle_entry(stream, stream.queue.front());
        }
        stream.error = 0;
        stream.error_text.clear();
        stream.unreported.clear();
    }
    stream.aborting = false;
    wake_finished(stream);
    flush_space();
    return ended;
}

bool Device::stop_running(Lock &lock, Stream &stream) {
    if (stream.state == StreamState::Idle || stream.state == StreamState::Ready) {
        return true;
    }
    const bool ended = cancel_running(lock, stream);
    wake_finished(stream);
    flush_space();
    go_on(stream);
    return ended;
}

void Device::hold(Stream *stream, bool on) {
    if (stream != nullptr) {
        stream->held = on;
        stream->steps = 0;
    } else {
        held_ = on;
    }
    if (on) {
        return;
    }
    const uint64_t now = sim_clock().now();
    for (Context *context : contexts) {
        for (const std::vector<Stream *> *list : {&context->streams, &context->lanes}) {
            for (Stream *one : *list) {
                if (stream == nullptr || stream == one) {
                    one->free_at = std::max(one->free_at, now);
                    go_on(*one);
                }
            }
        }
    }
}

void Device::step(Stream &stream, uint64_t tasks) {
    stream.steps += tasks;
    stream.free_at = std::max(stream.free_at, sim_clock().now());
    go_on(stream);
}

void Device::lose(aclError code) {
    lost_ = true;
    if (fault_ == 0) {
        fault_ = code;
        fault_seen.store(code, std::memory_order_release);
        fault_unreported_ = open_;
        wake_waiters(nullptr, code);
        waker_.wake();  // it may wait for a time that will not come
    }
}

void Device::restore() { lost_ = false; }

void Device::reset_controls() {
    faults.clear();
    timeline.set_capacity(default_timeline_capacity);
    report_delay_ns = 0;
    reports_held = false;
    limit_streams = limit_events = 0;
    callbacks_launched = 0;
    set_profile(default_profile());
    restore();
    for (Context *context : contexts) {
        for (Stream *stream : context->streams) {
            stream->held = false;
            stream->steps = 0;
        }
    }
    hold(nullptr, false);
}

// The streams' tasks were discarded before: nothing resumes.
void Device::clear_fault() {
    fault_ = 0;
    fault_seen.store(0, std::memory_order_release);
    fault_unreported_ = false;
    while (!timers_.empty()) {
        timers_.pop();
    }
    delayed_reports_.clear();
    monitor_.clear();
}

bool Device::in_flight_uses(const void *p, size_t size) {
    const auto begin = reinterpret_cast<uintptr_t>(p);
    auto overlaps = [&](const void *q, size_t bytes) {
        const auto other = reinterpret_cast<uintptr_t>(q);
        return other < begin + size && begin < other + bytes;
    };
    for (Context *context : contexts) {
        for (const std::vector<Stream *> *list : {&context->streams, &context->lanes}) {
            for (Stream *stream : *list) {
                for (size_t i = 0; i < stream->queue.size(); ++i) {
                    const Entry &entry = stream->queue.at(i);
                    if ((entry.op == Op::Copy &&
                         (overlaps(entry.copy.dst, entry.bytes) || overlaps(entry.copy.src, entry.bytes))) ||
                        (entry.op == Op::Set && overlaps(entry.set.dst, entry.bytes))) {
                        return true;
                    }
                }
            }
        }
    }
    return false;
}

}  // namespace aclsim
