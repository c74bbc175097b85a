// SPDX-License-Identifier: Apache-2.0
// Memory that tasks in flight still use.
#pragma once

#include <cstddef>

namespace aclsim {

// Strict mode: aborts with a message when a queued or running copy or memset of any device uses the range.
void check_not_in_flight(const void *p, size_t size, const char *function);

}  // namespace aclsim
