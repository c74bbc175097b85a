// SPDX-License-Identifier: Apache-2.0
// How much work the long tests do: under a tool that makes everything many times slower, a part of it.
#pragma once

#include <algorithm>
#include <cstdlib>

// `count`, or the share of it that AIOASCEND_TEST_EFFORT asks for, in percent.
inline int scaled(int count) {
    const char *effort = std::getenv("AIOASCEND_TEST_EFFORT");
    return effort == nullptr ? count : std::max(1, count * std::atoi(effort) / 100);
}
