// SPDX-License-Identifier: Apache-2.0
// Which memory is whose: device allocations (host memory of this process, accounted per device), pinned host
// allocations and registered host ranges. Everything else is pageable host memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/task.h"

namespace aclsim {

enum class Where : uint8_t { Pageable, Pinned, Device };

struct Place {
    Where where = Where::Pageable;
    int32_t device = -1;  // owner; for pinned memory the device it was allocated under
    bool whole = true;    // the range lies inside one allocation
};

Place classify(const void *p, size_t size);

// Goes up whenever device or pinned memory is freed. While it stands still, ranges that were checked stay
// valid.
uint64_t memory_epoch();

aclError allocate_host(int32_t device, size_t size, void **out);
aclError release_host(void *p);

aclError register_host(void *p, size_t size, bool mapped);
aclError unregister_host(void *p);
// Address the device uses for registered (mapped) or allocated pinned memory.
aclError host_device_pointer(const void *p, void **out);

struct MemoryUse {
    uint64_t total = 0;
    uint64_t used = 0;
    uint64_t peak = 0;
};
MemoryUse memory_use(int32_t device);
// Capacity of a device's memory in bytes.
void set_memory_total(int32_t device, uint64_t bytes);
// Frees all that is left of a device (forced reset).
void release_all_device_memory(int32_t device);

}  // namespace aclsim
