// SPDX-License-Identifier: Apache-2.0
// How far the streams of a device are, and what they wait for: what debug mode explains a stall by.
#pragma once

#include <cstdint>
#include <vector>

namespace aioascend {

class Device;

// Why the first operation in a host-side queue is still there.
enum class Held : int {
    Nothing,  // there is none
    Full,     // the device has as many operations as it may
    Launch,   // the worker is inside the call
    Record,   // it waits for an event whose record is in a host-side queue as well
    Model,    // its model is reserved for a run that waits
    Memory,   // memory that is still being allocated
    Worker,   // nothing, but the worker has not come to it
};

struct StreamSnapshot {
    struct Wait {
        uint64_t seq, source_seq;
        uintptr_t source;
    };

    uintptr_t key = 0;  // of the stream, as long as it lives
    int32_t id = -1;
    bool foreign = false;
    bool idle = false;  // the device has nothing of it left to do
    uint64_t retired_seq = 0, issued_seq = 0, wanted_seq = 0;
    Held held = Held::Nothing;
    uintptr_t held_source = 0;  // Record
    uint64_t held_source_seq = 0;
    std::vector<Wait> waits;  // those not settled yet, on the device or on the host
};

std::vector<StreamSnapshot> snapshots(Device &device);

}  // namespace aioascend
