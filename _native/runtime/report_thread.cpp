// SPDX-License-Identifier: Apache-2.0
#include "report_thread.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <chrono>

#include "device.h"
#include "process.h"

namespace aioascend {
namespace {

constexpr int32_t kReportWaitMs = 100;
constexpr int64_t kSweepEveryNs = 100 * int64_t(1000000);
constexpr auto kBackOff = std::chrono::milliseconds(20);
constexpr int32_t kEventWaitMs = 2;

// A loop takes about a microsecond for each operation that it is given, so what is reported meanwhile is not urgent, and
// gathering it costs less than being woken up for it, time and again.
void leave_time(size_t operations) {
    constexpr size_t kWorthIt = 16, kMost = 100;
    if (operations >= kWorthIt) {
        const timespec pause{0, static_cast<long>(std::min(operations, kMost)) * 1000};
        nanosleep(&pause, nullptr);
    }
}

thread_local ReportThread *t_reports = nullptr;

}  // namespace

void ReportThread::start() {
    stop_ = false;
    thread_.start("aioascend-rep", [this] { run(); });
    // The library looks a thread up by pthread_self(), which is the same value.
    thread_id_ = static_cast<uint64_t>(thread_.handle());
}

bool ReportThread::stop() {
    tell_to_stop();
    return thread_.join_until(std::chrono::steady_clock::now() + kPatience);
}

void ReportThread::leave(std::chrono::steady_clock::time_point deadline) {
    tell_to_stop();
    thread_.join_until(deadline);
}

void ReportThread::tell_to_stop() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
}

aclError ReportThread::subscribe(aclrtStream stream) {
    if (device_.can().launch_callback) {
        const aclError code = device_.api().aclrtSubscribeReport(thread_id_, stream);
        if (code != 0) {
            return code;
        }
    }
    std::lock_guard<std::mutex> lock(mutex_);
    ++subscriptions_;
    changed_.notify_all();
    return 0;
}

aclError ReportThread::unsubscribe(aclrtStream stream) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        --subscriptions_;
    }
    return device_.can().launch_callback ? device_.api().aclrtUnSubscribeReport(thread_id_, stream) : 0;
}

void ReportThread::watch_event(Marker *marker) {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(marker);
    changed_.notify_all();
}

void ReportThread::unwatch_event(Marker *marker) {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.erase(std::remove(events_.begin(), events_.end(), marker), events_.end());
}

void ReportThread::on_report(void *data) {
    auto *marker = static_cast<Marker *>(data);
    ReportThread &self = *t_reports;
    marker->next = nullptr;
    (self.batch_head_ ? self.batch_tail_->next : self.batch_head_) = marker;
    self.batch_tail_ = marker;
}

void ReportThread::run() {
    t_reports = this;
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // of 50 us, without this
    device_.api().aclrtSetCurrentContext(device_.context());
    const bool callbacks = device_.can().launch_callback;
    while (true) {
        {
            std::unique_lock<std::mutex> lock(mutex_);
            // An unsubscribed thread would get 107012 at once, again and again.
            changed_.wait(lock, [this] { return stop_ || subscriptions_ > 0; });
            if (stop_) {
                return;
            }
        }
        const aclError code = callbacks ? process_reports() : process_events();
        leave_time(flush());  // whatever the code: reports that did run are done
        if (code != 0 && code != ACL_ERROR_RT_REPORT_TIMEOUT) {
            std::unique_lock<std::mutex> lock(mutex_);
            changed_.wait_for(lock, kBackOff);
        }
        device_.sweep(kSweepEveryNs);
    }
}

aclError ReportThread::process_reports() {
    return device_.api().aclrtProcessReport(kReportWaitMs);
}

aclError ReportThread::process_events() {
    std::vector<Marker *> pending;
    {
        std::unique_lock<std::mutex> lock(mutex_);
        if (events_.empty()) {
            changed_.wait_for(lock, std::chrono::milliseconds(kReportWaitMs));
        }
        pending = events_;  // they stay there, for the worker to give up meanwhile
    }
    for (Marker *marker : pending) {
        if (device_.event_complete(marker->event)) {
            unwatch_event(marker);
            on_report(marker);
        }
    }
    if (batch_head_ == nullptr && !pending.empty()) {
        if (device_.can().event_sync_timeout) {
            device_.api().aclrtSynchronizeEventWithTimeout(pending.front()->event, kEventWaitMs);
        } else {
            std::unique_lock<std::mutex> lock(mutex_);
            changed_.wait_for(lock, std::chrono::milliseconds(kEventWaitMs));
        }
    }
    return 0;
}

size_t ReportThread::flush() {
    if (batch_head_ == nullptr) {
        return 0;
    }
    std::lock_guard<std::mutex> settling(device_.settle_mutex);
    const uint64_t flush = device_.next_flush();
    for (Marker *marker = batch_head_; marker != nullptr; marker = marker->next) {
        if (!marker->lost) {
            marker->stream->reap(flush);
        }
    }
    device_.apply_exceptions();
    while (Marker *marker = batch_head_) {
        batch_head_ = marker->next;
        if (!marker->lost) {  // given up by a sweep; its stream may be gone
            marker->stream->report_arrived(marker);
        }
    }
    batch_tail_ = nullptr;
    return device_.outbox_send();
}

}  // namespace aioascend
