// SPDX-License-Identifier: Apache-2.0
// The floor of the benchmarks: an event loop without Python. Nothing that waits for callbacks of the library by way of a
// report thread and a loop thread can be much faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "loader.h"

namespace aioascend::bench {

// Where one of the concurrent operations works. `device` and `source`, `result` (pinned) have lane_bytes each.
struct Lane {
    aclrtStream stream;
    void *device;
    void *source;
    void *result;
};

constexpr size_t kLaneBytes = 16;
constexpr size_t kCopyBytes = 8;     // of a copy alone
constexpr int kChainKernels = 8;     // memsets of one byte each, between two copies of kLaneBytes

enum class Work { Copy, Chain };

struct Counts {
    uint64_t callbacks = 0;
    uint64_t wakeups = 0;  // of the loop: how often epoll returned
};

class Floor {
public:
    // Starts the report thread, which takes the reports of all streams.
    static Floor *start(const AclApi &api, aclrtContext context, std::vector<Lane> lanes, aclError &code);
    ~Floor();  // every run has ended
    Floor(const Floor &) = delete;
    Floor &operator=(const Floor &) = delete;

    // On each lane does the work so many times, one after the other; all lanes at once. Returns when all is done.
    aclError run(Work work, size_t times, Counts &counts);

private:
    struct State;
    explicit Floor(State *state) : state_(state) {}
    State *state_;
};

// The library's own price of a submit: nanoseconds that `calls` aclrtMemsetAsync take. The stream is empty before each
// batch, which must fit into its queue; waiting for it is not counted.
aclError time_submits(const AclApi &api, const Lane &lane, size_t calls, size_t batch, int64_t &nanoseconds);

}  // namespace aioascend::bench
