// SPDX-License-Identifier: Apache-2.0
// How long a thread that takes reports leaves a loop alone with what it has been given.
#pragma once

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cstddef>

namespace aioascend {

// For a thread that calls leave_time: the kernel may otherwise let it sleep 50 us longer than it asks for.
inline void sleep_exactly() {
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

// A loop takes about a microsecond for each operation that it is given, so what is reported meanwhile is not urgent, and
// gathering it costs less than being woken up for it, time and again.
inline void leave_time(size_t operations) {
    constexpr size_t kWorthIt = 8, kMost = 100;
    if (operations >= kWorthIt) {
        const timespec pause{0, static_cast<long>(std::min(operations, kMost)) * 1000};
        nanosleep(&pause, nullptr);
    }
}

}  // namespace aioascend
