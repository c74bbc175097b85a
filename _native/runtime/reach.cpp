// SPDX-License-Identifier: Apache-2.0
// What a failure reaches: its own stream from there on, and streams behind a wait for a record that it reaches, until
// somebody has been told. Everything here runs with the device's failure_mutex held, except what takes it itself.
//
// A stream keeps taints: stretches of it that a failure reaches. What comes over a wait becomes a taint when the wait is
// settled; before that it is found through the waits in flight, which form a graph, as streams may hand over to each
// other any number of times.
#include <algorithm>
#include <utility>

#include "device.h"
#include "stream.h"

namespace aioascend {

// A walk over the waits that lead to one position. Each wait is gone through once: without that, two streams that hand
// over to each other would take a time that doubles with every second wait.
class Reach {
public:
    explicit Reach(const Failure *only = nullptr) : only_(only) {}

    // Failures that nobody has been told of and that reach this position; all that matter here, as one that was told is
    // made a taint of the streams behind its waits at that moment.
    void visit(Stream &stream, uint64_t seq) {
        for (const Taint &taint : stream.taints_) {
            if (taint.covers(seq) && !taint.failure->told) {
                add(taint.failure);
            }
        }
        const uint64_t before = mark(stream, seq);
        for (const PendingWait &wait : stream.waits_) {
            if (wait.seq > before && wait.seq <= seq) {
                visit(*wait.source, wait.source_seq);
            }
        }
    }

    // For who goes over the waits of a stream from its first on: when a later one leads back, those in front are known.
    void skip(const Stream &stream) { mark(stream, UINT64_MAX); }

    const std::vector<std::shared_ptr<Failure>> &found() const { return found_; }

private:
    void add(const std::shared_ptr<Failure> &failure) {
        if ((only_ == nullptr || failure.get() == only_) &&
            std::find(found_.begin(), found_.end(), failure) == found_.end()) {
            found_.push_back(failure);
        }
    }

    // How far the waits of this stream have been gone through already.
    uint64_t mark(const Stream &stream, uint64_t seq) {
        for (auto &[known, upto] : marks_) {
            if (known == &stream) {
                return std::exchange(upto, std::max(upto, seq));
            }
        }
        marks_.emplace_back(&stream, seq);
        return 0;
    }

    const Failure *only_;
    std::vector<std::shared_ptr<Failure>> found_;
    std::vector<std::pair<const Stream *, uint64_t>> marks_;
};

std::shared_ptr<Failure> Stream::failure_at(uint64_t seq) {
    for (const Taint &taint : taints_) {
        if (taint.covers(seq)) {
            return taint.failure;
        }
    }
    if (waits_.empty() || !device_.has_failed) {
        return nullptr;
    }
    Reach reach;
    reach.visit(*this, seq);
    return reach.found().empty() ? nullptr : reach.found().front();
}

std::shared_ptr<Failure> Stream::failure_of(uint64_t seq) {
    std::lock_guard<std::mutex> failures(device_.failure_mutex);
    return failure_at(seq);
}

std::shared_ptr<Failure> Stream::open_failure() {
    std::lock_guard<std::mutex> failures(device_.failure_mutex);
    const auto newest =
        std::find_if(taints_.rbegin(), taints_.rend(), [](const Taint &taint) { return taint.open(); });
    return newest != taints_.rend() ? newest->failure : nullptr;
}

void Stream::add_taint(const std::shared_ptr<Failure> &failure, uint64_t from, uint64_t to) {
    constexpr size_t kRemembered = 256;  // events may be waited for long after they were recorded
    if (taints_.size() == kRemembered) {
        taints_.erase(taints_.begin());
    }
    taints_.push_back(Taint{failure, from, to});
    device_.has_failed = true;
    note_open_taints();
}

// It was not made: nothing comes over it, and that the device is past it tells nothing of its source.
void Stream::drop_wait(Ticket &ticket) {
    if (!ticket.extra || !ticket.extra->source) {
        return;
    }
    std::lock_guard<std::mutex> failures(device_.failure_mutex);
    ticket.extra->source.reset();
    waits_.erase(std::remove_if(waits_.begin(), waits_.end(),
                                [&](const PendingWait &wait) { return wait.seq == ticket.seq; }),
                 waits_.end());
}

// The wait at seq has been settled: what reaches the record it waited for goes on here.
void Stream::take_failures(uint64_t seq, Stream &source, uint64_t source_seq) {
    if (!device_.has_failed) {
        return;
    }
    Reach reach;
    reach.visit(source, source_seq);
    std::vector<std::shared_ptr<Failure>> failures = reach.found();
    // Was one told before the wait was submitted, then by another thread, and whoever submitted it did not know.
    for (const Taint &taint : source.taints_) {
        if (taint.covers(source_seq) && taint.failure->told) {
            failures.push_back(taint.failure);
        }
    }
    for (const auto &failure : failures) {
        const bool known = std::any_of(taints_.begin(), taints_.end(), [&](const Taint &taint) {
            return taint.failure == failure && taint.covers(seq);
        });
        if (!known) {
            add_taint(failure, seq - 1, failure->told ? last_seq() : Taint::kOpen);
        }
    }
}

// Makes a taint of what would come over a wait in flight, for the walk leaves out failures that have been told.
void Stream::carry_over(const std::shared_ptr<Failure> &failure) {
    if (!waits_.empty()) {
        Reach reach(failure.get());
        reach.skip(*this);
        for (const PendingWait &wait : waits_) {
            reach.visit(*wait.source, wait.source_seq);
            if (!reach.found().empty()) {
                add_taint(failure, wait.seq - 1, Taint::kOpen);
                break;
            }
        }
    }
}

// What it reaches here ends with what has been submitted, and with a wait that is just being submitted.
void Stream::end_taint(const Failure &failure) {
    const uint64_t last = std::max(last_seq(), waits_.empty() ? 0 : waits_.back().seq);
    for (Taint &taint : taints_) {
        if (taint.failure.get() == &failure && taint.open()) {
            taint.to = last;
        }
    }
    note_open_taints();
}

void Stream::note_open_taints() {
    poisoned_.store(std::any_of(taints_.begin(), taints_.end(), [](const Taint &taint) { return taint.open(); }),
                    std::memory_order_release);
}

}  // namespace aioascend
