// SPDX-License-Identifier: Apache-2.0
// The end of a task: its effect on events and callbacks, its failure, its record in the timeline.
#include <algorithm>
#include <cstring>

#include "core/device.h"
#include "core/settings.h"
#include "core/thread_state.h"

namespace aclsim {

namespace {

const char *unit_name(Unit unit) {
    switch (unit) {
        case Unit::CopyIn: return "copy_in";
        case Unit::CopyOut: return "copy_out";
        case Unit::CopyDevice: return "copy_device";
        case Unit::AiCore: return "ai_core";
        case Unit::Host: return "host";
        default: return "none";
    }
}

// Results that are not exceptions: overflow reports, end of sequence, an orderly model abort.
bool is_soft(aclError code) {
    return code == ACL_ERROR_RT_AICORE_OVER_FLOW || code == ACL_ERROR_RT_AIVEC_OVER_FLOW ||
           code == ACL_ERROR_RT_OVER_FLOW || code == ACL_ERROR_RT_END_OF_SEQUENCE ||
           code == ACL_ERROR_RT_MODEL_ABORT_NORMAL;
}

bool still_valid(Where expected, const void *p, size_t size) {
    if (expected == Where::Pageable) {
        return true;
    }
    const Place place = classify(p, size);
    return place.where == expected && place.whole;
}

}  // namespace

aclError Device::touch_memory(const Entry &entry) const {
    void *dst = entry.op == Op::Copy ? entry.copy.dst : entry.set.dst;
    // Memory may have been freed since the task was checked; a device would fault or worse.
    if (entry.memory_epoch != memory_epoch() &&
        (!still_valid(entry.dst_where, dst, entry.bytes) ||
         (entry.op == Op::Copy && !still_valid(entry.src_where, entry.copy.src, entry.bytes)))) {
        return ACL_ERROR_RT_DEVICE_MEM_ERROR;
    }
    if (entry.op == Op::Copy) {
        std::memmove(dst, entry.copy.src, entry.bytes);
    } else {
        std::memset(dst, entry.set.value, entry.bytes);
    }
    return 0;
}

// True: the stream is idle again; false: it waits for a BLOCK callback, or was cancelled meanwhile.
bool Device::retire(Lock &lock, Stream &stream, uint64_t end) {
    const aclError code = stream.planned_failure != 0 ? stream.planned_failure : stream.result;
    if (stream.queue.front().op == Op::Custom) {
        stream.queue.front().task->work =
            nullptr;  // what it holds is free before the unit's next task starts
    }
    release_unit(stream, end);
    if (code != 0) {
        const Entry entry = stream.queue.front();
        stream.state = StreamState::Busy;
        task_failed(lock, stream, entry, code);
        if (stream.cancel) {
            drop_cancelled(stream, end);
            return false;
        }
    }
    Entry &entry = stream.queue.front();
    if (entry.op == Op::Callback && code == 0) {
        if (entry.block) {
            stream.block_ticket = ++ticket_;
            stream.state = StreamState::WaitHost;
        }
        post_callback(stream, entry, end);
        if (entry.block) {
            return false;
        }
    } else {
        apply_effect(stream, entry, end);
    }
    finish_entry(stream, end, code);
    return true;
}

void Device::apply_effect(Stream &stream, Entry &entry, uint64_t end) {
    switch (entry.op) {
        case Op::Record: {
            Event *event = entry.event.event;
            if (event->kind == EventKind::Flagged && !event->destroyed) {
                event->latched = true;
                wake_latched(event->waiting, end, true);
            }
            record_done(*entry.event.record, end);
            break;
        }
        case Op::ResetLatch: entry.event.event->latched = false; break;
        case Op::NotifyRecord:
            entry.notify->latched = true;
            if (!entry.notify->waiting.empty()) {
                entry.notify->latched = false;
                wake_latched(entry.notify->waiting, end, false);
            }
            break;
        case Op::WaitLatch: ++entry.event.event->waits_finished; break;
        default: break;
    }
    (void)stream;
}

void Device::post_callback(Stream &stream, Entry &entry, uint64_t end) {
    if (stream.group == nullptr || stream.context->stop_code != 0 || faults.match_callback(stream)) {
        return;
    }
    const Report report{entry.callback.function, entry.callback.user_data, stream.handle,
                        entry.block ? stream.block_ticket : 0};
    const uint64_t due = end + profile_.callback_latency_ns + report_delay_ns;
    if (due == end || due <= sim_clock().now()) {
        post(stream.group, report);
    } else {
        delayed_reports_.emplace(due, DelayedReport{stream.group, report});
        wake();  // the task may have run on the thread that launched it
    }
}

void Device::post(const std::shared_ptr<ReportGroup> &group, const Report &report) {
    if (!group->post(report) || ringing_ == group) {
        return;
    }
    if (ringing_ != nullptr) {
        ringing_->ring();
    }
    ringing_ = group;
}

void Device::post_due_reports(uint64_t now) {
    while (!delayed_reports_.empty() && delayed_reports_.begin()->first <= now) {
        DelayedReport &delayed = delayed_reports_.begin()->second;
        post(delayed.group, delayed.report);
        delayed_reports_.erase(delayed_reports_.begin());
    }
}

void Device::release_block(Stream &stream, uint64_t ticket) {
    if (stream.state != StreamState::WaitHost || stream.block_ticket != ticket || fault_ != 0) {
        return;  // aborted or lost meanwhile
    }
    stream.block_ticket = 0;
    finish_entry(stream, std::max(sim_clock().now(), stream.due_ns), 0);
    flush_space();
    go_on(stream);
}

aclsimRecord Device::describe(const Entry &entry, aclError code) const {
    aclsimRecord record{};
    record.task_id = entry.task_id;
    record.stream_id = -1;
    record.device = id;
    record.code = code;
    record.kind = entry.kind;
    record.name = entry.op == Op::Custom && !entry.task->name.empty() ? intern(entry.task->name) : "";
    record.unit = unit_name(entry.unit);
    record.queued_ns = entry.queued_ns;
    record.bytes = entry.bytes;
    return record;
}

// On an undisturbed device without durations small tasks need no detour over the dispatcher.
bool Device::can_run_inline(const Context &context) const {
    return profile_.instant() && !held_ && fault_ == 0 && task_abort == 0 && !stopping_ &&
           context.stop_code == 0 && faults.empty();
}

aclError Device::run_inline(Lock &lock, const Entry &entry) {
    const uint64_t start = sim_clock().now();
    lock.unlock();
    const aclError code = touch_memory(entry);
    lock.lock();
    aclsimRecord record = describe(entry, code);
    record.queued_ns = record.start_ns = start;
    record.end_ns = sim_clock().now();
    timeline.add(record);
    return code;
}

void Device::finish_entry(Stream &stream, uint64_t end, aclError code) {
    Entry &entry = stream.queue.front();
    aclsimRecord record = describe(entry, code);
    record.stream_id = stream.hidden ? -1 : stream.id;
    record.unit_index = stream.unit_taken;
    record.start_ns = stream.start_ns;
    record.end_ns = std::max(end, stream.start_ns);
    timeline.add(record);

    settle_entry(stream, entry);
    ++stream.generation;
    stream.free_at = record.end_ns;
    stream.state = StreamState::Idle;
    wake_finished(stream);
}

// Gives back what the head entry holds and takes it off the queue.
void Device::settle_entry(Stream &stream, Entry &entry) {
    switch (entry.op) {
        case Op::Record:
        case Op::Wait: settle(*entry.event.record); break;
        case Op::Custom: delete entry.task; break;
        default: break;
    }
    if (entry.op == Op::Record || entry.op == Op::WaitLatch || entry.op == Op::ResetLatch) {
        Event &event = *entry.event.event;
        if (--event.tasks == 0 && event.destroyed) {
            recycle(event);
        }
    } else if (entry.op == Op::NotifyRecord || entry.op == Op::NotifyWait) {
        Notify &notify = *entry.notify;
        if (--notify.tasks == 0 && notify.destroyed) {
            recycle(notify);
        }
    }
    stream.used_slots -= entry.slots;
    stream.queue.pop();
    ++stream.finished;
    --tasks;
    if (stream.space_waiters > 0) {
        space_freed_.push_back(&stream);
    }
}

// The running task of the stream was cancelled while the lock was released.
void Device::drop_cancelled(Stream &stream, uint64_t end) {
    release_unit(stream, end);
    discard_entry(stream, stream.queue.front());
    settle_entry(stream, stream.queue.front());
    ++stream.generation;
    stream.free_at = std::max(stream.free_at, stream.start_ns);
    stream.state = StreamState::Idle;
    stream.cancel = false;
    for (HostWaiter *waiter : waiters_) {
        if (waiter->reason == HostWaiter::For::Cancelled && waiter->stream == &stream) {
            wake_one(*waiter, 0);
        }
    }
    wake_finished(stream);
}

void Device::task_failed(Lock &lock, Stream &stream, const Entry &entry, aclError code) {
    stream.error = code;
    stream.error_text = std::string("task ") + std::to_string(entry.task_id) + " (" + entry.kind +
                        ") on stream " + std::to_string(stream.id) + " of device " + std::to_string(id) +
                        " failed with " + std::to_string(code);
    if (!stream.failure_text.empty()) {
        stream.error_text += ": " + stream.failure_text;
        stream.failure_text.clear();
    }
    Context *context = stream.context;
    if (!is_soft(code) && task_abort == 0) {
        constexpr uint32_t inner_stream = 60000;  // no stream of a program has such an id
        const bool inner = settings().models_have_streams && std::strcmp(entry.kind, "execute") == 0;
        const ExceptionFacts facts{entry.task_id, inner ? inner_stream : static_cast<uint32_t>(stream.id),
                                   entry.submitter, static_cast<uint32_t>(id), static_cast<uint32_t>(code)};
        if (settings().exceptions_on_reap.load(std::memory_order_relaxed) && !stream.hidden) {
            constexpr uint64_t monitor_period_ns = 50'000'000;
            stream.unreported.push_back(facts);
            monitor_.emplace(sim_clock().now() + monitor_period_ns, stream.handle);
        } else {
            lock.unlock();
            call_exception_callbacks(facts);
            lock.lock();
        }
    }
    if (context->stop_on_failure && context->stop_code == 0) {
        context->stop_code = code;
        wake_waiters(context, code);
    }
}

// When another thread is about to tell, this one waits: whoever has asked may rely on it that all has been told.
void Device::reap_exceptions(Lock &lock, Stream &stream) {
    if (stream.reaper == std::this_thread::get_id()) {
        return;  // a callback asks again
    }
    reaped_.wait(lock, [&stream] { return stream.reaper == std::thread::id(); });
    while (!stream.unreported.empty()) {
        std::vector<ExceptionFacts> facts;
        facts.swap(stream.unreported);
        stream.reaper = std::this_thread::get_id();
        lock.unlock();
        for (const ExceptionFacts &one : facts) {
            call_exception_callbacks(one);
        }
        lock.lock();
        stream.reaper = std::thread::id();
        reaped_.notify_all();
    }
}

void Device::run_monitor(Lock &lock, uint64_t now) {
    while (!monitor_.empty() && monitor_.begin()->first <= now) {
        void *handle = monitor_.begin()->second;
        monitor_.erase(monitor_.begin());
        if (Stream *stream = stream_table().find(handle)) {
            reap_exceptions(lock, *stream);
        }
    }
}

}  // namespace aclsim
