// SPDX-License-Identifier: Apache-2.0
#include "core/memory.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "core/clock.h"
#include "core/inflight.h"
#include "core/settings.h"

namespace aclsim {

namespace {

constexpr size_t alignment = 64;
constexpr uint64_t pad = 32;  // what the real allocator adds to every block
// Freed device blocks stay mapped for a while: a task that was checked just before the free may still touch
// them.
constexpr size_t quarantine_bytes = 64u << 20;
constexpr size_t quarantine_blocks = 256;
constexpr size_t poisoned_bytes = 16u << 20;

uint64_t round_up(uint64_t size) { return (size + 31) / 32 * 32; }

struct Block {
    size_t size = 0;
    uint64_t charged = 0;
    int32_t device = -1;
    bool registered = false;  // host memory of the caller
    bool mapped = false;
};

using Blocks = std::map<uintptr_t, Block>;

struct Map {
    std::shared_mutex mutex;
    Blocks device_blocks;
    Blocks host_blocks;
    std::array<MemoryUse, max_devices> use{};
    std::deque<std::pair<void *, size_t>> quarantine;
    size_t quarantined = 0;
    std::atomic<uint64_t> epoch{1};
};

Map &map() {
    static Map *instance = new Map;
    return *instance;
}

// The block that holds p, or null.
const std::pair<const uintptr_t, Block> *find_block(const Blocks &blocks, const void *p) {
    const auto address = reinterpret_cast<uintptr_t>(p);
    auto after = blocks.upper_bound(address);
    if (after == blocks.begin()) {
        return nullptr;
    }
    --after;
    return address < after->first + std::max<size_t>(after->second.size, 1) ? &*after : nullptr;
}

bool inside(const std::pair<const uintptr_t, Block> &block, const void *p, size_t size) {
    const uintptr_t offset = reinterpret_cast<uintptr_t>(p) - block.first;
    return size <= block.second.size - offset;
}

// Takes the oldest blocks out of quarantine until it is within bounds; they are freed without the lock.
std::deque<std::pair<void *, size_t>> overflow(Map &all) {
    std::deque<std::pair<void *, size_t>> out;
    while (all.quarantined > quarantine_bytes || all.quarantine.size() > quarantine_blocks) {
        out.push_back(all.quarantine.front());
        all.quarantined -= out.back().second;
        all.quarantine.pop_front();
    }
    return out;
}

void retire(void *p, size_t size, bool poison) {
    if (poison) {
        std::memset(p, 0xDB, std::min(size, poisoned_bytes));  // not the whole of what was never written to
    }
    Map &all = map();
    std::deque<std::pair<void *, size_t>> old;
    {
        std::unique_lock<std::shared_mutex> lock(all.mutex);
        all.quarantine.emplace_back(p, size);
        all.quarantined += size;
        old = overflow(all);
    }
    for (const auto &block : old) {
        std::free(block.first);
    }
}

void forget_device_block(Map &all, Blocks::iterator block) {
    all.use[static_cast<size_t>(block->second.device)].used -= block->second.charged;
    count_live("device_bytes", -static_cast<int64_t>(block->second.size));
    count_live("device_blocks", -1);
    all.device_blocks.erase(block);
    all.epoch.fetch_add(1, std::memory_order_release);
}

}  // namespace

Place classify(const void *p, size_t size) {
    Map &all = map();
    std::shared_lock<std::shared_mutex> lock(all.mutex);
    if (const auto *block = find_block(all.device_blocks, p)) {
        return Place{Where::Device, block->second.device, inside(*block, p, size)};
    }
    if (const auto *block = find_block(all.host_blocks, p)) {
        return Place{Where::Pinned, block->second.device, inside(*block, p, size)};
    }
    return Place{};
}

uint64_t memory_epoch() { return map().epoch.load(std::memory_order_acquire); }

bool is_device_address(const void *p, size_t size, int32_t *device) {
    const Place place = classify(p, size);
    if (place.where != Where::Device || !place.whole) {
        return false;
    }
    if (device != nullptr) {
        *device = place.device;
    }
    return true;
}

aclError allocate_device(int32_t device, size_t size, void **out) {
    Map &all = map();
    const uint64_t charged = round_up(size) + pad;
    if (charged < size) {
        return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "device %d cannot provide %zu bytes", device, size);
    }
    MemoryUse &use = all.use[static_cast<size_t>(device)];
    {
        std::unique_lock<std::shared_mutex> lock(all.mutex);
        if (charged > use.total || use.used > use.total - charged) {
            const unsigned long long total = use.total, used = use.used;
            lock.unlock();
            return fail(
                ACL_ERROR_RT_MEMORY_ALLOCATION,
                "device %d is out of memory: %zu bytes wanted, %llu of %llu in use; free buffers first",
                device, size, used, total);
        }
        use.used += charged;
        use.peak = std::max(use.peak, use.used);
    }
    void *p = nullptr;
    if (posix_memalign(&p, alignment, charged) != 0) {
        std::unique_lock<std::shared_mutex> lock(all.mutex);
        use.used -= charged;
        lock.unlock();
        return fail(
            ACL_ERROR_RT_MEMORY_ALLOCATION,
            "this machine has no memory left to back %zu bytes of device %d; use a smaller device memory",
            size, device);
    }
    {
        std::unique_lock<std::shared_mutex> lock(all.mutex);
        Block block;
        block.size = round_up(size);
        block.charged = charged;
        block.device = device;
        all.device_blocks[reinterpret_cast<uintptr_t>(p)] = block;
        count_live("device_bytes", static_cast<int64_t>(block.size));
        count_live("device_blocks", 1);
    }
    *out = p;
    return 0;
}

aclError release_device(void *p, bool touched) {
    Map &all = map();
    size_t size = 0;
    {
        std::unique_lock<std::shared_mutex> lock(all.mutex);
        const auto block = all.device_blocks.find(reinterpret_cast<uintptr_t>(p));
        if (block == all.device_blocks.end()) {
            lock.unlock();
            return fail(ACL_ERROR_RT_PARAM_INVALID,
                        "%p is not the start of a live device allocation: freed twice, or never allocated",
                        p);
        }
        size = block->second.size;
        forget_device_block(all, block);
    }
    check_not_in_flight(p, size, "aclrtFree");
    retire(p, size, touched && settings().poison_free.load(std::memory_order_relaxed));
    return 0;
}

void release_all_device_memory(int32_t device) {
    Map &all = map();
    std::unique_lock<std::shared_mutex> lock(all.mutex);
    for (auto block = all.device_blocks.begin(); block != all.device_blocks.end();) {
        const auto current = block++;
        if (current->second.device == device) {
            void *p = reinterpret_cast<void *>(current->first);
            const size_t size = current->second.size;
            forget_device_block(all, current);
            all.quarantine.emplace_back(p, size);
            all.quarantined += size;
        }
    }
    const auto old = overflow(all);
    lock.unlock();
    for (const auto &block : old) {
        std::free(block.first);
    }
}

aclError allocate_host(int32_t device, size_t size, void **out) {
    void *p = nullptr;
    const size_t rounded = round_up(size);
    if (rounded < size || posix_memalign(&p, alignment, rounded) != 0) {
        return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "no %zu bytes of pinned host memory to be had", size);
    }
    Map &all = map();
    std::unique_lock<std::shared_mutex> lock(all.mutex);
    Block block;
    block.size = rounded;
    block.device = device;
    block.mapped = true;
    all.host_blocks[reinterpret_cast<uintptr_t>(p)] = block;
    count_live("host_bytes", static_cast<int64_t>(rounded));
    count_live("host_blocks", 1);
    *out = p;
    return 0;
}

aclError release_host(void *p) {
    Map &all = map();
    size_t size = 0;
    {
        std::unique_lock<std::shared_mutex> lock(all.mutex);
        const auto block = all.host_blocks.find(reinterpret_cast<uintptr_t>(p));
        if (block == all.host_blocks.end() || block->second.registered) {
            lock.unlock();
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "%p did not come from aclrtMallocHost, or was freed already; registered memory is given back "
                "with aclrtHostUnregister",
                p);
        }
        size = block->second.size;
        count_live("host_bytes", -static_cast<int64_t>(size));
        count_live("host_blocks", -1);
        all.host_blocks.erase(block);
        all.epoch.fetch_add(1, std::memory_order_release);
    }
    check_not_in_flight(p, size, "aclrtFreeHost");
    retire(p, size, false);
    return 0;
}

aclError register_host(void *p, size_t size, bool mapped) {
    Map &all = map();
    std::unique_lock<std::shared_mutex> lock(all.mutex);
    const auto *block = find_block(all.host_blocks, p);
    if (block != nullptr && block->second.registered) {
        lock.unlock();
        return fail(ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "host memory at %p is registered already", p);
    }
    if (block != nullptr) {
        return 0;  // from aclrtMallocHost: pinned and mapped from the start
    }
    Block entry;
    entry.size = size;
    entry.registered = true;
    entry.mapped = mapped;
    all.host_blocks[reinterpret_cast<uintptr_t>(p)] = entry;
    return 0;
}

aclError unregister_host(void *p) {
    Map &all = map();
    std::unique_lock<std::shared_mutex> lock(all.mutex);
    const auto block = all.host_blocks.find(reinterpret_cast<uintptr_t>(p));
    if (block == all.host_blocks.end() || !block->second.registered) {
        lock.unlock();
        return fail(ACL_ERROR_HOST_MEMORY_NOT_REGISTERED, "host memory at %p is not registered", p);
    }
    all.host_blocks.erase(block);
    all.epoch.fetch_add(1, std::memory_order_release);
    return 0;
}

aclError host_device_pointer(const void *p, void **out) {
    Map &all = map();
    std::shared_lock<std::shared_mutex> lock(all.mutex);
    const auto *block = find_block(all.host_blocks, p);
    if (block == nullptr || !block->second.mapped) {
        lock.unlock();
        return fail(ACL_ERROR_HOST_MEMORY_NOT_REGISTERED,
                    "host memory at %p is not mapped; register it with the MAPPED flag first", p);
    }
    *out = const_cast<void *>(p);
    return 0;
}

MemoryUse memory_use(int32_t device) {
    Map &all = map();
    std::shared_lock<std::shared_mutex> lock(all.mutex);
    return all.use[static_cast<size_t>(device)];
}

void set_memory_total(int32_t device, uint64_t bytes) {
    Map &all = map();
    std::unique_lock<std::shared_mutex> lock(all.mutex);
    all.use[static_cast<size_t>(device)].total = bytes;
}

}  // namespace aclsim
