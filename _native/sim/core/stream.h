// SPDX-License-Identifier: Apache-2.0
// Streams, events and notifies as the dispatcher sees them. Everything here is guarded by the lock of the
// device the object belongs to, unless it says otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/handle.h"
#include "core/memory.h"
#include "core/task.h"

namespace aclsim {

class Context;
class Device;
class Event;
class ReportGroup;
class Stream;
class Notify;

// One record of an event: waits bind to it, not to the event. Recycled by the device when nobody refers to
// it.
struct Record {
    uint32_t references = 0;
    uint32_t pending = 0;  // record task and waits not yet through; the event id is held until they are
    bool done = false;
    bool aborted = false;  // its task was discarded: it will never be done
    bool holds_id = false;
    uint64_t time_ns = 0;  // when it was done
    void *stream_handle = nullptr;
    Context *context = nullptr;
    uint64_t context_id = 0;
    std::vector<Stream *> waiting;
};

enum class Op : uint8_t {
    Copy,
    Set,
    Record,
    Wait,
    WaitLatch,
    ResetLatch,
    NotifyRecord,
    NotifyWait,
    Callback,
    Custom
};

// A task in a stream's queue. Small and without allocation for everything but Custom.
struct Entry {
    Op op = Op::Custom;
    Unit unit = Unit::None;
    uint8_t slots = 1;  // queue entries it takes
    bool block = false;
    Where dst_where = Where::Pageable;  // copies and memsets, as checked at submission
    Where src_where = Where::Pageable;
    uint32_t task_id = 0;
    uint32_t submitter = 0;  // kernel thread id
    const char *kind = "task";
    uint64_t queued_ns = 0;
    uint64_t bytes = 0;
    uint64_t timeout_ns = 0;  // waits; 0 = none
    uint64_t memory_epoch = 0;
    union {
        struct {
            void *dst;
            const void *src;
        } copy;
        struct {
            void *dst;
            int value;
        } set;
        struct {
            Event *event;
            struct Record *record;
        } event;
        Notify *notify;
        struct {
            void (*function)(void *);
            void *user_data;
        } callback;
        Task *task;  // owned
    };
    Entry() : task(nullptr) {}
};

// FIFO that grows to what is needed and keeps its memory.
class EntryQueue {
public:
    bool empty() const { return count_ == 0; }
    size_t size() const { return count_; }
    Entry &front() { return ring_[head_]; }
    Entry &at(size_t i) { return ring_[(head_ + i) & (ring_.size() - 1)]; }
    void push(const Entry &entry) {
        if (count_ == ring_.size()) {
            grow();
        }
        ring_[(head_ + count_) & (ring_.size() - 1)] = entry;
        ++count_;
    }
    void pop() {
        head_ = (head_ + 1) & (ring_.size() - 1);
        --count_;
    }
    void release_memory() {
        ring_ = std::vector<Entry>();
        head_ = count_ = 0;
    }

private:
    void grow();
    std::vector<Entry> ring_;
    size_t head_ = 0;
    size_t count_ = 0;
};

enum class StreamState : uint8_t {
    Idle,        // nothing running; if something is queued it is in the ready list or may not start
    Ready,       // in the ready list
    WaitUnit,    // head task waits for a unit
    Timed,       // running, ends by the clock
    Working,     // its work runs on a compute thread
    Busy,        // the dispatcher is at it with the lock released
    WaitRecord,  // blocked in a wait
    WaitLatch,
    WaitNotify,
    WaitHost  // blocked by a BLOCK callback
};

struct ExceptionFacts {
    uint32_t task_id = 0;
    uint32_t stream_id = 0;
    uint32_t thread_id = 0;
    uint32_t device_id = 0;
    uint32_t code = 0;
};

class Stream {
public:
    void *handle = nullptr;
    Device *device = nullptr;
    Context *context = nullptr;
    int32_t id = 0;
    uint32_t priority = 0;
    uint32_t flags = 0;
    uint32_t overflow_switch = 0;
    uint32_t custom_tag = 0;
    uint32_t cache_op_info = 0;
    bool is_default = false;
    bool hidden = false;  // serves synchronous calls; not visible to anybody

    EntryQueue queue;
    uint32_t used_slots = 0;
    uint32_t next_task_id = 0;
    uint64_t submitted = 0;
    uint64_t finished = 0;  // discarded tasks count

    StreamState state = StreamState::Idle;
    Stream *next_ready = nullptr;
    bool held = false;
    uint64_t steps = 0;       // tasks that may still start while held
    uint64_t generation = 0;  // outdates timers and work of a task that was cancelled
    uint64_t free_at = 0;     // simulated time the previous task ended
    uint64_t start_ns = 0;    // of the running task
    uint64_t due_ns = 0;
    uint64_t unit_sequence = 0;  // order of arrival among those that wait for a unit
    int32_t unit_index = -1;     // unit it occupies; -1 none
    int32_t unit_taken = 0;      // the same, kept for the timeline
    aclError planned_failure = 0;
    aclError result = 0;  // of work that is through
    bool work_done = false;
    bool cancel = false;  // the running task's outcome is to be dropped
    bool aborting = false;
    bool closing = false;  // about to go: accepts nothing more

    uint64_t block_ticket = 0;  // of the BLOCK callback the stream waits for
    aclError error = 0;         // last failing task, until a sync takes it
    std::string error_text;
    std::string failure_text;                // what the running task's work said about its failure
    std::vector<ExceptionFacts> unreported;  // failures whose exception callbacks are still to run
    std::thread::id reaper;                  // who runs them

    uint32_t sync_waiters = 0;
    uint32_t space_waiters = 0;

    // Guarded by the subscription lock and, for the dispatcher, by the device's: written under both.
    std::shared_ptr<ReportGroup> group;
    bool group_is_hidden = false;

    void reset(Device &owner, Context &context_of);
};

enum class EventKind : uint8_t { Legacy, Flagged, Ex };

class Event {
public:
    void *handle = nullptr;
    Device *device = nullptr;
    EventKind kind = EventKind::Ex;
    uint32_t flags = 0;
    int32_t id = -1;               // hardware id held for life (flagged SYNC events)
    bool latched = false;          // flagged SYNC events
    uint64_t waits_submitted = 0;  // flagged SYNC events, for aclrtQueryEventWaitStatus
    uint64_t waits_finished = 0;
    uint32_t tasks = 0;             // queued tasks that refer to the event object itself
    bool destroyed = false;         // the slot goes back when tasks is 0
    Record *last = nullptr;         // latest record
    std::vector<Stream *> waiting;  // streams blocked on the latch
};

class Notify {
public:
    void *handle = nullptr;
    Device *device = nullptr;
    int32_t id = -1;
    bool latched = false;
    uint32_t tasks = 0;
    bool destroyed = false;
    std::vector<Stream *> waiting;
};

HandleTable<Stream, HandleKind::Stream> &stream_table();
HandleTable<Event, HandleKind::Event> &event_table();
HandleTable<Notify, HandleKind::Notify> &notify_table();

}  // namespace aclsim
