// SPDX-License-Identifier: Apache-2.0
// Per-function call counters, injected failures and latencies; live object counts.
#pragma once

#include <cstdint>

#include "core/errors.h"

namespace aclsim {

uint64_t count_calls(const char *function);
uint64_t count_calls_on_thread(const char *function, uint64_t thread);
aclError inject_call_failure(const char *function, uint64_t nth, aclError code, uint64_t times);
aclError inject_call_latency(const char *function, uint64_t ns);
// Zeroes the counters and removes what was injected.
void reset_calls();

// -1: no such name.
int64_t live_count(const char *what);

}  // namespace aclsim
