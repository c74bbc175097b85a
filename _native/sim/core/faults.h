// SPDX-License-Identifier: Apache-2.0
// Faults armed through the control interface. Guarded by the device's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "core/stream.h"

namespace aclsim {

class FaultList {
public:
    void fail_task(void *stream, const char *kind, uint64_t nth, aclError code);
    void drop_callback(void *stream, uint64_t nth);
    void clear() { rules_.clear(); }
    bool empty() const { return rules_.empty(); }

    // A task starts: the code it is to fail with, or 0.
    aclError match_task(const Stream &stream, const Entry &entry) {
        return rules_.empty() ? 0 : count_down(stream, entry.kind, false);
    }
    // A callback's report is about to be posted: whether it gets lost.
    bool match_callback(const Stream &stream) {
        return !rules_.empty() && count_down(stream, "callback", true) != 0;
    }

private:
    struct Rule {
        void *stream;
        const char *kind;  // null: any
        uint64_t remaining;
        aclError code;
        bool drops_report;
    };
    aclError count_down(const Stream &stream, const char *kind, bool drops_report);
    std::vector<Rule> rules_;
};

}  // namespace aclsim
