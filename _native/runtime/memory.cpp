// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include "device.h"
#include "process.h"

namespace aioascend {
namespace {

// Four classes per power of two: at most a quarter is wasted, and blocks of similar requests are shared.
size_t size_class(size_t size) {
    constexpr size_t kSmallest = 4096;
    size_t power = kSmallest;
    while (power < size) {
        power *= 2;
    }
    if (power == kSmallest) {
        return power;
    }
    const size_t step = power / 8;
    return (size + step - 1) / step * step;
}

}  // namespace

MemoryPool::MemoryPool(Device &device, MemoryKind kind, size_t cache_limit)
    : device_(device), kind_(kind), cache_limit_(cache_limit) {}

Memory *MemoryPool::acquire(size_t size) {
    size = size_class(size);
    std::lock_guard<std::mutex> lock(mutex_);
    statistics_.live_bytes += size;
    statistics_.live_blocks += 1;
    auto &cached = free_[size];
    if (!cached.empty()) {
        Memory *memory = cached.back();
        cached.pop_back();
        statistics_.cached_bytes -= size;
        return memory;
    }
    auto *memory = new Memory(size);
    if (closed_) {
        memory->code = ACL_ERROR_RT_CONTEXT_NULL;
        memory->state = Memory::Failed;
    } else {
        device_.worker().post([this, memory] { allocate(memory); });
    }
    return memory;
}

void MemoryPool::try_again(Memory *memory) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (memory->state == Memory::Failed && !closed_) {
        memory->state = Memory::Pending;
        device_.worker().post([this, memory] { allocate(memory); });
    }
}

void MemoryPool::release(Memory *memory) {
    if (forked() || shutting_down()) {
        return;
    }
    {
        std::lock_guard<std::mutex> lock(mutex_);
        statistics_.live_bytes -= memory->size;
        statistics_.live_blocks -= 1;
        if (!closed_) {
            const bool ready = memory->state.load(std::memory_order_acquire) == Memory::Ready;
            if (ready && statistics_.cached_bytes + memory->size <= cache_limit_) {
                statistics_.cached_bytes += memory->size;
                free_[memory->size].push_back(memory);
            } else {
                device_.worker().post([this, memory] { free_block(memory); });  // behind its allocation
            }
            return;
        }
    }
    free_block(memory);
}

void MemoryPool::quarantine(Memory *memory) {
    if (forked() || shutting_down()) {
        return;
    }
    {
        std::lock_guard<std::mutex> lock(mutex_);
        statistics_.live_bytes -= memory->size;
        statistics_.live_blocks -= 1;
        if (!reset_done_) {
            quarantine_.push_back(memory);
            return;
        }
    }
    free_block(memory);
}

void MemoryPool::free_quarantined() {
    std::vector<Memory *> all;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        reset_done_ = true;
        all.swap(quarantine_);
    }
    for (Memory *memory : all) {
        free_block(memory);
    }
}

aclError MemoryPool::call_malloc(Memory *memory) {
    const AclApi &api = device_.api();
    return kind_ == MemoryKind::Device ? api.aclrtMalloc(&memory->base, memory->size, ACL_MEM_MALLOC_HUGE_FIRST)
                                       : api.aclrtMallocHost(&memory->base, memory->size);
}

void MemoryPool::allocate(Memory *memory) {
    aclError code = device_.handles_gone() ? aclError(ACL_ERROR_RT_CONTEXT_NULL) : call_malloc(memory);
    if (code == ACL_ERROR_RT_MEMORY_ALLOCATION || code == ACL_ERROR_RT_RESOURCE_ALLOC_FAIL) {
        trim();
        code = call_malloc(memory);
    }
    {
        std::lock_guard<std::mutex> lock(mutex_);
        memory->code = code;
        memory->state.store(code == 0 ? Memory::Ready : Memory::Failed, std::memory_order_release);
        if (code == 0) {
            blocks_.emplace(static_cast<const char *>(memory->base), memory->size);
        }
        changed_.notify_all();
    }
    device_.unblock_streams();
}

void MemoryPool::free_block(Memory *memory) {
    if (memory->base != nullptr) {
        bool live;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            live = blocks_.erase(static_cast<const char *>(memory->base)) != 0;
        }
        if (live && !(kind_ == MemoryKind::Device && device_.handles_gone())) {
            kind_ == MemoryKind::Device ? device_.api().aclrtFree(memory->base)
                                        : device_.api().aclrtFreeHost(memory->base);
        }
    }
    delete memory;
}

aclError MemoryPool::wait(Memory *memory) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [memory] { return memory->state.load() != Memory::Pending; });
    return memory->code;
}

void MemoryPool::trim() {
    std::vector<Memory *> cached;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        for (auto &[size, blocks] : free_) {
            cached.insert(cached.end(), blocks.begin(), blocks.end());
        }
        free_.clear();
        statistics_.cached_bytes = 0;
    }
    for (Memory *memory : cached) {
        free_block(memory);
    }
}

void MemoryPool::close() {
    trim();
    std::vector<void *> left;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closed_ = true;
        if (kind_ == MemoryKind::Device) {  // arrays of the user may look into pinned memory; it goes when they do
            for (Memory *memory : quarantine_) {
                blocks_.erase(static_cast<const char *>(memory->base));
            }
            for (const auto &block : blocks_) {
                left.push_back(const_cast<char *>(block.first));
            }
            blocks_.clear();
            for (Memory *memory : quarantine_) {
                blocks_.emplace(static_cast<const char *>(memory->base), memory->size);
            }
        }
    }
    for (void *base : left) {
        device_.api().aclrtFree(base);
    }
}

void MemoryPool::abandon() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closed_ = true;
        if (kind_ == MemoryKind::Device) {
            blocks_.clear();  // whatever is freed from here on may be somebody else's by now
        }
    }
    trim();
    free_quarantined();
}

bool MemoryPool::contains(const void *address, size_t size) {
    const char *begin = static_cast<const char *>(address);
    std::lock_guard<std::mutex> lock(mutex_);
    auto next = blocks_.upper_bound(begin);
    if (next == blocks_.begin()) {
        return false;
    }
    --next;
    return begin + size <= next->first + next->second;
}

MemoryStatistics MemoryPool::statistics() {
    std::lock_guard<std::mutex> lock(mutex_);
    return statistics_;
}

}  // namespace aioascend
