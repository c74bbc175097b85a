// SPDX-License-Identifier: Apache-2.0
// A bounded ring of finished tasks. Guarded by its device's lock.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "aclsim.h"

namespace aclsim {

constexpr size_t default_timeline_capacity = 65536;

class Timeline {
public:
    void add(const aclsimRecord &record) {
        if (capacity_ == 0) {
            return;
        }
        if (records_.size() < capacity_) {
            records_.push_back(record);
            return;
        }
        records_[oldest_] = record;
        oldest_ = oldest_ + 1 == capacity_ ? 0 : oldest_ + 1;
    }
    void clear() {
        records_.clear();
        oldest_ = 0;
    }
    void set_capacity(size_t records) {
        clear();
        records_.shrink_to_fit();
        capacity_ = records;
    }
    void append_to(std::vector<aclsimRecord> &all) const {
        all.insert(all.end(), records_.begin() + static_cast<std::ptrdiff_t>(oldest_), records_.end());
        all.insert(all.end(), records_.begin(), records_.begin() + static_cast<std::ptrdiff_t>(oldest_));
    }

private:
    std::vector<aclsimRecord> records_;
    size_t oldest_ = 0;
    size_t capacity_ = default_timeline_capacity;
};

// The same text always at the same address, for the life of the process.
const char *intern(const std::string &text);

}  // namespace aclsim
