// SPDX-License-Identifier: Apache-2.0
// A set of equal execution units (AI Cores, or copy engines of one direction) that streams contend for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/stream.h"

namespace aclsim {

class UnitSet {
public:
    // Fewer units than are busy: the surplus disappears as it becomes free.
    void resize(uint32_t count) {
        count_ = count;
        units_.resize(std::max<size_t>(units_.size(), count));
    }
    uint32_t count() const { return count_; }

    bool has_free() const {
        for (uint32_t i = 0; i < count_; ++i) {
            if (!units_[i].busy) {
                return true;
            }
        }
        return false;
    }

    // A free unit for use from `*at` on; `*at` moves back if the unit was in use until later. -1: all are
    // busy.
    int32_t acquire(uint64_t *at) {
        int32_t best = -1;
        for (uint32_t i = 0; i < count_; ++i) {
            if (units_[i].busy) {
                continue;
            }
            if (units_[i].free_at <= *at) {
                best = static_cast<int32_t>(i);
                break;
            }
            if (best < 0 || units_[i].free_at < units_[static_cast<size_t>(best)].free_at) {
                best = static_cast<int32_t>(i);
            }
        }
        if (best >= 0) {
            Unit &unit = units_[static_cast<size_t>(best)];
            unit.busy = true;
            *at = std::max(*at, unit.free_at);
        }
        return best;
    }
    void release(int32_t index, uint64_t start, uint64_t end) {
        Unit &unit = units_[static_cast<size_t>(index)];
        unit.busy = false;
        unit.free_at = end;
        busy_ns_ += end - start;
    }

    void wait(Stream &stream) {
        stream.unit_sequence = ++sequence_;
        waiting_.push_back(&stream);
    }
    void forget(Stream &stream) {
        waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), &stream), waiting_.end());
    }
    // The stream that is next: highest priority (lowest number), then order of arrival. Null: none waits.
    Stream *next() {
        const auto first =
            std::min_element(waiting_.begin(), waiting_.end(), [](const Stream *a, const Stream *b) {
                return a->priority != b->priority ? a->priority < b->priority
                                                  : a->unit_sequence < b->unit_sequence;
            });
        if (first == waiting_.end()) {
            return nullptr;
        }
        Stream *stream = *first;
        waiting_.erase(first);
        return stream;
    }
    uint64_t busy_ns() const { return busy_ns_; }

private:
    struct Unit {
        bool busy = false;
        uint64_t free_at = 0;
    };
    std::vector<Unit> units_;
    std::vector<Stream *> waiting_;
    uint32_t count_ = 0;
    uint64_t sequence_ = 0;
    uint64_t busy_ns_ = 0;
};

}  // namespace aclsim
