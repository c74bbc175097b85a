// SPDX-License-Identifier: Apache-2.0
// Records, latches and the ids they occupy.
#include <algorithm>

#include "core/device.h"

namespace aclsim {

Record *Device::new_record() {
    if (free_records_.empty()) {
        records_.push_back(std::make_unique<Record>());
        free_records_.push_back(records_.back().get());
    }
    Record *record = free_records_.back();
    free_records_.pop_back();
    record->references = 1;
    record->pending = 0;
    record->done = record->aborted = record->holds_id = false;
    record->time_ns = 0;
    record->stream_handle = nullptr;
    record->context = nullptr;
    record->context_id = 0;
    record->waiting.clear();
    return record;
}

void Device::unreference(Record *record) {
    if (record != nullptr && --record->references == 0) {
        free_records_.push_back(record);
    }
}

void Device::settle(Record &record) {
    if (--record.pending == 0 && record.holds_id) {
        record.holds_id = false;
        return_event_id();
    }
    unreference(&record);
}

void Device::record_done(Record &record, uint64_t at) {
    record.done = true;
    record.time_ns = at;
    for (HostWaiter *waiter : waiters_) {
        if (waiter->reason == HostWaiter::For::Record && waiter->record == &record) {
            wake_one(*waiter, 0);
        }
    }
    while (!record.waiting.empty()) {
        Stream *stream = record.waiting.front();
        record.waiting.erase(record.waiting.begin());
        finish_entry(*stream, std::max(at, stream->start_ns), 0);
        go_on(*stream);
    }
}

void Device::wake_latched(std::vector<Stream *> &waiting, uint64_t at, bool all) {
    while (!waiting.empty()) {
        Stream *stream = waiting.front();
        waiting.erase(waiting.begin());
        Entry &entry = stream->queue.front();
        if (entry.op == Op::WaitLatch) {
            ++entry.event.event->waits_finished;
        }
        finish_entry(*stream, std::max(at, stream->start_ns), 0);
        go_on(*stream);
        if (!all) {
            return;
        }
    }
}

// The head task is a wait. True: the stream is blocked; false: go on as with any other task.
bool Device::begin_wait(Lock &, Stream &stream) {
    Entry &entry = stream.queue.front();
    switch (entry.op) {
        case Op::Wait:
            if (entry.event.record->done) {
                stream.start_ns = std::max(stream.start_ns, entry.event.record->time_ns);
                return false;
            }
            entry.event.record->waiting.push_back(&stream);
            stream.state = StreamState::WaitRecord;
            break;
        case Op::WaitLatch:
            if (entry.event.event->latched) {
                return false;
            }
            entry.event.event->waiting.push_back(&stream);
            stream.state = StreamState::WaitLatch;
            break;
        default:
            if (entry.notify->latched) {
                entry.notify->latched = false;
                return false;
            }
            entry.notify->waiting.push_back(&stream);
            stream.state = StreamState::WaitNotify;
            break;
    }
    if (entry.timeout_ns != 0) {
        add_timer(std::max(stream.start_ns, sim_clock().now()) + entry.timeout_ns, stream);
    }
    return true;
}

aclError Device::take_event_id(int32_t *event_id) {
    if (events_in_use >= event_limit()) {
        return ACL_ERROR_RT_NO_EVENT_RESOURCE;
    }
    ++events_in_use;
    if (event_id != nullptr) {
        if (free_event_ids.empty()) {
            *event_id = next_event_id++;
        } else {
            *event_id = *free_event_ids.begin();
            free_event_ids.erase(free_event_ids.begin());
        }
    }
    return 0;
}

void Device::return_event_id() {
    --events_in_use;
    for (HostWaiter *waiter : waiters_) {
        if (waiter->reason == HostWaiter::For::EventId) {
            wake_one(*waiter, 0);
        }
    }
}

void Device::recycle(Event &event) {
    events.erase(&event);
    if (event.id >= 0) {
        free_event_ids.insert(event.id);
        return_event_id();
    }
    unreference(event.last);
    event.last = nullptr;
    event_table().recycle(event);
    count_live("events", -1);
}

void Device::recycle(Notify &notify) {
    notifies.erase(&notify);
    free_notify_ids.insert(notify.id);
    --notifies_in_use;
    notify_table().recycle(notify);
    count_live("notifies", -1);
}

void Device::release_leftovers() {
    for (Event *event : std::set<Event *>(events)) {
        event_table().retract(*event);
        event->destroyed = true;
        recycle(*event);
    }
    for (Notify *notify : std::set<Notify *>(notifies)) {
        notify_table().retract(*notify);
        notify->destroyed = true;
        recycle(*notify);
    }
    release_all_device_memory(id);
}

}  // namespace aclsim
