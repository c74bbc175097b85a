// SPDX-License-Identifier: Apache-2.0
// Host threads at a device: putting tasks into streams and waiting for them.
#include <algorithm>

#include "core/device.h"
#include "core/settings.h"
#include "core/thread_state.h"

namespace aclsim {

aclError Device::blocked_code(const Stream &stream) const {
    if (stopping_) {
        return ACL_ERROR_RT_INTERNAL_ERROR;  // the process is exiting: nothing would ever complete
    }
    if (fault_ != 0) {
        return fault_;
    }
    if (task_abort != 0) {
        return task_abort;
    }
    if (stream.closing) {
        return ACL_ERROR_RT_INVALID_HANDLE;
    }
    if (stream.aborting) {
        return ACL_ERROR_RT_STREAM_ABORT;
    }
    return stream.context->stop_code;
}

aclError Device::enqueue(Lock &lock, Stream &stream, Entry entry) {
    void *handle = stream.handle;
    reap_exceptions(lock, stream);
    aclError code = blocked_code(stream);
    while (code == 0 &&
           stream.used_slots + entry.slots > settings().queue_depth.load(std::memory_order_relaxed)) {
        HostWaiter waiter(HostWaiter::For::Space, &stream, entry.slots);
        waiter.context = stream.context;
        code = wait(lock, waiter, -1, 0);
        if (code == 0) {
            code =
                stream_table().find(handle) == &stream ? blocked_code(stream) : ACL_ERROR_RT_INVALID_HANDLE;
        }
    }
    if (code != 0) {
        return code;
    }
    entry.task_id = stream.next_task_id;
    stream.next_task_id += entry.slots;
    entry.submitter = kernel_thread_id();
    entry.queued_ns = sim_clock().now();
    thread_state().last_task_id = stream.next_task_id - 1;
    stream.queue.push(entry);
    stream.used_slots += entry.slots;
    ++stream.submitted;
    ++tasks;
    if (may_run_here(stream)) {
        advance(lock, stream);
        flush_space();
    } else {
        go_on(stream);
    }
    return 0;
}

// A task that takes no time on an idle stream of an undisturbed device is over when its launch returns: waking the
// dispatcher for it would cost more than the task.
bool Device::may_run_here(Stream &stream) const {
    const Entry &entry = stream.queue.front();
    if (stream.state != StreamState::Idle || stream.queue.size() != 1 || !may_start(stream) ||
        !can_run_inline(*stream.context) || sim_clock().is_virtual()) {
        return false;
    }
    switch (entry.op) {
        case Op::Copy:
        case Op::Set: return entry.bytes <= small_bytes && entry.memory_epoch == memory_epoch();
        case Op::Record:
        case Op::Callback: return true;
        case Op::Wait: return entry.event.record->done;
        default: return false;
    }
}

bool Device::is_complete(const HostWaiter &waiter) const {
    switch (waiter.reason) {
        case HostWaiter::For::Finished: return waiter.stream->finished >= waiter.target;
        case HostWaiter::For::Space:
            return waiter.stream->used_slots + waiter.target <=
                   settings().queue_depth.load(std::memory_order_relaxed);
        case HostWaiter::For::Record: return waiter.record->done;
        case HostWaiter::For::EventId: return false;
        case HostWaiter::For::Cancelled: return !waiter.stream->cancel;
        case HostWaiter::For::Blocked:
            return waiter.stream->sync_waiters + waiter.stream->space_waiters >= waiter.target;
    }
    return true;
}

void Device::wake_one(HostWaiter &waiter, aclError code) {
    if (!waiter.done) {
        waiter.done = true;
        waiter.code = code;
        waiter.condition.notify_one();
    }
}

aclError Device::wait(Lock &lock, HostWaiter &waiter, int32_t timeout_ms, aclError on_timeout) {
    if (is_complete(waiter)) {
        return 0;
    }
    uint32_t ignored = 0;
    uint32_t &count = waiter.control                               ? ignored
                      : waiter.reason == HostWaiter::For::Finished ? waiter.stream->sync_waiters
                      : waiter.reason == HostWaiter::For::Space    ? waiter.stream->space_waiters
                                                                   : ignored;
    ++count;
    waiters_.push_back(&waiter);
    if (waiter.stream != nullptr && !waiter.control) {
        for (HostWaiter *other : waiters_) {
            if (other->reason == HostWaiter::For::Blocked && other->stream == waiter.stream &&
                is_complete(*other)) {
                wake_one(*other, 0);
            }
        }
    }
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
    while (!waiter.done) {
        if (timeout_ms < 0) {
            waiter.condition.wait(lock);
        } else if (waiter.condition.wait_until(lock, deadline) == std::cv_status::timeout && !waiter.done) {
            waiter.code = on_timeout;
            break;
        }
    }
    waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &waiter));
    --count;
    return waiter.code;
}

void Device::wake_finished(Stream &stream) {
    if (waiters_.empty()) {
        return;
    }
    for (HostWaiter *waiter : waiters_) {
        if (waiter->reason == HostWaiter::For::Finished && waiter->stream == &stream &&
            is_complete(*waiter)) {
            wake_one(*waiter, 0);
        }
    }
}

void Device::wake_waiters(const Context *context, aclError code) {
    for (HostWaiter *waiter : waiters_) {
        if (!waiter->control && waiter->context != nullptr &&
            (context == nullptr || waiter->context == context)) {
            wake_one(*waiter, code);
        }
    }
}

// Launches that wait for space are woken once per round of the dispatcher, not once per task.
void Device::flush_space() {
    if (space_freed_.empty()) {
        return;
    }
    for (Stream *stream : space_freed_) {
        for (HostWaiter *waiter : waiters_) {
            if (waiter->reason == HostWaiter::For::Space && waiter->stream == stream &&
                is_complete(*waiter)) {
                wake_one(*waiter, 0);
            }
        }
    }
    space_freed_.clear();
}

aclError Device::synchronize(Lock &lock, Stream &stream, int32_t timeout_ms, uint64_t target) {
    reap_exceptions(lock, stream);
    if (const aclError code = blocked_code(stream)) {
        return code;
    }
    HostWaiter waiter(HostWaiter::For::Finished, &stream, target);
    waiter.context = stream.context;
    const aclError code = wait(lock, waiter, timeout_ms, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    if (code == 0) {
        reap_exceptions(lock, stream);
    }
    return code;
}

aclError Device::synchronize_and_take(Lock &lock, Stream &stream, int32_t timeout_ms) {
    const aclError code = synchronize(lock, stream, timeout_ms, stream.submitted);
    return code != 0 ? code : take_error(stream);
}

aclError Device::take_error(Stream &stream) {
    const aclError code = stream.error;
    if (code != 0) {
        add_message("EZ9999: " + stream.error_text);
        stream.error = 0;
        stream.error_text.clear();
    }
    return code;
}

}  // namespace aclsim
