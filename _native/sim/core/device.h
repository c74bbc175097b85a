// SPDX-License-Identifier: Apache-2.0
// One simulated device: its lock, its dispatcher thread, its streams' tasks, units and timers.
//
// Lock order: context registry, Context::stream_list, subscription lock, Device::mutex, then the leaves
// (report groups, memory map, clock, wakers, worker pools). User code never runs under any of them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/context.h"
#include "core/faults.h"
#include "core/profile.h"
#include "core/report.h"
#include "core/stream.h"
#include "core/timeline.h"
#include "core/units.h"

namespace aclsim {

// A host thread that waits inside a call. Lives on that thread's stack, linked while it waits.
struct HostWaiter {
    enum class For : uint8_t { Finished, Space, Record, EventId, Cancelled, Blocked };
    HostWaiter(For what, Stream *stream_of, uint64_t count)
        : reason(what), stream(stream_of), target(count) {}
    For reason;
    Stream *stream;
    uint64_t target;  // Finished: tasks; Space: entries; Blocked: threads
    Record *record = nullptr;
    Context *context = nullptr;
    bool control = false;  // a control call: not woken by faults
    bool done = false;
    aclError code = 0;
    std::condition_variable condition;
};

using Lock = std::unique_lock<std::mutex>;

// Copies up to here are made with the device's lock held, which larger ones would hold up others with.
constexpr uint64_t small_bytes = 4 << 10;

class Device {
public:
    explicit Device(int32_t device_id);
    const int32_t id;
    std::mutex mutex;

    // --- life (device.cpp)
    void open();  // starts the dispatcher; mutex held
    bool is_open() const { return open_; }
    void stop_dispatcher(uint32_t limit_ms);
    void set_profile(const Profile &profile);
    const Profile &profile() const { return profile_; }
    void wake();  // mutex held
    // The report thread that a task has posted to, for the caller to ring() once it has given up the mutex; or null.
    std::shared_ptr<ReportGroup> take_ringing() { return std::move(ringing_); }

    // --- streams (device.cpp)
    aclError make_stream(Context &context, uint32_t priority, uint32_t flags, bool hidden, Stream **out);
    void free_stream(Stream &stream);  // must be idle and empty
    uint32_t stream_limit() const { return limit_streams != 0 ? limit_streams : profile_.stream_limit; }
    uint32_t event_limit() const { return limit_events != 0 ? limit_events : profile_.event_limit; }

    // --- putting work in (submit.cpp)
    // Appends; blocks while the queue is full. On refusal the entry's Task is deleted.
    aclError enqueue(Lock &lock, Stream &stream, Entry entry);
    // The code that calls on this stream return now: lost device, abort, stop mode; 0 = none.
    aclError blocked_code(const Stream &stream) const;
    aclError synchronize(Lock &lock, Stream &stream, int32_t timeout_ms, uint64_t target);
    // Waits for tasks submitted so far; takes the stream's error.
    aclError synchronize_and_take(Lock &lock, Stream &stream, int32_t timeout_ms);
    aclError take_error(Stream &stream);
    aclError wait(Lock &lock, HostWaiter &waiter, int32_t timeout_ms, aclError on_timeout);
    // Runs exception callbacks that wait for a user thread (delivery mode 1).
    void reap_exceptions(Lock &lock, Stream &stream);

    // --- interfering (interfere.cpp)
    void hold(Stream *stream, bool on);  // null: the device
    void step(Stream &stream, uint64_t tasks);
    // Discards what is queued and running; false after 60 s of waiting for running work.
    bool abort(Lock &lock, Stream &stream);
    bool stop_running(Lock &lock, Stream &stream);
    void release_block(Stream &stream, uint64_t ticket);
    void lose(aclError code);
    void restore();
    void clear_fault();
    aclError fault() const { return fault_; }
    bool lost() const { return lost_; }
    void wake_waiters(const Context *context, aclError code);  // null: all of the device
    void reset_controls();  // what the control interface changed, back to its default

    // --- events (event.cpp)
    aclError take_event_id(int32_t *event_id);
    void return_event_id();
    void recycle(Event &event);
    void recycle(Notify &notify);
    bool can_run_inline(const Context &context) const;
    aclError run_inline(Lock &lock, const Entry &entry);
    Record *new_record();
    void unreference(Record *record);
    void record_done(Record &record, uint64_t at);
    void settle(Record &record);  // one pending task of the record is through
    void wake_latched(std::vector<Stream *> &waiting, uint64_t at, bool all);

    // A forced reset leaves nothing behind, if no context does: events, notifies, memory.
    void release_leftovers();  // mutex held

    std::set<Event *> events;
    std::set<Notify *> notifies;
    uint32_t events_in_use = 0;  // event ids
    uint32_t notifies_in_use = 0;
    std::set<int32_t> free_event_ids;
    int32_t next_event_id = 0;
    std::set<int32_t> free_notify_ids;
    int32_t next_notify_id = 0;
    std::vector<Context *> contexts;
    FaultList faults;
    Timeline timeline;
    uint64_t report_delay_ns = 0;
    std::atomic<bool> reports_held{false};
    std::atomic<aclError> fault_seen{0};  // fault_ for readers without the lock
    aclError task_abort = 0;              // 107022 while aclrtDeviceTaskAbort runs
    uint32_t limit_streams = 0;           // 0: the profile's
    uint32_t limit_events = 0;
    uint64_t callbacks_launched = 0;
    int64_t tasks = 0;  // queued or running
    uint64_t streams_in_use = 0;
    bool in_flight_uses(const void *p, size_t size);  // mutex held
    // Busy share of the AI Cores since the last question, percent.
    int32_t utilization();

private:
    friend class DispatchGuard;
    struct Timer {
        uint64_t due;
        uint64_t sequence;
        Stream *stream;
        uint64_t generation;
        bool operator>(const Timer &other) const {
            return due != other.due ? due > other.due : sequence > other.sequence;
        }
    };
    struct DelayedReport {
        std::shared_ptr<ReportGroup> group;
        Report report;
    };
    struct Finished {
        Stream *stream;
        aclError code;
        uint64_t took_ns;
        std::string text;
    };

    // --- dispatcher (dispatch.cpp)
    void run();
    bool pump(Lock &lock);
    void sleep(Lock &lock);
    bool may_start(const Stream &stream) const;
    bool may_run_here(Stream &stream) const;
    void make_ready(Stream &stream);
    void advance(Lock &lock, Stream &stream);
    bool start(Lock &lock, Stream &stream);
    bool runs_at_start(const Stream &stream) const;
    void run_light_work(Stream &stream);
    void schedule(Stream &stream);
    bool begin_wait(Lock &lock, Stream &stream);
    uint64_t nominal_ns(const Entry &entry) const;
    bool complete(Lock &lock, Stream &stream, uint64_t end);
    bool perform(Lock &lock, Stream &stream);
    void hand_to_pool(Stream &stream);
    void work_finished(Lock &lock, const Finished &finished);
    bool retire(Lock &lock, Stream &stream, uint64_t end);
    void apply_effect(Stream &stream, Entry &entry, uint64_t end);
    void post_callback(Stream &stream, Entry &entry, uint64_t end);
    void task_failed(Lock &lock, Stream &stream, const Entry &entry, aclError code);
    void deliver_exceptions(Lock &lock, Stream &stream);
    void finish_entry(Stream &stream, uint64_t end, aclError code);
    aclsimRecord describe(const Entry &entry, aclError code) const;
    void on_timer(Lock &lock, const Timer &timer);
    void add_timer(uint64_t due, Stream &stream);
    void release_unit(Stream &stream, uint64_t end);
    void grant_units(UnitSet &units);
    UnitSet *units_of(Unit unit);
    void flush_space();
    uint64_t next_due() const;
    void settle_entry(Stream &stream, Entry &entry);
    void discard_entry(Stream &stream, Entry &entry);
    bool cancel_running(Lock &lock, Stream &stream);
    void unlink_wait(Stream &stream, Entry &entry);
    bool is_complete(const HostWaiter &waiter) const;
    void wake_finished(Stream &stream);
    void wake_one(HostWaiter &waiter, aclError code);
    void drop_cancelled(Stream &stream, uint64_t end);
    void go_on(Stream &stream);
    bool has_late_work(const Stream &stream) const;
    aclError touch_memory(const Entry &entry) const;
    void post(const std::shared_ptr<ReportGroup> &group, const Report &report);
    void post_due_reports(uint64_t now);
    void run_monitor(Lock &lock, uint64_t now);

    bool open_ = false;
    bool stopping_ = false;
    bool stopped_ = true;
    bool sleeping_ = false;
    bool held_ = false;
    bool lost_ = false;
    aclError fault_ = 0;
    Profile profile_;
    Waker waker_;
    std::condition_variable stopped_condition_;
    std::condition_variable reaped_;

    std::vector<Stream *> ready_;
    std::vector<Stream *> ready_now_;
    std::priority_queue<Timer, std::vector<Timer>, std::greater<Timer>> timers_;
    uint64_t timer_sequence_ = 0;
    std::multimap<uint64_t, DelayedReport> delayed_reports_;
    std::shared_ptr<ReportGroup> ringing_;
    std::multimap<uint64_t, void *> monitor_;  // streams with unreported failures, by due time
    std::vector<Finished> finished_;
    uint32_t outstanding_ = 0;  // work on compute and copy threads
    uint64_t ticket_ = 0;
    double copy_speed_ = 4;  // measured, bytes per ns, of copies on the copy threads
    bool fault_unreported_ = false;
    UnitSet ai_cores_, copy_in_, copy_out_, copy_device_;

    std::vector<HostWaiter *> waiters_;
    std::vector<Stream *> space_freed_;
    std::vector<std::unique_ptr<Record>> records_;
    std::vector<Record *> free_records_;
    std::set<int32_t> free_stream_ids_;
    int32_t next_stream_id_ = 0;
    uint64_t utilization_asked_ns_ = 0;
    uint64_t utilization_busy_ns_ = 0;
};

// Devices exist for the life of the process; null: no such device.
const Profile &default_profile();  // of the environment
Device *device_at(int32_t device);
int32_t device_count();
bool set_device_count(int32_t count);
// Every device that was ever opened.
std::vector<Device *> open_devices();
aclError invalid_device(int32_t device);

// Exception callbacks (exception.cpp).
void call_exception_callbacks(const ExceptionFacts &facts);

}  // namespace aclsim
