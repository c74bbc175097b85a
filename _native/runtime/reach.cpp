// SPDX-License-Identifier: Apache-2.0
// What a failure reaches: positions on its own stream and, through waits, on others, until somebody has been told.
// Everything here runs with the device's failure_mutex held, except for the two functions that take it.
#include <algorithm>
#include <utility>

#include "device.h"
#include "stream.h"

namespace aioascend {

std::shared_ptr<Failure> Stream::failure_at(uint64_t seq) const {
    const auto found = failures_at(seq);
    return found.empty() ? nullptr : found.front();
}

// All of them: when one has been told, the others still stand. Through waits that nobody has settled yet come those
// that nobody has been told of; what has been told reaches no further than its taint.
std::vector<std::shared_ptr<Failure>> Stream::failures_at(uint64_t seq) const {
    std::vector<std::shared_ptr<Failure>> found;
    for (const Taint &taint : taints_) {
        if (taint.covers(seq)) {
            found.push_back(taint.failure);
        }
    }
    if (waits_.empty()) {
        return found;
    }
    // Each place is searched once: streams may wait for each other many times, and there are endless ways round.
    std::vector<std::pair<const Stream *, uint64_t>> places{{this, seq}};
    for (size_t i = 0; i < places.size(); ++i) {
        const auto [stream, until] = places[i];
        for (auto wait = stream->waits_.rbegin(); wait != stream->waits_.rend(); ++wait) {
            const auto searched = [&](const auto &place) {
                return place.first == wait->source.get() && place.second >= wait->source_seq;
            };
            if (wait->seq > until || std::any_of(places.begin(), places.end(), searched)) {
                continue;
            }
            places.emplace_back(wait->source.get(), wait->source_seq);
            for (const Taint &taint : wait->source->taints_) {
                if (taint.open() && !taint.failure->told && taint.covers(wait->source_seq)) {
                    found.push_back(taint.failure);
                }
            }
        }
    }
    return found;
}

std::shared_ptr<Failure> Stream::failure_of(uint64_t seq) {
    std::lock_guard<std::mutex> failures(device_.failure_mutex);
    return failure_at(seq);
}

std::shared_ptr<Failure> Stream::open_failure() {
    std::lock_guard<std::mutex> failures(device_.failure_mutex);
    return !taints_.empty() && taints_.back().open() ? taints_.back().failure : nullptr;
}

void Stream::add_taint(const std::shared_ptr<Failure> &failure, uint64_t from, uint64_t to) {
    constexpr size_t kRemembered = 256;  // events may be waited for long after they were recorded
    if (taints_.size() == kRemembered) {
        taints_.erase(taints_.begin());
    }
    taints_.push_back(Taint{failure, from, to});
    poisoned_.store(to == Taint::kOpen, std::memory_order_release);
}

bool Stream::tainted(const Failure &failure, uint64_t seq) const {
    return std::any_of(taints_.begin(), taints_.end(), [&](const Taint &taint) {
        return taint.failure.get() == &failure && taint.covers(seq);
    });
}

void Stream::taint_behind_waits(const std::shared_ptr<Failure> &failure) {
    for (const PendingWait &wait : waits_) {
        if (!tainted(*failure, wait.seq)) {
            const auto reaching = wait.source->failures_at(wait.source_seq);
            if (std::find(reaching.begin(), reaching.end(), failure) != reaching.end()) {
                add_taint(failure, wait.seq - 1, Taint::kOpen);
            }
        }
    }
}

void Stream::close_taint(const Failure &failure) {
    for (Taint &taint : taints_) {
        if (taint.failure.get() == &failure && taint.open()) {
            taint.to = last_seq();
        }
    }
    poisoned_.store(!taints_.empty() && taints_.back().open(), std::memory_order_release);
}

}  // namespace aioascend
