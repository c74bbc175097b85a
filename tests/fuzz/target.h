// SPDX-License-Identifier: Apache-2.0
// What every target is made of. A target is called as libFuzzer calls it, and ends the process when a rule is broken.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "acl/acl.h"
#include "aclsim.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace fuzz {

inline void require(bool fine, const char *rule, int code = 0) {
    if (!fine) {
        std::fprintf(stderr, "broken: %s (%d)\n", rule, code);
        std::abort();
    }
}

// A refusal has one of the documented codes, and a message.
inline void require_refusal(int code, std::initializer_list<int> documented) {
    bool known = false;
    for (const int one : documented) {
        known = known || code == one;
    }
    require(known, "refused with a code that is not documented", code);
    const char *message = aclGetRecentErrMsg();
    require(message != nullptr && *message != '\0', "refused without a message", code);
}

}  // namespace fuzz
