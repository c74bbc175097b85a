// SPDX-License-Identifier: Apache-2.0
// The dispatcher: takes tasks through their life. Simulated times are exact although the thread wakes up
// late: a task starts when its predecessor ended and its unit was free, not when the dispatcher noticed.
#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>

#include "core/device.h"
#include "core/pool.h"
#include "core/process.h"
#include "core/thread_state.h"

namespace aclsim {

namespace {
constexpr int batch = 64;  // tasks or timers between two looks at the rest of the world
}

void Device::run() {
    char name[16];
    std::snprintf(name, sizeof name, "aclsim-dev%d", static_cast<int>(id));
    name_this_thread(name);
    thread_state().on_device_thread = true;
    // The default slack of 50 us would make every simulated microsecond wait that long.
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    Lock lock(mutex);
    while (!stopping_) {
        if (pump(lock)) {
            lock.unlock();
            lock.lock();
        } else {
            sleep(lock);
        }
    }
    sim_clock().leave(id);
    stopped_ = true;
    stopped_condition_.notify_all();
}

bool Device::pump(Lock &lock) {
    bool worked = false;
    if (fault_unreported_) {
        fault_unreported_ = false;
        const ExceptionFacts facts{UINT32_MAX, UINT32_MAX, UINT32_MAX, static_cast<uint32_t>(id),
                                   static_cast<uint32_t>(fault_)};
        lock.unlock();
        call_exception_callbacks(facts);
        lock.lock();
        worked = true;
    }
    if (!finished_.empty()) {
        std::vector<Finished> finished;
        finished.swap(finished_);
        for (const Finished &one : finished) {
            work_finished(lock, one);
        }
        worked = true;
    }
    if (fault_ != 0) {
        return worked;
    }
    const uint64_t now = sim_clock().now();
    for (int i = 0; i < batch && !timers_.empty() && timers_.top().due <= now; ++i) {
        const Timer timer = timers_.top();
        timers_.pop();
        on_timer(lock, timer);
        worked = true;
    }
    post_due_reports(now);
    run_monitor(lock, now);
    if (!ready_.empty()) {
        ready_now_.swap(ready_);
        for (Stream *stream : ready_now_) {
            if (stream->state == StreamState::Ready) {
                stream->state = StreamState::Idle;
                advance(lock, *stream);
            }
        }
        ready_now_.clear();
        worked = true;
    }
    flush_space();
    if (const std::shared_ptr<ReportGroup> group = take_ringing()) {
        lock.unlock();
        group->ring();
        lock.lock();
        worked = true;  // something may have come meanwhile
    }
    return worked;
}

void Device::sleep(Lock &lock) {
    const uint64_t due = next_due();
    if (due <= sim_clock().now()) {
        return;
    }
    sleeping_ = true;
    if (sim_clock().idle(id, due, outstanding_ > 0)) {
        lock.unlock();
        waker_.sleep(sim_clock().deadline(due));
        lock.lock();
    }
    sleeping_ = false;
    sim_clock().active(id);
}

uint64_t Device::next_due() const {
    if (fault_ != 0) {
        return never;
    }
    auto &timers = const_cast<Device *>(this)->timers_;
    while (!timers.empty() && timers.top().stream->generation != timers.top().generation) {
        timers.pop();  // of cancelled tasks: virtual time must not jump to them
    }
    uint64_t due = timers_.empty() ? never : timers_.top().due;
    if (!delayed_reports_.empty()) {
        due = std::min(due, delayed_reports_.begin()->first);
    }
    if (!monitor_.empty()) {
        due = std::min(due, monitor_.begin()->first);
    }
    return due;
}

void Device::wake() {
    if (sleeping_) {
        sleeping_ = false;
        sim_clock().active(id);
        waker_.wake();
    }
}

void Device::add_timer(uint64_t due, Stream &stream) {
    timers_.push(Timer{due, ++timer_sequence_, &stream, stream.generation});
}

bool Device::may_start(const Stream &stream) const {
    return !stream.queue.empty() && !held_ && (!stream.held || stream.steps > 0) && !stream.aborting &&
           fault_ == 0 && task_abort == 0 && stream.context->stop_code == 0;
}

void Device::make_ready(Stream &stream) {
    stream.state = StreamState::Ready;
    ready_.push_back(&stream);
}

void Device::go_on(Stream &stream) {
    if (stream.state == StreamState::Idle && may_start(stream)) {
        make_ready(stream);
        wake();
    }
}

// Starts tasks of an idle stream until one takes time, has to wait, or may not start.
void Device::advance(Lock &lock, Stream &stream) {
    for (int i = 0; i < batch; ++i) {
        if (!may_start(stream) || !start(lock, stream)) {
            return;
        }
    }
    go_on(stream);
}

// True: the task is through already and the stream idle again.
bool Device::start(Lock &lock, Stream &stream) {
    const Entry &entry = stream.queue.front();
    if (stream.held) {
        --stream.steps;
    }
    ++stream.generation;
    stream.start_ns = std::max(stream.free_at, entry.queued_ns);
    stream.planned_failure = faults.match_task(stream, entry);
    stream.unit_taken = 0;
    stream.result = 0;
    stream.work_done = false;
    const bool waits = entry.op == Op::Wait || entry.op == Op::WaitLatch || entry.op == Op::NotifyWait;
    if (waits && stream.planned_failure == 0 && begin_wait(lock, stream)) {
        return false;
    }
    stream.due_ns = stream.start_ns + profile_.launch_overhead_ns + nominal_ns(entry);
    UnitSet *units = units_of(entry.unit);
    if (units != nullptr && (stream.due_ns > stream.start_ns || entry.unit == Unit::AiCore)) {
        const uint64_t wanted = stream.start_ns;
        stream.unit_index = units->acquire(&stream.start_ns);
        if (stream.unit_index < 0) {
            units->wait(stream);
            stream.state = StreamState::WaitUnit;
            return false;
        }
        stream.due_ns += stream.start_ns - wanted;
    }
    run_light_work(stream);
    if (stream.due_ns == stream.start_ns && !runs_at_start(stream)) {
        return complete(lock, stream, stream.due_ns);
    }
    schedule(stream);
    return false;
}

uint64_t Device::nominal_ns(const Entry &entry) const {
    if (entry.op == Op::Custom && (entry.unit == Unit::AiCore || entry.task->duration_ns != 0)) {
        return entry.task->duration_ns != 0 ? entry.task->duration_ns : profile_.model_ns(entry.task->name);
    }
    return profile_.nominal_ns(entry.unit, entry.bytes);
}

bool Device::runs_at_start(const Stream &stream) const {
    const Entry &entry = const_cast<Stream &>(stream).queue.front();
    return entry.op == Op::Custom && entry.task->work && !stream.work_done && stream.planned_failure == 0 &&
           !has_late_work(stream);
}

void Device::run_light_work(Stream &stream) {
    Task *task = stream.queue.front().task;
    if (!runs_at_start(stream) || !task->light) {
        return;
    }
    stream.result = task->work();
    stream.work_done = true;
    if (stream.result != 0) {
        stream.failure_text = take_messages();
    }
}

// The head task has its unit, if it needs one, and takes time.
void Device::schedule(Stream &stream) {
    const Entry &entry = stream.queue.front();
    if (runs_at_start(stream)) {
        hand_to_pool(stream);
        return;
    }
    stream.state = StreamState::Timed;
    uint64_t at = stream.due_ns;
    if (has_late_work(stream) && entry.bytes > 0 && !sim_clock().is_virtual()) {
        // Started so early that it is about through in time; the source is still read late.
        const auto lead = static_cast<uint64_t>(static_cast<double>(entry.bytes) / copy_speed_);
        at = std::max(stream.start_ns, at - std::min(at, lead));
    }
    add_timer(at, stream);
}

// Work that happens at the end of a task's time on a thread of its own.
bool Device::has_late_work(const Stream &stream) const {
    constexpr uint64_t inline_limit = 64 << 10;
    const Entry &entry = const_cast<Stream &>(stream).queue.front();
    if (stream.planned_failure != 0) {
        return false;
    }
    if (entry.op == Op::Copy || entry.op == Op::Set) {
        return entry.bytes > inline_limit;
    }
    const bool copies =
        entry.unit == Unit::CopyIn || entry.unit == Unit::CopyOut || entry.unit == Unit::CopyDevice;
    return entry.op == Op::Custom && copies && entry.task->work;
}

void Device::on_timer(Lock &lock, const Timer &timer) {
    Stream &stream = *timer.stream;
    if (stream.generation != timer.generation) {
        return;
    }
    switch (stream.state) {
        case StreamState::Timed:
            if (complete(lock, stream, stream.due_ns)) {
                advance(lock, stream);
            }
            break;
        case StreamState::WaitRecord:
        case StreamState::WaitLatch:
        case StreamState::WaitNotify:
            unlink_wait(stream, stream.queue.front());
            stream.result = ACL_ERROR_RT_TASK_TIMEOUT;
            stream.failure_text = "a wait on stream " + std::to_string(stream.id) + " timed out";
            if (retire(lock, stream, timer.due)) {
                advance(lock, stream);
            }
            break;
        default: break;
    }
}

// The task's time is over. True: it is through.
bool Device::complete(Lock &lock, Stream &stream, uint64_t end) {
    if (stream.planned_failure == 0 && !stream.work_done && !perform(lock, stream)) {
        return false;
    }
    return retire(lock, stream, end);
}

// Copies and memsets. False: under way on another thread, or cancelled.
bool Device::perform(Lock &lock, Stream &stream) {
    if (has_late_work(stream)) {
        hand_to_pool(stream);
        return false;
    }
    const Entry &head = stream.queue.front();
    if (head.op != Op::Copy && head.op != Op::Set) {
        return true;
    }
    if (head.bytes <= small_bytes) {
        stream.result = touch_memory(head);
        return true;
    }
    const Entry entry = head;
    stream.state = StreamState::Busy;
    lock.unlock();
    const aclError code = touch_memory(entry);
    lock.lock();
    if (stream.cancel) {
        drop_cancelled(stream, stream.due_ns);
        return false;
    }
    stream.result = code;
    stream.work_done = true;
    stream.state = StreamState::Timed;
    return fault_ == 0;
}

void Device::hand_to_pool(Stream &stream) {
    const Entry entry = stream.queue.front();
    stream.state = StreamState::Working;
    ++outstanding_;
    WorkerPool &pool = has_late_work(stream) ? copy_pool() : compute_pool();
    Stream *owner = &stream;
    pool.run([this, owner, entry] {
        const uint64_t begin_ns = steady_ns();
        Finished finished{owner, 0, 0, std::string()};
        if (entry.op == Op::Custom) {
            finished.code = entry.task->work();
            finished.text = take_messages();
        } else {
            finished.code = touch_memory(entry);
        }
        finished.took_ns = steady_ns() - begin_ns;
        Lock lock(mutex);
        finished_.push_back(std::move(finished));
        wake();
    });
}

void Device::work_finished(Lock &lock, const Finished &finished) {
    Stream &stream = *finished.stream;
    --outstanding_;
    if (stream.cancel) {
        drop_cancelled(stream, sim_clock().now());
        return;
    }
    stream.work_done = true;
    stream.result = finished.code;
    stream.state = StreamState::Timed;
    if (finished.code != 0) {
        stream.failure_text = finished.text;
    }
    if (fault_ != 0) {
        return;  // never completes
    }
    const Entry &entry = stream.queue.front();
    if (sim_clock().is_virtual()) {
        if (entry.unit == Unit::AiCore && nominal_ns(entry) == 0) {
            stream.due_ns += finished.took_ns;
        }
    } else if (!has_late_work(stream)) {
        stream.due_ns = std::max(stream.due_ns, sim_clock().now());
    } else {
        // A copy that came late only because threads had to wake up is made up for; a slow one is not.
        stream.due_ns = std::max(stream.due_ns, stream.start_ns + finished.took_ns);
        if (entry.bytes > 0 && finished.took_ns > 0) {
            const double speed = static_cast<double>(entry.bytes) / static_cast<double>(finished.took_ns);
            copy_speed_ = std::max(0.5, 0.8 * copy_speed_ + 0.2 * speed);
        }
    }
    if (stream.due_ns > sim_clock().now()) {
        add_timer(stream.due_ns, stream);
    } else if (retire(lock, stream, stream.due_ns)) {
        advance(lock, stream);
    }
}

UnitSet *Device::units_of(Unit unit) {
    switch (unit) {
        case Unit::AiCore: return &ai_cores_;
        case Unit::CopyIn: return &copy_in_;
        case Unit::CopyOut: return &copy_out_;
        case Unit::CopyDevice: return &copy_device_;
        default: return nullptr;
    }
}

void Device::release_unit(Stream &stream, uint64_t end) {
    if (stream.unit_index < 0) {
        return;
    }
    UnitSet &units = *units_of(stream.queue.front().unit);
    units.release(stream.unit_index, stream.start_ns, std::max(end, stream.start_ns));
    stream.unit_taken = stream.unit_index;
    stream.unit_index = -1;
    grant_units(units);
}

// Free units go to the streams that wait for them.
void Device::grant_units(UnitSet &units) {
    while (units.has_free()) {
        Stream *next = units.next();
        if (next == nullptr) {
            return;
        }
        const uint64_t wanted = next->start_ns;
        next->unit_index = units.acquire(&next->start_ns);
        next->due_ns += next->start_ns - wanted;
        run_light_work(*next);
        schedule(*next);
    }
}

}  // namespace aclsim
