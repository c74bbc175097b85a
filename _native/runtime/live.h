// SPDX-License-Identifier: Apache-2.0
// What of the runtime is alive in this process.
#pragma once

#include <atomic>

namespace aioascend {

struct Live {
    std::atomic<int> threads{0};      // report threads and workers
    std::atomic<int> descriptors{0};  // eventfds of bridges

    static Live &counts() {
        static Live *all = new Live;  // leaked: threads may end during exit
        return *all;
    }
};

}  // namespace aioascend
