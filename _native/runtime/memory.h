// SPDX-License-Identifier: Apache-2.0
// Device memory and pinned host memory, pooled by size class. Asking never reaches the driver on the caller's thread:
// what the pool does not have is allocated by the device's worker, and commands that need it wait for that.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "loader.h"

namespace aioascend {

class Device;

enum class MemoryKind : uint8_t { Device, Pinned };

struct Memory {
    enum State : int { Pending, Ready, Failed };

    explicit Memory(size_t n) : size(n) {}

    char *address(size_t offset) const { return static_cast<char *>(base) + offset; }

    void *base = nullptr;  // valid once ready
    size_t size;           // of its class, at least what was asked for
    aclError code = 0;     // why it failed
    std::atomic<int> state{Pending};
};

struct MemoryStatistics {
    size_t live_bytes = 0;    // handed out
    size_t cached_bytes = 0;  // kept for reuse
    size_t live_blocks = 0;
};

class MemoryPool {
public:
    MemoryPool(Device &device, MemoryKind kind, size_t cache_limit);

    Memory *acquire(size_t size);   // never blocks
    void release(Memory *memory);   // never blocks; the caller proves that the device is done with it
    // As release, but nobody can tell whether the device still uses it: kept until the device has been reset.
    void quarantine(Memory *memory);
    void free_quarantined();
    void try_again(Memory *memory);  // if there was none; never blocks
    aclError wait(Memory *memory);   // blocks until it is ready; its code when it failed
    void trim();                     // worker, or when it has ended: give the cache back to the driver
    void close();                    // worker only, last: device memory goes with the device, whoever holds it
    void abandon();                  // the device was reset by force: its memory has gone already
    bool contains(const void *address, size_t size);  // inside a live or cached block
    MemoryStatistics statistics();

private:
    void allocate(Memory *memory);
    void free_block(Memory *memory);
    aclError call_malloc(Memory *memory);

    Device &device_;
    const MemoryKind kind_;
    const size_t cache_limit_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::unordered_map<size_t, std::vector<Memory *>> free_;
    std::map<const char *, size_t> blocks_;
    std::vector<Memory *> quarantine_;
    bool closed_ = false;      // the worker takes no more jobs
    bool reset_done_ = false;  // the device can touch nothing any more
    MemoryStatistics statistics_;
};

}  // namespace aioascend
