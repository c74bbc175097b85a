// SPDX-License-Identifier: Apache-2.0
// Callback reports: posted by a device, run by the host thread that is subscribed to the stream.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/task.h"

namespace aclsim {

class Device;

struct Report {
    void (*function)(void *) = nullptr;
    void *user_data = nullptr;
    void *stream = nullptr;     // handle, to release a BLOCK callback
    uint64_t block_ticket = 0;  // which wait of the stream to release; 0 = NO_BLOCK
};

// The report queue of one host thread. A thread belongs to one device at a time.
class ReportGroup {
public:
    ReportGroup(uint64_t thread, Device &device) : thread(thread), device(device) {}

    // True: the thread sleeps, so ring() is due. Apart, because waking a thread takes longer than all the rest and
    // need not happen under the device's lock.
    bool post(const Report &report);
    void ring() { arrived_.notify_one(); }
    // Waits for reports (`timeout_ms` -1: without limit), then runs all there are. 0, 507012, 107012 (closed
    // meanwhile), or the code of a lost device.
    aclError process(int32_t timeout_ms);
    // No more reports: what is queued is dropped, a waiting process() returns 107012.
    void close();
    // Something that process() waits for has changed.
    void wake();

    const uint64_t thread;
    Device &device;
    uint32_t streams = 0;  // subscribed ones; guarded by the subscription lock

private:
    bool deliverable() const;
    void run(std::vector<Report> &batch);

    std::mutex mutex_;
    std::condition_variable arrived_;
    std::vector<Report> queue_;
    std::vector<Report> batch_;  // touched by the processing thread only
    bool waiting_ = false;
    bool processing_ = false;
    bool closed_ = false;
};

// The functions behind the report interface. `stream` is resolved by the caller.
aclError subscribe_report(uint64_t thread, Stream &stream);
aclError unsubscribe_report(uint64_t thread, Stream &stream);
aclError process_report(int32_t timeout_ms);
// Subscribes the stream to its context's hidden thread, for life.
aclError subscribe_host_functions(Stream &stream);
// Ends the context's hidden thread, if it has one.
void close_host_functions(Context &context);
// A stream that goes away takes its subscription along.
void drop_subscription(Stream &stream);
// All groups of a device look again (released reports, lost device).
void wake_report_groups(const Device &device);

}  // namespace aclsim
