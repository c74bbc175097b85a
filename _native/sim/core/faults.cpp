// SPDX-License-Identifier: Apache-2.0
#include "core/faults.h"

#include <cstring>

namespace aclsim {

void FaultList::fail_task(void *stream, const char *kind, uint64_t nth, aclError code) {
    rules_.push_back(Rule{stream, kind, nth, code, false});
}

void FaultList::drop_callback(void *stream, uint64_t nth) {
    rules_.push_back(Rule{stream, nullptr, nth, 1, true});
}

aclError FaultList::count_down(const Stream &stream, const char *kind, bool drops_report) {
    aclError hit = 0;
    for (size_t i = 0; i < rules_.size();) {
        Rule &rule = rules_[i];
        const bool matches = rule.drops_report == drops_report &&
                             (rule.stream == nullptr || rule.stream == stream.handle) &&
                             (rule.kind == nullptr || std::strcmp(rule.kind, kind) == 0);
        if (matches && --rule.remaining == 0) {
            hit = rule.code;
            rules_.erase(rules_.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
            ++i;
        }
    }
    return hit;
}

}  // namespace aclsim
