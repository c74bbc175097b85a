// SPDX-License-Identifier: Apache-2.0
// One ACL stream: what is in flight on it, what still waits on the host, and what a failure on it reaches.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "command.h"
#include "ticket.h"

namespace aioascend {

class Device;
struct StreamSnapshot;

// One report asked of the device: everything up to `seq` is done when it arrives. Its address travels through
// aclrtLaunchCallback, which keeps 48 bits of it; it stays allocated while a report may still come.
struct Marker {
    Stream *stream = nullptr;
    Marker *next = nullptr;
    uint64_t seq = 0;
    aclrtEvent event = nullptr;   // event-based reports: what the device records
    int64_t idle_since_ns = 0;    // when the stream was first seen idle although this report had not come
    bool lost = false;            // given up; a late report is ignored
};

// What a failure reaches on a stream: operations in (from, to], `to` open until somebody has been told.
struct Taint {
    static constexpr uint64_t kOpen = UINT64_MAX;
    std::shared_ptr<Failure> failure;
    uint64_t from = 0;
    uint64_t to = 0;

    bool open() const { return to == kOpen; }
    bool covers(uint64_t seq) const { return seq > from && seq <= to; }
};

// A wait in flight: what stands behind it depends on another stream up to source_seq. Guarded by the failure_mutex.
struct PendingWait {
    uint64_t seq = 0;
    std::shared_ptr<Stream> source;
    uint64_t source_seq = 0;
    aclrtEvent event = nullptr;
};

// > 0: an ACL code
enum SubmitStatus : int {
    kSubmitted = 0,
    kClosed = -1,
    kPoisoned = -2,
    kForked = -3,
    kOutOfService = -4,
    kAborting = -5,
    kBehind = -6,  // a wait for a record that a failure reaches
};

class Stream : public std::enable_shared_from_this<Stream> {
public:
    // waiter: for a stream that is not ours, a stream of ours that carries its reports.
    Stream(Device &device, aclrtStream handle, aclrtStream waiter, bool foreign = false);
    ~Stream();

    // --- any thread ---
    // Issues the command, or queues it on the host behind others. Never waits for the device.
    int submit(Ticket &ticket, const Command &command);
    // Sees to it that a report will come which covers the ticket.
    int arm(Ticket &ticket);
    // Moves a ticket that has no loop yet to a bridge. False when it has already been delivered.
    bool rebind(Ticket &ticket, Bridge &bridge);
    aclError query(bool &complete) { return query(complete, handle_); }
    aclError query_own(bool &complete) { return query(complete, own_handle()); }
    // Stops accepting; what was accepted is still resolved.
    void close();
    // After close(): blocks until the stream is drained, then gives the handle back. Never on a loop's thread.
    aclError destroy();
    // Never blocks: the worker destroys the stream once it is drained.
    void destroy_when_drained();
    // Blocking; off the loop. Discards what is on it and on the streams that wait for it. False: the library cannot, so
    // its work goes on, the operations are given up all the same, and the stream is closed.
    bool abort();

    aclrtStream handle() const { return handle_; }
    aclrtStream own_handle() const { return foreign_ ? waiter_ : handle_; }
    int32_t id() const { return id_; }
    uint64_t issued_seq() const { return issued_seq_.load(std::memory_order_acquire); }
    uint64_t last_seq() const { return last_seq_.load(std::memory_order_acquire); }
    size_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
    size_t queued();
    bool closed() const { return closed_.load(std::memory_order_acquire); }  // takes no more
    bool idle();      // nothing of it is on its way
    bool destroyed();
    bool given_up();  // its operations are resolved, its work may go on
    StreamSnapshot snapshot();  // for debug mode

    // --- the device's threads ---
    void issue_queued();                    // worker: issue what fits
    void unblock();                         // worker: what it waited for may be there now
    void sweep(int64_t now_ns, uint64_t flush);  // look for reports that never come, and for work nobody waits for
    // Report thread, once in a flush: let the library hand over failures it has noticed, here and where this waited.
    void reap(uint64_t flush);
    bool mark_failed(uint32_t task, aclError code);  // false: its ticket is not known yet, ask again
    bool runs_of(uint32_t thread);                   // runs of models are in flight that this thread has submitted
    void mark_run_failed(const DeviceException &exception, bool only_here);
    // No report will come: resolve everything with this.
    void abandon(const std::shared_ptr<Failure> &failure, Outcome outcome);
    void handle_has_gone();  // with a reset of the device
    void confirm();                                  // worker: clear the library's own record of a failure
    void report_arrived(Marker *marker);
    void wake_waiters(std::chrono::steady_clock::time_point deadline);
    // Somebody is being told of the failure: first on all streams the one, then the other; failure_mutex held.
    void carry_over(const std::shared_ptr<Failure> &failure);
    void end_taint(const Failure &failure);
    std::shared_ptr<Failure> failure_at(uint64_t seq);  // the failure that reaches this position; failure_mutex held
    std::shared_ptr<Failure> open_failure();               // known, and nobody has been told yet
    std::shared_ptr<Failure> failure_of(uint64_t seq);     // failure_at, for those who do not hold the lock

private:
    friend class Reach;
    friend int arm_and_submit(Stream &, Ticket &, Stream &, Ticket &, const Command &);
    struct Queued {
        Ticket *ticket;
        Command command;
    };
    struct Discarded {  // by an abort: from < seq <= to
        std::shared_ptr<Stream> stream;
        uint64_t from = 0, to = 0;
    };

    void explain_queue(StreamSnapshot &out);
    aclError issue(const Command &command, uint32_t &last_task) const;
    static int state_of(const Ticket &ticket, const Command &command);
    void enter_flight(Ticket &ticket);
    void accept(Ticket &ticket);
    aclError launch_marker();
    aclError launch_marker_on_waiter(Marker &marker);
    void settle(Ticket &ticket);
    void drop_wait(Ticket &ticket);
    void retire_locked(uint64_t seq);
    void retire_upto(uint64_t seq);
    void retire_sources(uint64_t seq);
    void hand_over(Ticket *ticket);
    void finish_on_worker(Ticket *ticket);
    bool large(const Ticket &ticket) const;
    void give_up_oldest_marker();
    void retire_unreported(uint64_t seq, const std::shared_ptr<Failure> &failure, Outcome outcome, bool stopped);
    bool all_cancelled() const;
    void discard(const std::shared_ptr<Failure> &failure, Outcome outcome, bool stopped);
    bool abort_alone(const std::shared_ptr<Failure> &failure, Outcome outcome, Discarded &gone);
    bool waits_for(const Discarded &gone);
    uint64_t seen_of(Stream &other, uint64_t upto);
    bool is_over(const PendingWait &wait) const;
    static bool passing(aclError code);
    void suspect();
    void give_up(const std::shared_ptr<Failure> &failure, Outcome outcome);
    void give_up_rest();
    bool stranded(int64_t now_ns);
    void lose_marker();
    aclError query(bool &complete, aclrtStream stream);
    aclError query_markers(bool &complete);
    Ticket *first_run(bool &only);
    void start_failure(Ticket *ticket, uint64_t behind, aclError code, uint32_t task, bool issued);
    void reap_sources(uint64_t flush);
    void add_taint(const std::shared_ptr<Failure> &failure, uint64_t from, uint64_t to);
    void note_open_taints();
    void take_failures(uint64_t seq, Stream &source, uint64_t source_seq);
    void wake_worker();
    void want_all();
    void post_destroy();
    void note_drained();
    bool drained() const { return in_flight_ == 0 && queue_.empty() && finishing_ == 0 && !aborting_; }

    Device &device_;
    aclrtStream handle_;
    aclrtStream waiter_;
    int32_t id_ = -1;
    const bool foreign_;

    std::mutex mutex_;
    std::condition_variable drained_;
    std::condition_variable issued_;
    TicketList flight_;              // issued, in stream order
    std::deque<Queued> queue_;       // accepted, not issued
    std::deque<Marker *> markers_;   // out there, in launch order
    std::vector<Marker *> spare_markers_;
    std::vector<Taint> taints_;      // newest last; guarded by the device's failure_mutex
    std::vector<PendingWait> waits_;
    std::atomic<uint64_t> lost_seq_{0};  // up to here a report, or the work itself, was given up
    mutable std::atomic<uint32_t> runner_{0};  // the thread that submitted the newest run of a model
    uint64_t reaped_ = 0;                // the latest flush that did; settle_mutex
    int64_t stranded_since_ns_ = 0;      // since when it waits for something that was given up
    std::atomic<bool> poisoned_{false};  // a taint is open
    std::atomic<size_t> in_flight_{0};   // written under mutex_
    std::atomic<uint64_t> last_seq_{0};
    std::atomic<uint64_t> issued_seq_{0};   // written under mutex_
    uint64_t retired_seq_ = 0;
    uint64_t marker_seq_ = 0;   // the newest report asked for covers up to here
    uint64_t wanted_seq_ = 0;   // somebody waits for this one
    uint32_t retired_task_ = UINT32_MAX;  // task ids start at 0
    std::atomic<bool> closed_{false};  // written under mutex_
    bool destroyed_ = false;
    bool destroy_due_ = false;
    size_t finishing_ = 0;      // retired, on their way through the worker
    bool issuing_ = false;      // the worker is inside an ACL call for the queue's first command
    bool confirm_due_ = false;
    bool abandoned_ = false;    // given up: nothing to wait for when it is destroyed
    std::shared_ptr<Failure> given_up_for_;
    Outcome given_up_as_ = Outcome::Lost;
    bool aborting_ = false;
    std::atomic<bool> blocked_{false};  // the queue's first command waits for memory or for a record elsewhere
    std::atomic<bool> wake_posted_{false};
};

std::shared_ptr<Failure> new_failure(const Device &device, aclError code, int32_t stream);

// Asks for a report of one operation and submits the next, perhaps on another stream.
int arm_and_submit(Stream &of, Ticket &awaited, Stream &to, Ticket &ticket, const Command &command);

}  // namespace aioascend
