// SPDX-License-Identifier: Apache-2.0
// The thread that hears from the device. It never takes the GIL, and waits for nothing but reports and busy loops.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "loader.h"
#include "thread.h"

namespace aioascend {

class Device;
class Stream;
struct Marker;

class ReportThread {
public:
    explicit ReportThread(Device &device) : device_(device) {}

    void start();
    bool stop();  // joins; false: a call of the library does not return, and the thread is left to itself
    void leave(std::chrono::steady_clock::time_point deadline);  // the process ends: joins if it ends in time

    // Blocking; a worker thread with the device's context. Binds a stream's reports to this thread.
    aclError subscribe(aclrtStream stream);
    aclError unsubscribe(aclrtStream stream);

    // Libraries without aclrtLaunchCallback: the marker's event says when.
    void watch_event(Marker *marker);
    void unwatch_event(Marker *marker);

    // What aclrtLaunchCallback runs, inside aclrtProcessReport, on this thread: nothing but an append.
    static void on_report(void *marker);

private:
    void run();
    void tell_to_stop();
    aclError process_reports();
    aclError process_events();
    size_t flush();  // how many operations the loop has yet to take

    Device &device_;
    Thread thread_;
    std::atomic<uint64_t> thread_id_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Marker *> events_;
    int subscriptions_ = 0;
    bool stop_ = false;
    Marker *batch_head_ = nullptr;  // this thread only
    Marker *batch_tail_ = nullptr;
};

}  // namespace aioascend
