// SPDX-License-Identifier: Apache-2.0
// One opened device: its context, its report thread, its worker, its streams and memory, and the failures on it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "loader.h"
#include "execution.h"
#include "memory.h"
#include "model_description.h"
#include "report_thread.h"
#include "stream.h"
#include "worker.h"

namespace aioascend {

struct Options {
    uint32_t flight_limit = 512;           // operations on one stream before the host-side queue takes over
    int32_t report_timeout_ms = 2000;      // an idle stream that still owes a report is given up after this
    size_t stage_inline_bytes = 256 << 10; // larger pageable copies are staged by the worker
    size_t device_cache_bytes = size_t(256) << 20;
    size_t pinned_cache_bytes = size_t(256) << 20;
};

struct Health {
    aclError fault = 0;       // why it is out of service
    int64_t failed_ns = 0;    // when it was taken out of service
    int64_t progress_ns = 0;  // when something was finished last
    size_t in_flight = 0, queued = 0;
    size_t orphans = 0;       // streams given up, whose work goes on
};

aclError watch_exceptions(const Library &library);  // once per library
bool device_is_gone(aclError code);                 // nothing more works on a device that gives this

class Device {
public:
    Device(const Library &library, int32_t index, const Options &options);

    // Blocking; off the loop. Opens the device and its primary context, starts the threads.
    aclError open();
    // Blocking; off the loop. Waits for streams that nobody closed: they are given back once they are drained. Where that
    // takes a reset by force, others who have the device open go first. ended() stays false when it has to be leaked.
    aclError close();
    bool closed() const { return closed_.load(); }  // takes no more work
    bool ended() const { return ended_.load(); }    // nothing of it runs any more
    bool left_to_others() const { return left_to_others_.load(); }  // closed, and to be reset by those who have it open
    // Closes it in the background, once its streams are drained; false when there is nothing to wait for.
    bool close_later();
    // Blocking; off the loop. Gives up everything at once and resets the device, from everybody in this process. Can be
    // repeated while the device does not come back.
    aclError reset_by_force();
    // The device is being reset by force: whatever it had must not be given back any more. Any thread; does not block.
    void taken_away();

    aclError create_stream(uint32_t priority, uint32_t flags, std::shared_ptr<Stream> &out);  // blocking
    aclError wrap_stream(aclrtStream handle, std::shared_ptr<Stream> &out);                   // blocking
    void forget(Stream &stream);
    void keep_orphan(Stream &stream);  // its work cannot be stopped, and goes on
    std::vector<std::shared_ptr<Stream>> streams();
    void unblock_streams();  // worker: memory has come, or a record has been issued

    // Single calls with this device's context set (calls.cpp). Those marked so may block.
    aclError create_event(bool timed, aclrtEvent &out);
    void destroy_event(aclrtEvent event);  // nothing to do once the device is closed: events go with it
    bool event_complete(aclrtEvent event);
    aclError memory_info(size_t &free, size_t &total);
    int64_t ai_cores();  // 0: the library does not say
    aclError load_model(const std::string &path, uint32_t &id);               // blocks
    aclError load_model(const void *data, size_t size, uint32_t &id);         // blocks
    aclError describe_model(LoadedModel &model, ModelDescription &out, std::string &where);
    aclError unload_model(LoadedModel &model);                                // blocks
    void unload_model_soon(uint32_t id);  // by the worker
    aclError execute_now(Execution &execution);                               // blocks
    void hold_runs(LoadedModel &model, bool on);  // further runs wait in their streams' host-side queues
    aclError copy_now(void *dst, const void *src, size_t size, aclrtMemcpyKind direction);  // blocks
    bool is_pinned(const void *address, size_t size);

    // Somebody has been told of this failure: what is submitted from here on is fresh.
    void told(const std::shared_ptr<Failure> &failure);

    // Called by the exception callback, on any thread of the library.
    void note_exception(const DeviceException &exception);
    // Report thread, before tickets are settled: find the operations that the noted exceptions belong to.
    void apply_exceptions();

    // Takes the device out of service: its operations fail, nothing more is sent to it. Any thread; does not block.
    void fail(aclError code);
    bool handles_gone() const { return handles_gone_.load(); }  // with a reset: nothing may be given back any more
    aclError fault() const { return fault_.load(); }  // why it is out of service; 0: it is not
    std::shared_ptr<Failure> fault_failure() const { return fault_failure_; }  // once there is a fault
    Health health();
    // Looks for what the reports do not tell, unless somebody has done so that recently. The report thread does it, and
    // the worker should that be stuck.
    void sweep(int64_t at_most_every_ns);

    const AclApi &api() const { return library_.api; }
    const Capabilities &can() const { return library_.can; }
    aclrtContext context() const { return context_; }
    int32_t index() const { return index_; }
    bool is_of(const Library &library, int32_t index) const {
        return library_.handle == library.handle && index_ == index;
    }
    const Options &options() const { return options_; }
    MemoryPool &device_memory() { return device_memory_; }
    MemoryPool &pinned_memory() { return pinned_memory_; }
    Worker &worker() { return worker_; }
    ReportThread &reports() { return reports_; }

    void bury(Marker *marker);  // a late report may still name it: kept until the report thread has ended
    // Of threads that wait for streams, when the process shuts down.
    void wake_waiters(std::chrono::steady_clock::time_point deadline);

    // Around calls of other threads that may take their time: the device is not reset under them. False: it is too late.
    bool begin_call(bool even_when_closed);
    void end_call();

    // Tickets on their way to their loops, one push per loop; settle_mutex held.
    void outbox_add(Ticket *ticket);
    size_t outbox_send();  // how many the loops have not taken yet, the least of those that got some

    // Guards the taints of all streams: a failure crosses streams, so one lock for all of them. Under it nothing is
    // taken but the locks of queues.
    std::mutex failure_mutex;
    bool has_failed = false;  // there has been a failure: only then is there a reason to look what it reaches
    // Held by whoever settles tickets, so that they are delivered in order.
    std::mutex settle_mutex;
    uint64_t next_flush() { return ++flushes_; }  // settle_mutex held
    std::mutex abort_mutex;  // one abort at a time; the first to be taken
    int64_t reports_requested() const { return callbacks_launched.load(std::memory_order_relaxed); }
    std::atomic<int64_t> callbacks_launched{0};
    std::atomic<int64_t> progress_ns{0};  // when operations were settled last

private:
    aclError adopt(std::shared_ptr<Stream> stream, std::shared_ptr<Stream> &out);
    void give_up_streams();
    void abandon_streams();  // settle_mutex held
    void mark_runs_failed(const DeviceException &exception);
    aclError set_device();
    bool give_back_in_order();
    aclError leave(bool in_order, bool &was_reset);
    aclError force();
    void end(bool was_reset);
    bool lost() const;
    bool end_orphans();  // destroys those whose work has ended; whether others are left
    std::unordered_set<aclrtEvent> take_events();

    const Library &library_;
    const int32_t index_;
    const Options options_;
    aclrtContext context_ = nullptr;
    std::atomic<bool> closed_{true};
    std::atomic<bool> ended_{true};
    std::atomic<bool> handles_gone_{false};
    std::atomic<bool> left_to_others_{false};
    std::atomic<aclError> fault_{0};
    std::shared_ptr<Failure> fault_failure_;  // written once, before fault_
    std::atomic<int64_t> failed_ns_{0};
    std::atomic<int64_t> last_sweep_ns_{0};
    std::mutex mutex_;
    std::condition_variable streams_changed_;  // or calls_
    size_t calls_ = 0;     // of other threads, in progress
    bool ending_ = false;  // nobody waits for it any more
    std::vector<std::shared_ptr<Stream>> streams_;
    std::vector<std::shared_ptr<Stream>> orphans_;
    std::mutex events_mutex_;
    std::unordered_set<aclrtEvent> events_;
    std::mutex exception_mutex_;
    std::vector<DeviceException> exceptions_;
    std::atomic<bool> has_exceptions_{false};
    std::vector<std::pair<Bridge *, TicketList>> outbox_;
    std::vector<Marker *> buried_;  // settle_mutex
    uint64_t flushes_ = 0;          // settle_mutex
    MemoryPool device_memory_;
    MemoryPool pinned_memory_;
    Worker worker_;
    ReportThread reports_;
};

}  // namespace aioascend
